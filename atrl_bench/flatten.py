"""Nested settings as one level: `{"credit": {"rule": "atrl"}}` is `credit.rule` = `atrl`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values by their dotted names, in their order."""
    flattened: dict[str, Any] = {}
    for name, value in values.items():
        flattened |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return flattened


def flat_text(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the values as a page prints them."""
    for name, value in flat(values).items():
        yield name, "none" if value is None else str(value)
