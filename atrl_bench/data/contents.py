"""What a table holds, whoever wrote it: for tables that each machine makes for itself.

The bytes of a Parquet file depend on the version of its writer. A table that was made here says so in its schema, has
its images inside, and is named by its rows.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from atrl_bench.data.tables import parquet_schema, read_parquet, reading

MARK = b"atrl_bench.made"


def mark_as_made(path: Path) -> None:
    """Rewrite a table with the images that it names as files inside it, and with the mark of one that was made here."""
    import pyarrow.parquet as pq

    table = read_parquet(path)
    for index, field in enumerate(table.schema):
        if _is_image(field.type):
            cells = [_embedded(cell) for cell in table[field.name].to_pylist()]
            table = table.set_column(index, field, [_array(cells, field.type)])
    temporary = path.with_suffix(".new")
    pq.write_table(table.replace_schema_metadata({**(table.schema.metadata or {}), MARK: b"1"}), temporary)
    os.replace(temporary, path)


def was_made(path: Path) -> bool:
    """Return whether this table was made here from its ingredients."""
    return MARK in (parquet_schema(path).metadata or {})


def rows_digest(path: Path) -> str:
    """Return the SHA-256 of a table's rows: its columns by name, images by their bytes."""
    import pyarrow.parquet as pq

    digest = hashlib.sha256()
    with reading(path):
        for batch in pq.ParquetFile(path).iter_batches(256):
            for row in batch.to_pylist():
                digest.update(json.dumps(row, sort_keys=True, default=_bytes_digest).encode() + b"\n")
    return digest.hexdigest()


def _bytes_digest(value: Any) -> str:
    return hashlib.sha256(value).hexdigest()


def _is_image(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_struct(kind) and {part.name for part in kind} == {"bytes", "path"}


def _embedded(cell: dict[str, Any] | None) -> dict[str, Any] | None:
    if cell is None:
        return None
    return {"bytes": cell["bytes"] or Path(cell["path"]).read_bytes(), "path": Path(cell["path"] or "").name or None}


def _array(cells: list[dict[str, Any] | None], kind: Any) -> Any:
    import pyarrow as pa

    return pa.array(cells, kind)
