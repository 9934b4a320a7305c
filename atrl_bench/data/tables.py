"""One reader of tables, Parquet, JSON and TSV, whatever is in them: what cannot be read is named."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import multiprocessing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from atrl_bench.data.archives import most_bytes
from atrl_bench.data.pictures import CELL
from atrl_bench.digests import sha256_of
from atrl_bench.errors import AtrlBenchError, InvalidFileError, reason_of
from atrl_bench.sandbox.pool import Failure, WorkerPool, allow_memory

STREAM_ROWS = 64
MAX_CELL = 64 << 20  # characters of a cell of a TSV
MAX_COLUMNS = 1000  # rows of more take seconds each to read
ROW_BYTES = 64  # that a row without any value takes
CELL_BYTES = 8  # of a row of text, also where its column is empty
COUNTING_SECONDS = 600.0  # of computing, for one file
COUNTING_BYTES = 2 << 30  # of memory: a page may claim any size, and a value be repeated by a number
TEXT_RATIO = 20  # more of it for each byte of a text, all of which is read at once
TEXT_SUFFIXES = (".json", ".jsonl", ".tsv", ".csv")
SUFFIXES = (".parquet", *TEXT_SUFFIXES)
MAX_NAME = 250  # characters of a path; a longer cell of a TSV is the picture itself


def kind_of(name: Path | str) -> str:
    """The suffix of a file, in small letters."""
    return Path(name).suffix.lower()


def read_parquet(path: Path) -> Any:
    with reading(path):
        return _opened(path).read()


def read_tables(paths: Sequence[Path]) -> Any:
    """All rows of these files as one table, images that they embed still encoded."""
    import pyarrow

    tables = [_read_text(path) if kind_of(path) in TEXT_SUFFIXES else read_parquet(path) for path in paths]
    with reading(paths[0].parent):  # of other columns than each other's
        return pyarrow.concat_tables(tables)


def stream_batches(paths: Sequence[Path]) -> Iterator[Any]:
    """Yield the rows of these files with a few dozen of them in memory at a time."""
    for path in paths:
        if kind_of(path) in TEXT_SUFFIXES:
            yield from _read_text(path).to_batches(max_chunksize=STREAM_ROWS)
            continue
        with reading(path):
            file = _opened(path)
            # Group by group: asked for the whole file, pyarrow reads ahead until all of it is in memory.
            for group in range(file.num_row_groups):
                yield from file.iter_batches(STREAM_ROWS, row_groups=[group])


def read_light_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file without what they embed."""
    if kind_of(path) in TEXT_SUFFIXES:
        return list(_read_text(path).to_pylist())
    with reading(path):
        file = _opened(path)
        light = [column.name for column in file.schema_arrow if "binary" not in str(column.type)]
        return list(file.read(light).to_pylist())


def pictures_beside(paths: Sequence[Path]) -> list[str]:
    """The files that these tables name as pictures, in cells that could embed them."""
    parquet = [path for path in paths if kind_of(path) not in TEXT_SUFFIXES]
    found = sha256_of(parquet, of=_pictures_beside, memory="pictures.json")
    return sorted({name for names in found for name in json.loads(names)})


def _pictures_beside(path: Path) -> str:
    names = set()
    with reading(path):
        file = _opened(path)
        columns = [field.name for field in file.schema_arrow if all(f"{name}:" in str(field.type) for name in CELL)]
        groups = [n for n in range(file.num_row_groups) if columns and not _embeds_all(file.metadata.row_group(n))]
        for batch in file.iter_batches(STREAM_ROWS, row_groups=groups, columns=columns) if groups else ():
            for cell in (cell for column in batch.to_pydict().values() for cell in column):
                for one in cell if isinstance(cell, list) else [cell]:
                    if isinstance(one, dict) and one.keys() == CELL and one["path"] and not one["bytes"]:
                        names.add(str(one["path"]))
    return json.dumps(sorted(names))


def _embeds_all(group: Any) -> bool:
    """Whether a group of rows is said to embed every picture: gigabytes need not be read to know it."""
    parts = [part for part in map(group.column, range(group.num_columns)) if part.path_in_schema.endswith(".bytes")]
    return all(part.is_stats_set and part.statistics.null_count == 0 for part in parts)


def rows_sha256(paths: Sequence[Path]) -> list[str]:
    """The SHA-256 of each file's rows, images by their bytes: the same whatever wrote the file."""
    return sha256_of(paths, of=_rows_sha256, memory="rows.json")


def _rows_sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with reading(path):
        for batch in _opened(path).iter_batches(STREAM_ROWS):
            for row in batch.to_pylist():
                digest.update(json.dumps(row, sort_keys=True, default=_as_text).encode() + b"\n")
    return digest.hexdigest()


def _as_text(value: Any) -> str:
    return hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else repr(value)


def _read_text(path: Path) -> Any:
    with reading(path):
        _require_counted(path)
        return _text_table(path)


def _text_table(path: Path) -> Any:
    import pyarrow

    rows = _rows_of(path)
    names = dict.fromkeys(name for row in rows for name in row)
    _require_columns(path, len(names))
    if CELL_BYTES * len(rows) * len(names) > most_bytes(path):
        raise ValueError(f"its {len(rows):,} rows by {len(names)} columns are far more than the file")
    return pyarrow.table({name: _column([row.get(name) for row in rows]) for name in names})


def _rows_of(path: Path) -> list[dict[str, Any]]:
    if kind_of(path) in (".tsv", ".csv"):
        return _delimited_rows(path)
    text = path.read_text(encoding="utf-8-sig")
    rows: list[dict[str, Any]] = (
        [_json_of(line, number) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        if kind_of(path) == ".jsonl"
        else json.loads(text)
    )
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("it is no list of rows, each an object with its columns")
    return rows


def _json_of(line: str, number: int) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {number}, column {error.colno}: {error.msg}") from error


def _delimited_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a TSV as VLMEvalKit writes it: pictures in base64, or the index of the row that has the same one.

    The first line says what separates a CSV: spreadsheets write semicolons where a comma is the decimal mark.
    """
    csv.field_size_limit(MAX_CELL)
    with path.open(encoding="utf-8-sig", newline="") as file:
        header, marks = file.readline(), "\t" if kind_of(path) == ".tsv" else ",;\t"
        file.seek(0)
        lines = csv.reader(file, delimiter=next((mark for mark in marks if mark in header), marks[0]))
        names = next(lines, [])
        # Rows may be short: `DictReader` would make each as long as the first.
        rows: list[dict[str, Any]] = [dict(zip(names, line, strict=False)) for line in lines if line]
    pictures = {row.get("index"): row["image"] for row in rows if len(row.get("image") or "") > MAX_NAME}
    num_bytes = 0
    for row in rows if pictures else ():
        encoded = pictures.get(row.get("image"), row.get("image"))
        num_bytes += len(encoded or "")
        if num_bytes > most_bytes(path):  # one picture of many rows
            raise ValueError(f"its pictures have more than {most_bytes(path) >> 20:,} MiB, far more than the file")
        row["image"] = {"bytes": base64.b64decode(encoded, validate=True), "path": None} if encoded else None
    return [{name: cell or None for name, cell in row.items()} for row in rows]


def _column(cells: list[Any]) -> Any:
    """The cells as a column; of several types as text, what is nested as JSON, and beside a list as one of it alone."""
    import pyarrow

    with suppress(pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError):
        return pyarrow.array(cells)
    lists = [cell if cell is None or isinstance(cell, list) else [cell] for cell in cells]
    of_plain = not any(isinstance(part, dict) for parts in lists for part in parts or ())
    if of_plain and any(isinstance(cell, list) for cell in cells):
        return pyarrow.array([parts and [_text(part) for part in parts] for parts in lists])
    return pyarrow.array([_text(cell) for cell in cells])


def _text(cell: Any) -> str | None:
    return cell if cell is None or isinstance(cell, str) else json.dumps(cell)


def _opened(path: Path) -> Any:
    _require_counted(path)
    return _footer(path)


def _require_counted(path: Path) -> None:
    """Raise where a process of limited memory finds more bytes in a file's rows than there may be."""
    path = path.absolute()  # its process may have begun in another folder
    [num_bytes] = sha256_of([path], of=_counted, memory="tables.json")
    if int(num_bytes) > most_bytes(path):
        raise InvalidFileError(
            f"{path} is not read.",
            why=f"Its rows have more than {most_bytes(path) >> 20:,} MiB, far more than the file.",
            next_step="tell the owner of the data set, or write it again without its repeated values",
        )


def _counted(path: Path) -> str:
    if multiprocessing.current_process().daemon:  # which may have no processes of its own
        return _count(path)
    [result] = counters.call_each([(_count_safely, (path,))])
    if isinstance(result, Failure | Exception):
        raise ValueError(str(result) if isinstance(result, Exception) else result.why)
    return str(result)


def _count_safely(path: Path) -> str | Exception:
    """What a worker does: errors are results, since they say what is wrong with the file."""
    allow_memory(COUNTING_BYTES + (TEXT_RATIO * path.stat().st_size if kind_of(path) in TEXT_SUFFIXES else 0))
    try:
        return _count(path)
    except MemoryError:
        raise
    except Exception as error:
        return ValueError(reason_of(error))


def _count(path: Path) -> str:
    """How many bytes the rows of a file have; more than it may have are not counted further."""
    if kind_of(path) in TEXT_SUFFIXES:
        return str(_text_table(path).nbytes)
    import pyarrow

    file, num_bytes, before = _footer(path), 0, pyarrow.total_allocated_bytes()
    if ROW_BYTES * file.metadata.num_rows > most_bytes(path):  # it says so itself
        return str(ROW_BYTES * file.metadata.num_rows)
    for group in range(file.num_row_groups):
        for batch in file.iter_batches(STREAM_ROWS, row_groups=[group], use_threads=False):
            num_bytes += ROW_BYTES * batch.num_rows + sum(_plain(column).nbytes for column in batch.columns)
            held = pyarrow.total_allocated_bytes() - before  # also values of dictionaries that no row has
            if max(num_bytes, held) > most_bytes(path):
                return str(max(num_bytes, held))
    return str(num_bytes)


def _plain(column: Any) -> Any:
    """The column as its rows will have it, each value as often as it is there."""
    import pyarrow

    return column.dictionary_decode() if pyarrow.types.is_dictionary(column.type) else column


counters = WorkerPool(
    work="reading", seconds=COUNTING_SECONDS, patience=4, memory_bytes=COUNTING_BYTES, preloaded=("pyarrow.parquet",)
)


def _footer(path: Path) -> Any:
    import pyarrow.parquet

    file = pyarrow.parquet.ParquetFile(path)  # `read_table` would load pandas first
    _require_columns(path, len(file.schema_arrow))
    return file


def _require_columns(path: Path, num_columns: int) -> None:
    if num_columns > MAX_COLUMNS:
        raise InvalidFileError(
            f"{path} has {num_columns} columns.",
            why=f"No dataset has more than {MAX_COLUMNS}.",
            next_step="keep the columns of the published dataset",
        )


def column_names(path: Path) -> list[str]:
    """The columns of a Parquet file; no row is read."""
    with reading(path):
        return list(_footer(path).schema_arrow.names)


def num_rows(path: Path) -> int:
    """How many rows a Parquet file has; none of them is read."""
    with reading(path):
        return int(_footer(path).metadata.num_rows)


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
