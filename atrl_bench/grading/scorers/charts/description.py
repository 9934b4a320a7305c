"""What a chart shows, as the harness writes it down inside the sandbox."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, NamedTuple

MAX_BYTES = 1 << 20
MAX_ITEMS = 4096
MAX_COLOURS = 64  # pairing them takes the third power of their number


class InvalidDescriptionError(ValueError):
    """Something else than a description; a program can write what it likes into the harness's file."""


class Description(NamedTuple):
    """A chart: what is written in it, where its axes are, what they show and in which colours."""

    text: Counter[str]
    layout: Counter[str]
    type: Counter[str]
    colour: tuple[str, ...]  # `#rrggbb`, or the name of a colour map, each once


def read_description(content: bytes) -> Description:
    if not content:
        raise InvalidDescriptionError("it draws nothing")
    if len(content) > MAX_BYTES:
        raise InvalidDescriptionError("its description is too long")
    try:
        parts: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidDescriptionError("its description is no JSON") from error
    if not isinstance(parts, dict) or set(parts) != set(Description._fields):
        raise InvalidDescriptionError("its description has other parts")
    for items in parts.values():
        if not isinstance(items, list) or len(items) > MAX_ITEMS or not all(isinstance(item, str) for item in items):
            raise InvalidDescriptionError("its description holds something else than texts")
    colours = list(dict.fromkeys(parts["colour"]))[:MAX_COLOURS]
    if not all(re.fullmatch(r"#[0-9a-f]{6}|map:[\w.]{1,80}", colour) for colour in colours):
        raise InvalidDescriptionError("its description has colours that are none")
    return Description(Counter(parts["text"]), Counter(parts["layout"]), Counter(parts["type"]), tuple(colours))
