"""Lists, sets and dicts compared with their like: equality, precision, Jaccard index, prefixes, key by key."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence, Set
from functools import reduce
from itertools import takewhile
from typing import Any

from atrl_bench.grading.scorers.mega.literals import as_text, find_literals, frozen, try_literal
from atrl_bench.grading.scorers.mega.metric import Compare, comparing

_NONE = object()
_ENCLOSED = re.compile(r"\((.*)\)|\[(.*)\]|\{(.*)\}", re.S)


def items_of(value: Any) -> list[Any]:
    """The items of a list, or of a text that writes one: `[1, 2]`, `(a, b)`, `a, b`. Never fails."""
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


def lines_of(value: Any) -> list[str]:
    """The lines of a text without case; `\\n` breaks a line, too."""
    return as_text(value).replace("\\n", "\n").lower().split("\n")


def dict_of(value: Any) -> dict[Any, Any] | None:
    """A dict, or the last one that a text writes; None where there is none."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, str):
        return None
    read = try_literal(value.strip())
    if isinstance(read, dict):
        return read
    return next((literal for literal in reversed(find_literals(value)) if isinstance(literal, dict)), None)


# Items, as they are compared ---------------------------------------------------------------------------------------


def folded(item: Any) -> Any:
    """An item without case; texts inside a tuple also without blanks and joining signs, as officially."""
    if isinstance(item, tuple):
        return tuple(re.sub(r"[ \-\n\t_.]", "", as_text(part)).lower() for part in item)
    return as_text(item).lower()


def chess_move(item: Any) -> str:
    """A move, whether or not it says check, mate or well played.

    The official script takes off one `!` and one `#`; its description also promises the `+`.
    """
    return as_text(item).strip().rstrip("+#!?")


# Metrics ----------------------------------------------------------------------------------------------------------


def over_items(compare: Callable[[list[Any], list[Any]], float], *steps: Callable[[Any], Any]) -> Compare:
    return comparing(
        lambda side: [reduce(lambda item, step: step(item), steps, item) for item in items_of(side)], compare
    )


def same_items(predicted: Iterable[Any], right: Iterable[Any]) -> bool:
    return set(predicted) == set(right)


def precision(predicted: Iterable[Any], right: Iterable[Any]) -> float:
    """The share of the answer's items that the gold has. Officially an empty answer gets 1; here it gets 0."""
    answers, golds = set(predicted), set(right)
    return len(answers & golds) / len(answers) if answers else float(not golds)


def jaccard(predicted: Iterable[Any], right: Iterable[Any]) -> float:
    answers, golds = set(predicted), set(right)
    return len(answers & golds) / len(answers | golds) if answers or golds else 1.0


def accuracy(predicted: Sequence[Any], right: Sequence[Any]) -> float:
    """The share of places with the right item; 0 for a list of another length."""
    if len(predicted) != len(right) or not right:
        return float(predicted == right)
    return sum(a == b for a, b in zip(predicted, right, strict=True)) / len(right)


def common_prefix(predicted: Sequence[Any], right: Sequence[Any]) -> float:
    """How much of the gold list the answer has right before its first mistake."""
    same = list(takewhile(lambda pair: pair[0] == pair[1], zip(predicted, right, strict=False)))
    return len(same) / len(right) if right else float(not predicted)


def by_key(keys_of: Callable[[dict[Any, Any], dict[Any, Any]], Iterable[Any]], compare: Compare) -> Compare:
    """The metric "how well answer and gold agree in each of these keys of the two dicts, on the mean"."""

    def mean(predicted: dict[Any, Any], right: dict[Any, Any]) -> float:
        keys = list(keys_of(predicted, right))
        there = [key for key in keys if key in predicted and key in right]  # a key of one side only is worth nothing
        agreement = sum(compare(predicted[key], right[key]) for key in there)
        return agreement / len(keys) if keys else float(predicted == right)

    return comparing(dict_of, mean)
