"""What a metric of a field is: a function of the answer and the gold, most often of both read in the same way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Read = TypeVar("Read")
FieldMetric = Callable[[Any, Any], float | None]  # (answer, gold) -> score, or None for a field that does not count
Compare = Callable[[Any, Any], float]


class CannotScoreError(Exception):
    """The metric needs something that is not here; the answer counts as "judge failed", not as wrong, never guessed."""


def comparing(read: Callable[[Any], Read | None], compare: Callable[[Read, Read], float]) -> Compare:
    """The metric that compares what `read` makes of answer and gold; nothing to be read is worth nothing."""

    def metric(answer: Any, gold: Any) -> float:
        predicted, right = read(answer), read(gold)
        return 0.0 if predicted is None or right is None else float(compare(predicted, right))

    return metric
