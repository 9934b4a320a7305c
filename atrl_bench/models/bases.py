"""The base models that are shipped: that of the mini profile, and those of the worlds whose truth is known."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from atrl_bench.resources import PACKAGE

BASES = PACKAGE / "mini" / "bases"


@cache
def list_bases() -> tuple[str, ...]:
    """Return the names of all shipped bases, `mini` the first."""
    return tuple(sorted((path.name for path in BASES.iterdir()), key=lambda name: (name != "mini", name)))


def base_folder(model: str) -> Path:
    """Return where the shipped base of this name lies."""
    return BASES / model
