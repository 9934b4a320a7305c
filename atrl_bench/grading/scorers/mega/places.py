"""Boxes and points, in shares of the picture's width and height; and places on the Earth."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from atrl_bench.grading.scorers.mega.literals import try_literal
from atrl_bench.grading.scorers.mega.metric import CannotScoreError, comparing
from atrl_bench.grading.scorers.mega.numeric import all_numbers
from atrl_bench.grading.scorers.mega.sequences import dict_of
from atrl_bench.grading.scorers.mega.texts import without_accents

KEYPOINT_DECAY = 10.0  # exp(-10 d / sqrt 2): a keypoint a tenth of the diagonal away is worth 0.37
ADDRESS = ("country", "province_or_state", "municipality")
Point = tuple[float, ...]
Points = list[Point]


def points_of(size: int, value: Any) -> Points:
    """The points of so many coordinates in a list or in a text that writes one; what is none is left out."""
    if isinstance(value, str):
        value = try_literal(value.strip(), try_literal(f"[{value}]"))
    if not isinstance(value, (list, tuple)):
        return []
    if len(value) == size and all(isinstance(item, (int, float)) for item in value):
        value = [value]
    points = [item for item in value if isinstance(item, (list, tuple)) and len(item) == size]
    return [tuple(numbers) for point in points if (numbers := all_numbers(point)) is not None]


def tagged(tag: str, size: int, value: Any) -> Points:
    """The boxes or points written as `<tag>x, y</tag>`, or as plain lists."""
    if not isinstance(value, str):
        return points_of(size, value)
    written = re.findall(rf"<{tag}>([^<]*)</{tag}>", value)
    return [point for inner in written for point in points_of(size, f"[{inner}]")]


def overlap(left: Point, right: Point) -> float:
    """The intersection of two boxes over their union; a box with swapped corners is empty."""
    width = min(left[2], right[2]) - max(left[0], right[0])
    height = min(left[3], right[3]) - max(left[1], right[1])
    both = max(0.0, width) * max(0.0, height)
    union = sum(max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1]) for box in (left, right)) - both
    return both / union if union > 0 and math.isfinite(union) else 0.0


def best_overlaps(predicted: Points, right: Points) -> float:
    """The mean over the answer's boxes of the best overlap with a gold box; a missing box costs nothing."""
    if not predicted or not right:
        return 0.0
    return sum(max(overlap(box, other) for other in right) for box in predicted) / len(predicted)


def one_box(predicted: Points, right: Points) -> float:
    return overlap(predicted[0], right[0]) if len(predicted) == len(right) == 1 else 0.0


def one_by_one(likeness: Callable[[Point, Point], float], predicted: Points, right: Points) -> float:
    """The mean likeness to the gold, place by place; 0 for another number of boxes or points."""
    return sum(map(likeness, predicted, right)) / len(right) if len(predicted) == len(right) and right else 0.0


def near(left: Point, right: Point) -> float:
    return math.exp(-KEYPOINT_DECAY / math.sqrt(2) * math.dist(left, right))


def point_distance(predicted: Points, right: Points) -> float:
    """max(0, 1 - distance) of two points, both inside the picture."""
    if len(predicted) != 1 or len(right) != 1 or not all(0 <= part <= 1 for part in (*predicted[0], *right[0])):
        return 0.0
    return max(0.0, 1.0 - math.dist(predicted[0], right[0]))


def tagged_point_in_box(answer: Any, context: Mapping[str, Any]) -> float:
    predicted = tagged("point", 2, answer)
    if len(predicted) != 1:
        return 0.0
    x, y = predicted[0]
    right = [box for written in context["bounding_boxes"] for box in points_of(4, written)]
    return float(any(left <= x <= to and top <= y <= bottom for left, top, to, bottom in right))


# On the Earth ------------------------------------------------------------------------------------------------------


def _same_place(predicted: dict[Any, Any], right: dict[Any, Any]) -> float:
    """1 for the same names, and 0 where the answer leaves a name out.

    Officially exp(-distance / 100 km), which needs a gazetteer: the official script asks a public geocoding service.
    """
    if not all(_name(predicted, part) for part in ADDRESS):
        return 0.0
    if all(_name(predicted, part) == _name(right, part) for part in ADDRESS):
        return 1.0
    raise CannotScoreError("the distance between two named places needs a gazetteer")


same_place = comparing(dict_of, _same_place)


def _name(names: dict[Any, Any], part: str) -> str:
    value = names.get(part)
    return " ".join(without_accents(value).casefold().split()) if isinstance(value, str) else ""
