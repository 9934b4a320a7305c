"""Lists, sets and dicts compared with their like: equality, precision, Jaccard index, prefixes, key by key."""

from __future__ import annotations

import re
from collections.abc import Callable, Set
from typing import Any

from atrl_bench.grading.scorers.mega.literals import as_text, find_literals, frozen, try_literal

Compare = Callable[[Any, Any], float]
_NONE = object()
_ENCLOSED = re.compile(r"\((.*)\)|\[(.*)\]|\{(.*)\}", re.S)


def items_of(value: Any) -> list[Any]:
    """Return the items of a list, or of a text that writes one: `[1, 2]`, `(a, b)`, `a, b`. Never fails."""
    if isinstance(value, dict):
        return list(frozen(value))
    if isinstance(value, (list, tuple, Set)):
        return [frozen(item) for item in value]
    if not isinstance(value, str):
        return [as_text(value) if value is None else value]
    text = value.strip()
    if not text:
        return []
    for spelled in (text, f"({text},)"):
        read = try_literal(spelled, _NONE)
        if read is not _NONE:
            return [read] if isinstance(read, str) else items_of(read)
    if text[0] in "([{":
        enclosed = _ENCLOSED.fullmatch(text)
        if enclosed is None:
            return []
        text = next(inner for inner in enclosed.groups() if inner is not None)
    return [item.strip() for item in text.split(",")]


def dict_of(value: Any) -> dict[Any, Any] | None:
    """Return a dict, or the last one that a text writes; None where there is none."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, str):
        return None
    read = try_literal(value.strip())
    if isinstance(read, dict):
        return read
    return next((literal for literal in reversed(find_literals(value)) if isinstance(literal, dict)), None)


def _folded(item: Any) -> Any:
    """Return an item without case; texts inside a tuple also without blanks and joining signs, as officially."""
    if isinstance(item, tuple):
        return tuple(re.sub(r"[ \-\n\t_.]", "", as_text(part)).lower() for part in item)
    return as_text(item).lower()


def _share(part: Set[Any], whole: Set[Any]) -> float:
    return len(part) / len(whole) if whole else 1.0


# Sets -------------------------------------------------------------------------------------------------------------


def set_equality(answer: Any, gold: Any) -> float:
    """Return 1 for the same items in any order."""
    return float(set(items_of(answer)) == set(items_of(gold)))


def set_equality_ignoring_case(answer: Any, gold: Any) -> float:
    """Return 1 for the same items in any order and case."""
    return float({as_text(item).upper() for item in items_of(answer)} == {as_text(i).upper() for i in items_of(gold)})


def set_equality_of_lines(answer: Any, gold: Any) -> float:
    """Return 1 for the same lines in any order and case."""
    sides = [set(as_text(side).replace("\\n", "\n").lower().split("\n")) for side in (answer, gold)]
    return float(sides[0] == sides[1])


def set_equality_of_parts(answer: Any, gold: Any) -> float:
    """Return 1 for the same parts between commas, in any order and case."""
    sides = [{item.lower() if isinstance(item, str) else item for item in items_of(side)} for side in (answer, gold)]
    return float(sides[0] == sides[1])


def set_precision(answer: Any, gold: Any) -> float:
    """Return the share of the answer's items that the gold has. Officially an empty answer gets 1; here it gets 0."""
    predicted, right = set(items_of(answer)), set(items_of(gold))
    return _share(predicted & right, predicted) if predicted or not right else 0.0


def jaccard(answer: Any, gold: Any) -> float:
    """Return |answer and gold| / |answer or gold|."""
    predicted, right = set(items_of(answer)), set(items_of(gold))
    return _share(predicted & right, predicted | right)


def jaccard_ignoring_case(answer: Any, gold: Any) -> float:
    """Return the Jaccard index of the items without case."""
    predicted, right = ({_folded(item) for item in items_of(side)} for side in (answer, gold))
    return _share(predicted & right, predicted | right)


def jaccard_of_chess_moves(answer: Any, gold: Any) -> float:
    """Return the Jaccard index of the moves, whether or not they say check, mate or well played.

    The official script takes off one `!` and one `#`; its description also promises the `+`.
    """
    predicted, right = ({as_text(item).strip().rstrip("+#!?") for item in items_of(side)} for side in (answer, gold))
    return _share(predicted & right, predicted | right)


# Sequences --------------------------------------------------------------------------------------------------------


def sequence_equality(answer: Any, gold: Any) -> float:
    """Return 1 for the same items in the same order."""
    return float(items_of(answer) == items_of(gold))


def sequence_equality_ignoring_case(answer: Any, gold: Any) -> float:
    """Return 1 for the same items in the same order, in any case."""
    return float([as_text(i).lower() for i in items_of(answer)] == [as_text(i).lower() for i in items_of(gold)])


def sequence_accuracy_ignoring_case(answer: Any, gold: Any) -> float:
    """Return the share of places with the right item; 0 for a list of another length."""
    predicted, right = items_of(answer), items_of(gold)
    if len(predicted) != len(right) or not right:
        return float(predicted == right)
    return sum(as_text(a).lower() == as_text(b).lower() for a, b in zip(predicted, right, strict=True)) / len(right)


def common_prefix(answer: Any, gold: Any) -> float:
    """Return how much of the gold list the answer has right before its first mistake."""
    predicted, right = items_of(answer), items_of(gold)
    if not right:
        return float(not predicted)
    same = 0
    for a, b in zip(predicted, right, strict=False):
        if a != b:
            break
        same += 1
    return same / len(right)


# Dicts ------------------------------------------------------------------------------------------------------------


def dict_equality(answer: Any, gold: Any) -> float:
    """Return 1 for equal dicts, whether their inner lists are written as lists or tuples."""
    predicted, right = dict_of(answer), dict_of(gold)
    return float(predicted is not None and right is not None and frozen(predicted) == frozen(right))


def dict_precision(compare: Compare) -> Compare:
    """Return the metric "how well the answer's entries agree with the gold, over the answer's keys"."""
    return _by_key(compare, lambda predicted, right: list(predicted))


def dict_recall(compare: Compare) -> Compare:
    """Return the metric "how well the answer's entries agree with the gold, over the gold's keys"."""
    return _by_key(compare, lambda predicted, right: list(right))


def dict_jaccard(compare: Compare) -> Compare:
    """Return the metric "how well the answer's entries agree with the gold, over the keys of both"."""
    return _by_key(compare, lambda predicted, right: [*right, *(key for key in predicted if key not in right)])


def _by_key(compare: Compare, keys_of: Callable[[dict[Any, Any], dict[Any, Any]], list[Any]]) -> Compare:
    def score(answer: Any, gold: Any) -> float:
        predicted, right = dict_of(answer), dict_of(gold)
        if predicted is None or right is None:
            return 0.0
        keys = keys_of(predicted, right)
        there = [key for key in keys if key in predicted and key in right]  # a key of one side only is worth nothing
        return (
            sum(compare(predicted[key], right[key]) for key in there) / len(keys) if keys else float(predicted == right)
        )

    return score
