"""Numbers and formulas: within one percent, by relative difference, by distance, as formulas."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from atrl_bench.grading.answer_parser import Bracketed, Quantity, parse
from atrl_bench.grading.scorers.mega.literals import as_text, try_literal
from atrl_bench.grading.scorers.mega.metric import comparing
from atrl_bench.grading.scorers.mega.texts import simple
from atrl_bench.grading.sympy_worker import compare_formulas

CLOSE = 0.01  # relative error that passes in `general_match`
MAX_ERROR = 0.1  # from which on `normalized_rmse` gives nothing
MAX_ANGLE_ERROR = 10.0
MAX_FORMULA_CHARS = 2000


def number_of(value: Any) -> float | None:
    """A value as a finite number, or None: JSON numbers, `1e3`, and whatever our grammar reads as a quantity."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        literal = try_literal(value.strip())
        if isinstance(literal, (int, float)) and not isinstance(literal, bool):
            return _finite(literal)
        value = parse(value).value
    if isinstance(value, Quantity):
        return _finite(value, 100.0 if value.percent else 1.0)
    return _finite(value) if isinstance(value, (int, float)) else None


def _finite(value: Any, divisor: float = 1.0) -> float | None:
    try:
        number = float(value) / divisor
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def general_match(answer: Any, gold: Any) -> float:
    """1 for a number within one percent of the gold, or the same numbers in any order, or the same text.

    The official script evaluates the answer as a program for that; here the answer parser reads it.
    """
    return simple(answer, gold) or _close_numbers(answer, gold)


def _all_close(predicted: list[float], right: list[float]) -> bool:
    pairs = zip(sorted(predicted), sorted(right), strict=False)
    return len(predicted) == len(right) and all(abs(a - b) <= CLOSE * abs(b) for a, b in pairs)


_BOX = re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}")


def unboxed(value: Any) -> str:
    box = _BOX.search(as_text(value))
    return box[1] if box else as_text(value)


boxed_match = comparing(unboxed, general_match)


def _numbers(value: Any) -> list[float] | None:
    number = number_of(value)
    if number is not None:
        return [number]
    if isinstance(value, str):
        several = parse(value).value
        value = several.items if isinstance(several, Bracketed) else None
    return all_numbers(value) or None if isinstance(value, (list, tuple)) else None


def all_numbers(items: Iterable[Any]) -> list[float] | None:
    numbers = [number_of(item) for item in items]
    return [number for number in numbers if number is not None] if None not in numbers else None


_close_numbers = comparing(_numbers, _all_close)


def relative_difference(predicted: float, right: float) -> float:
    """max(0, 1 - |answer - gold| / |gold|); for a gold of 0 only 0 is right."""
    return max(0.0, 1.0 - abs(predicted - right) / abs(right)) if right else float(predicted == 0)


def positive_whole_number(answer: Any, gold: Any) -> float | None:
    """1 for the same whole number; None, a field that does not count, where answer and gold are not positive."""
    predicted, right = number_of(answer), number_of(gold)
    if predicted is None or right is None or not predicted.is_integer():
        return 0.0
    return None if predicted <= 0 and right <= 0 else float(predicted == right)


def normalized_error(predicted: float, right: float) -> float:
    return 1.0 - min(abs(predicted - right), MAX_ERROR) / MAX_ERROR


def angle_error(predicted: list[float], right: list[float]) -> float:
    """1 - min(mean |answer - gold|, 10) / 10 over a list of angles; 0 for a list of another length."""
    if len(predicted) != len(right) or not right:
        return 0.0
    errors = [abs(a - b) for a, b in zip(predicted, right, strict=True)]
    return 1.0 - min(sum(errors) / len(errors), MAX_ANGLE_ERROR) / MAX_ANGLE_ERROR


# Formulas ---------------------------------------------------------------------------------------------------------


def formula(answer: Any, gold: Any) -> float:
    """1 for the same formula: in the same spelling, or equal for sympy. Only ever called in a worker."""
    if not isinstance(answer, str) or not isinstance(gold, str):
        return 0.0
    if simple(answer, gold):
        return 1.0
    if max(len(answer), len(gold)) > MAX_FORMULA_CHARS or not answer.strip() or not gold.strip():
        return 0.0
    return float(compare_formulas(_layout_free(gold), _layout_free(answer)) == "equal")


def formulas_in_text(answer: Any, gold: Any) -> float:
    """1 when the words agree, simply compared, and so do the formulas between dollar signs."""
    if not isinstance(answer, str) or not isinstance(gold, str):
        return 0.0
    (words, formulas), (gold_words, gold_formulas) = _parted(answer), _parted(gold)
    return float(bool(simple(words, gold_words)) and bool(formula(formulas, gold_formulas)))


_LAYOUT = re.compile(r"\\(?:begin|end)\{[^{}]*\}(?:\[[^\[\]]*\])?|\\[()\[\]]|^\s*\$+|\$+\s*$")


def _layout_free(latex: str) -> str:
    return _LAYOUT.sub("", latex).replace("\\bar", "\\overline").strip()


def _parted(text: str) -> tuple[str, str]:
    parts = re.split(r"\$([^$]*)\$", text)
    return "".join(parts[::2]).replace(",", ""), " ".join(part.strip() for part in parts[1::2]).replace(",", "")
