"""Reading YAML: ten times as fast where PyYAML was built with libyaml, with PyYAML's own words where a text is none."""

from __future__ import annotations

from functools import cache
from typing import Any

import yaml

MAX_CHARS = 10_000  # libyaml's half of the reader recurses in C: a file of nothing but brackets would end the process


def read_yaml(text: str, tag: str | None = None) -> Any:
    """Return what a YAML text says; a value with `tag` before it, which is none of YAML's own, is both as text."""
    if len(text) <= MAX_CHARS and yaml.__with_libyaml__:
        try:
            return yaml.load(text, _loader(yaml.CSafeLoader, tag))
        except yaml.YAMLError:  # told better below, with the line itself
            pass
    return yaml.load(text, _loader(yaml.SafeLoader, tag))


@cache
def _loader(base: type[Any], tag: str | None) -> type[Any]:
    loader = type(base.__name__, (base,), {})
    if tag is not None:
        loader.add_constructor(tag, lambda _, node: f"{tag} {node.value}")  # type: ignore[attr-defined]
    return loader
