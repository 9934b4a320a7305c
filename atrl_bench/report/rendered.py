"""The tables of a folder as they were last rendered: the record beside each page, read back as the `Table` it was.

The front page shows what there is to open: pages of some rows, of some seeds, of a store that has grown since. Building
these tables again would read every answer of the folder, for a page that is written after each of them.
"""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass
from decimal import Decimal
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from atrl_bench.report.table_model import Table


def rendered_tables(reports: Path) -> dict[str, Table]:
    """Return the tables that were rendered into this folder, by name.

    A damaged record is as good as none: rendering that table again is what helps, and no other table waits for it.
    """
    tables = {}
    for path in sorted(reports.glob("*.json")):
        try:
            table = table_from_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, TypeError, KeyError):
            continue
        if table.id == path.stem:
            tables[table.id] = table
    return tables


def table_from_json(text: str) -> Table:
    """Return the table that `render_json` wrote."""
    table = _typed(Table, json.loads(text))
    assert isinstance(table, Table)
    return table


def _typed(kind: Any, value: Any) -> Any:
    choices = [choice for choice in get_args(kind) if choice is not NoneType]
    if value is None:
        return math.nan if kind is float else None  # JSON has no word for "not a number"
    if get_origin(kind) is tuple:
        kinds = [choices[0]] * len(value) if choices[-1] is ... else choices
        return tuple(_typed(of_item, item) for of_item, item in zip(kinds, value, strict=True))
    if NoneType in get_args(kind):
        return _typed(choices[0], value)
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        names = [field.name for field in fields(kind) if field.name in value]
        return kind(**{name: _typed(hints[name], value[name]) for name in names})  # type: ignore[operator]
    return Decimal(str(value)) if kind is Decimal else value
