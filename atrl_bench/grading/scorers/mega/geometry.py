"""Boxes and points, in shares of the picture's width and height."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from atrl_bench.grading.scorers.mega.literals import try_literal
from atrl_bench.grading.scorers.mega.numeric import number_of

KEYPOINT_DECAY = 10.0  # exp(-10 d / sqrt 2): a keypoint a tenth of the diagonal away is worth 0.37
Box = tuple[float, float, float, float]


def _points(value: Any, size: int) -> list[tuple[float, ...]]:
    """Return the points of so many coordinates in a list or in a text that writes one; what is none is left out."""
    if isinstance(value, str):
        value = try_literal(value.strip(), try_literal(f"[{value}]"))
    if not isinstance(value, (list, tuple)):
        return []
    if len(value) == size and all(isinstance(item, (int, float)) for item in value):
        value = [value]
    points = []
    for item in value:
        numbers = [number_of(part) for part in item] if isinstance(item, (list, tuple)) and len(item) == size else []
        finite = [number for number in numbers if number is not None]
        if len(finite) == size:
            points.append(tuple(finite))
    return points


def _tagged(value: Any, tag: str, size: int) -> list[tuple[float, ...]]:
    """Return the points written as `<tag>x, y</tag>`, or as plain lists."""
    if not isinstance(value, str):
        return _points(value, size)
    return [point for inner in re.findall(rf"<{tag}>([^<]*)</{tag}>", value) for point in _points(f"[{inner}]", size)]


def overlap(left: tuple[float, ...], right: tuple[float, ...]) -> float:
    """Return the intersection of two boxes over their union; a box with swapped corners is empty."""
    width = min(left[2], right[2]) - max(left[0], right[0])
    height = min(left[3], right[3]) - max(left[1], right[1])
    both = max(0.0, width) * max(0.0, height)
    union = sum(max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1]) for box in (left, right)) - both
    return both / union if union > 0 and math.isfinite(union) else 0.0


def _best_overlaps(predicted: list[tuple[float, ...]], right: list[tuple[float, ...]]) -> float:
    if not predicted or not right:
        return 0.0
    return sum(max(overlap(box, other) for other in right) for box in predicted) / len(predicted)


def boxes(answer: Any, gold: Any) -> float:
    """Return the mean over the answer's boxes of the best overlap with a gold box; a missing box costs nothing."""
    return _best_overlaps(_points(answer, 4), _points(gold, 4))


def one_box(answer: Any, gold: Any) -> float:
    """Return the overlap of the answer's only box with the gold box."""
    predicted, right = _points(answer, 4), _points(gold, 4)
    return overlap(predicted[0], right[0]) if len(predicted) == len(right) == 1 else 0.0


def box_sequence(answer: Any, gold: Any) -> float:
    """Return the mean overlap, place by place; 0 for another number of boxes."""
    predicted, right = _points(answer, 4), _points(gold, 4)
    if len(predicted) != len(right) or not right:
        return 0.0
    return sum(map(overlap, predicted, right)) / len(right)


def tagged_box(answer: Any, gold: Any) -> float:
    """Return the mean best overlap of boxes written as `<box>x1, y1, x2, y2</box>`."""
    return _best_overlaps(_tagged(answer, "box", 4), _tagged(gold, "box", 4))


def tagged_point_distance(answer: Any, gold: Any) -> float:
    """Return max(0, 1 - distance) of two points written as `<point>x, y</point>`, both inside the picture."""
    predicted, right = _tagged(answer, "point", 2), _tagged(gold, "point", 2)
    if len(predicted) != 1 or len(right) != 1 or not all(0 <= part <= 1 for part in (*predicted[0], *right[0])):
        return 0.0
    return max(0.0, 1.0 - math.dist(predicted[0], right[0]))


def tagged_point_in_box(answer: Any, context: Mapping[str, Any]) -> float:
    """Return 1 when the point lies in one of the row's `bounding_boxes`."""
    predicted = _tagged(answer, "point", 2)
    if len(predicted) != 1:
        return 0.0
    x, y = predicted[0]
    right = [box for written in context["bounding_boxes"] for box in _points(written, 4)]
    return float(any(left <= x <= to and top <= y <= bottom for left, top, to, bottom in right))


def keypoints(answer: Any, gold: Any) -> float:
    """Return the mean of exp(-10 d / sqrt 2) over the points, place by place; 0 for another number of points."""
    predicted, right = _points(answer, 2), _points(gold, 2)
    if len(predicted) != len(right) or not right:
        return 0.0
    decay = KEYPOINT_DECAY / math.sqrt(2)
    return sum(math.exp(-decay * math.dist(a, b)) for a, b in zip(predicted, right, strict=True)) / len(right)
