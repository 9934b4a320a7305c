"""What a page was last made from, kept in the store: a page that would come out the same is not rendered again.

The record names contents: the versions of the cells behind the page, everything else that it shows, and the code that
renders it. A page is left alone only while its files are, byte by byte, those that were written from the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from atrl_bench.resources import PACKAGE, folder
from atrl_bench.results.store import Store

SUFFIXES = (".py", ".j2", ".css", ".js", ".yaml", ".csv")


@dataclass(frozen=True)
class PageRecord:
    """What the store remembers of the page `name`, to be made from what has this `key`."""

    store: Store
    name: str
    key: str

    def unchanged(self, folder: Path) -> list[dict[str, Any]] | None:
        """Return what was kept with the page; None where it was made from something else or its files have changed."""
        stored = self.store.page(self.name)
        if stored is None or stored[0] != self.key:
            return None
        files = json.loads(stored[1])
        if any(item.pop("sha256") != _digest(folder / item["name"]) for item in files):
            return None
        return list(files)

    def keep(self, folder: Path, files: Iterable[Mapping[str, Any]]) -> None:
        """Remember the page, whose files were written into `folder` under their `name`."""
        items = [{**file, "sha256": _digest(folder / file["name"])} for file in files]
        self.store.keep_page(self.name, self.key, json.dumps(items))


def page_key(*contents: object) -> str:
    """Return what names these contents as this installation would render them."""
    return hashlib.sha256(repr((_code(), *contents)).encode("utf-8", "backslashreplace")).hexdigest()


@cache
def _code() -> str:
    """Return what names all code, templates, definitions and printed numbers that this installation has."""
    digest = hashlib.sha256()
    for root in (PACKAGE, folder("tasks"), folder("recipes"), folder("reports")):
        for path in sorted(path for path in root.rglob("*") if path.suffix in SUFFIXES):
            digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _digest(path: Path) -> str | None:
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
