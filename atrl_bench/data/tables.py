"""One reader of Parquet files, whatever is in them: what cannot be read is named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from atrl_bench.errors import AtrlBenchError, InvalidFileError, reason_of


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> Any:
    """Return the table of a Parquet file, or these columns of it."""
    import pyarrow.parquet as pq

    with reading(path):
        # `read_table` would load pandas first.
        return pq.ParquetFile(path).read(None if columns is None else list(columns))


def parquet_schema(path: Path) -> Any:
    """Return the columns of a Parquet file and what is written about them."""
    import pyarrow.parquet as pq

    with reading(path):
        return pq.read_schema(path)


def num_rows(path: Path) -> int:
    """Return how many rows a Parquet file has; none of them is read."""
    import pyarrow.parquet as pq

    with reading(path):
        return int(pq.read_metadata(path).num_rows)


@contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """Turn whatever a reader raises on a damaged file into an error that names the file."""
    try:
        yield
    except AtrlBenchError:
        raise
    except Exception as error:
        raise InvalidFileError(
            f"{path} cannot be read.",
            why=f"{reason_of(error)}. It may be damaged or only a part of a file.",
            next_step="fetch or copy it again, then the same command",
        ) from error
