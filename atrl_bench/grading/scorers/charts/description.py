"""What a chart shows, as the harness writes it down inside the sandbox, and how alike two are, part by part."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

MAX_BYTES = 1 << 20
MAX_ITEMS = 4096
MAX_COLOURS = 64  # pairing them takes the third power of their number
FARTHEST = 50.0  # CIE76 distance from which two colours have nothing in common; just noticeable is 2.3


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


# Similarity, between 0 and 1 ---------------------------------------------------------------------------------------


def similarities(predicted: Description, expected: Description) -> dict[str, float]:
    return {
        "text": f1(predicted.text, expected.text),
        "layout": f1(predicted.layout, expected.layout),
        "type": f1(predicted.type, expected.type),
        "colour": colour_f1(predicted.colour, expected.colour),
    }


def f1(predicted: Counter[str], expected: Counter[str]) -> float:
    """2·common / (given + expected) of two multisets; two empty ones are alike."""
    total = predicted.total() + expected.total()
    return 2 * (predicted & expected).total() / total if total else 1.0


def colour_f1(predicted: Sequence[str], expected: Sequence[str]) -> float:
    """2·Σ similarity / (given + expected) over the best pairing of two sets of colours."""
    from scipy.optimize import linear_sum_assignment

    if not predicted or not expected:
        return float(not predicted and not expected)
    similarity_PE = np.array([[_alike(left, right) for right in expected] for left in predicted])
    pairs = linear_sum_assignment(similarity_PE, maximize=True)
    return float(2 * similarity_PE[pairs].sum() / (len(predicted) + len(expected)))


def _alike(left: str, right: str) -> float:
    """1 - distance / 50, at least 0; a colour map is like itself alone."""
    if left == right:
        return 1.0
    if not (left.startswith("#") and right.startswith("#")):
        return 0.0
    return max(0.0, 1.0 - float(np.linalg.norm(lab(left) - lab(right))) / FARTHEST)


_TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
_WHITE = _TO_XYZ.sum(axis=1)


def lab(colour: str) -> np.ndarray:
    """The CIELAB coordinates (D65) of `#rrggbb`."""
    rgb = np.array([int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    ratios = _TO_XYZ @ linear / _WHITE
    x, y, z = np.where(ratios > (6 / 29) ** 3, np.cbrt(ratios), ratios / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])
