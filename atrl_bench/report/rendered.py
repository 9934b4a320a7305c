"""What a folder was last rendered to: its tables, read back as they were, and the pages that would come out the same.

The front page shows what there is to open: pages of some rows, of some seeds, of a store that has grown since. Building
these tables again would read every answer of the folder, for a page that is written after each of them.

The store keeps a record of what each page was made from. It names contents: the versions of the cells behind the page,
everything else that it shows, and the code that renders it. A page is left alone only while its files are, byte by
byte, those that were written from the same.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from atrl_bench.digests import sha256
from atrl_bench.experiments.definition import file_stem
from atrl_bench.report.table_model import Table
from atrl_bench.resources import PACKAGE, folder
from atrl_bench.results.store import Store

SUFFIXES = (".py", ".j2", ".css", ".js", ".json", ".mplstyle", ".yaml", ".csv")


def rendered_tables(reports: Path) -> dict[str, Table]:
    """The tables that were rendered into this folder, by name.

    A damaged record is as good as none: rendering that table again is what helps, and no other table waits for it.
    """
    tables = {}
    for path in sorted(reports.glob("*.json")):
        try:
            table = table_from_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if file_stem(table.id) == path.stem:
            tables[table.id] = table
    return tables


def table_from_json(text: str) -> Table:
    # Numbers that were printed keep their digits.
    return _adapter().validate_python(json.loads(text, parse_float=Decimal))


@cache
def _adapter() -> TypeAdapter[Table]:
    return TypeAdapter(Table)


@dataclass(frozen=True)
class PageRecord:
    """What the store remembers of the page `name`, to be made from what has this `key`."""

    store: Store
    name: str
    key: str

    def unchanged(self, folder: Path) -> list[dict[str, Any]] | None:
        stored = self.store.page(self.name)
        if stored is None or stored[0] != self.key:
            return None
        files = json.loads(stored[1])
        if any(item.pop("sha256") != _digest(folder / item["name"]) for item in files):
            return None
        return list(files)

    def keep(self, folder: Path, files: Iterable[Mapping[str, Any]]) -> None:
        items = [{**file, "sha256": _digest(folder / file["name"])} for file in files]
        self.store.keep_page(self.name, self.key, json.dumps(items))


def page_key(*contents: object) -> str:
    """What names these contents as this installation would render them."""
    return hashlib.sha256(repr((_code(), *contents)).encode("utf-8", "backslashreplace")).hexdigest()


@cache
def _code() -> str:
    digest = hashlib.sha256()
    for root in map(str, (PACKAGE, folder("tasks"), folder("recipes"), folder("reports"))):
        for inside, _, names in sorted(os.walk(root)):  # several times as fast as `Path.rglob`
            for name in sorted(name for name in names if name.endswith(SUFFIXES)):
                with open(f"{inside}/{name}", "rb") as file:
                    digest.update(f"{inside[len(root) :]}/{name}\0".encode() + file.read())
    return digest.hexdigest()


def _digest(path: Path) -> str | None:
    return sha256(path) if path.is_file() else None
