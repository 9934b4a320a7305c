"""The tables of a folder as they were last rendered: the record beside each page, read back as the `Table` it was.

The front page shows what there is to open: pages of some rows, of some seeds, of a store that has grown since. Building
these tables again would read every answer of the folder, for a page that is written after each of them.
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

from atrl_bench.report.table_model import Table
from atrl_bench.results.typed import typed


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
    table = typed(Table, json.loads(text, parse_float=Decimal))
    assert isinstance(table, Table)
    return table
