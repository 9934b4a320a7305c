"""The worlds `perception` and `reasoning`: chatty chains over four handwritten digits, the part of each token known."""

from __future__ import annotations

from importlib import import_module
from typing import Any

DATASETS = ("code_words", "code_words_test")

# Looked up on first use: they import what takes long to load.
_HOMES = {"write_code_words": "datasets", "rebuild_base": "base"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
