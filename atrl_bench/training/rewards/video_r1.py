"""What a response is worth from 0 to 1, by the sort of answer its problem has: Video-R1's rewards.

The five sorts are those of the column `problem_type` of Video-R1-260k. A choice is graded as the evaluation grades it,
so that the text of the right option counts as its letter does. The other four compare the extracted answer:

    numerical   1 if both round to the same two decimals, and both or neither have a decimal point
    OCR         1 - WER, the word error rate, at least 0
    free-form   the mean of the F1 of ROUGE-1, ROUGE-2 and ROUGE-L
    regression  1 - |answer - gold| / |gold|, at least 0

Words are compared in small letters and are not stemmed; the official code stems those of free-form answers and tells
capitals from small letters in OCR.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from rapidfuzz.distance import LCSseq, Levenshtein

from atrl_bench.grading.extraction import extract_answer
from atrl_bench.grading.numbers_in_text import sole_number
from atrl_bench.grading.thought import behind_thought
from atrl_bench.results.records import Gold

if TYPE_CHECKING:
    from atrl_bench.grading.grade import GradingPool

IN_WORDS = ("OCR", "free-form")  # the sorts whose answer may be a short last line
CENT = Decimal("0.01")
MAX_WORDS = 200  # of an answer; the comparisons take time with the square of it
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)")
_FORMAT = re.compile(r"\s*<think>(?:(?!</?think>).)*</think>\s*<answer>(?:(?!</?answer>).)*</answer>\s*", re.S)


class TypedReward:
    """The accuracy of each response as a share of a full point; a problem of no known sort is graded."""

    __name__ = "accuracy"  # TRL names the reward's column and metrics after this

    def __init__(self, pool: GradingPool) -> None:
        self._pool = pool

    def __call__(
        self,
        /,
        completions: Sequence[list[dict[str, str]]],
        answer: Sequence[str],
        graded_as: Sequence[Gold],
        problem_type: Sequence[str],
        choices: Sequence[Sequence[str]],
        log_metric: Callable[..., None] | None = None,
        **_: Any,
    ) -> list[float]:
        responses = [completion[0]["content"] for completion in completions]
        rewards = [
            COMPARED[sort](extract_answer(behind_thought(text) or "", words=sort in IN_WORDS) or "", gold)
            if sort in COMPARED
            else 0.0
            for text, gold, sort in zip(responses, answer, problem_type, strict=True)
        ]
        graded = [index for index, sort in enumerate(problem_type) if sort not in COMPARED]
        golds = [replace(graded_as[i], choices=graded_as[i].choices or tuple(choices[i])) for i in graded]
        verdicts = self._pool.grade_many([(responses[i], gold) for i, gold in zip(graded, golds, strict=True)])
        for index, verdict in zip(graded, verdicts, strict=True):
            rewards[index] = float(verdict.state == "correct")
        if log_metric is not None:
            for sort in sorted(set(problem_type)):
                of_sort = [reward for reward, other in zip(rewards, problem_type, strict=True) if other == sort]
                log_metric(f"accuracy/{sort or 'other'}", sum(of_sort) / len(of_sort), count=len(of_sort))
        return rewards


class FormatReward:
    """`worth` for a response that is one <think> and one <answer> element and nothing else, 0 for any other."""

    __name__ = "format"

    def __init__(self, worth: float, begun: str = "") -> None:
        """`begun`: what the prompt has written of the response."""
        self._worth, self._begun = worth, begun

    def __call__(self, /, completions: Sequence[list[dict[str, str]]], **_: Any) -> list[float]:
        texts = [self._begun + completion[0]["content"] for completion in completions]
        return [self._worth * bool(_FORMAT.fullmatch(text)) for text in texts]


# The comparisons --------------------------------------------------------------------------------------------------


def numerical(answer: str, gold: str) -> float:
    """1 for the same number to two decimals; 3 is not 3.0, since one is counted and the other measured."""
    left, right = _number(answer), _number(gold)
    if left is None or right is None or ("." in left) != ("." in right):
        return 0.0
    rounded = _rounded(left)
    return float(rounded is not None and rounded == _rounded(right))


def regression(answer: str, gold: str) -> float:
    """1 minus the relative error, at least 0; of a gold of zero only zero is right."""
    left, right = _number(answer), _number(gold)
    if left is None or right is None:
        return 0.0
    value, target = Decimal(left), Decimal(right)
    if target == 0:
        return float(value == 0)
    return float(max(Decimal(0), 1 - abs(value - target) / abs(target)))


def ocr(answer: str, gold: str) -> float:
    """1 - WER, at least 0: WER = (words replaced + left out + put in) / words of the gold."""
    words, wanted = _words(answer), _words(gold)
    return max(0.0, 1 - Levenshtein.distance(words, wanted) / len(wanted)) if wanted else float(not words)


def free_form(answer: str, gold: str) -> float:
    """The mean of the F1 of ROUGE-1, ROUGE-2 and ROUGE-L (Lin, 2004), over lower-case words."""
    left, right = _tokens(answer), _tokens(gold)
    longest = LCSseq.similarity(left, right)
    scores = [_overlap_f1(_grams(left, n), _grams(right, n)) for n in (1, 2)]
    return (sum(scores) + _f1(longest, len(left), len(right))) / 3


COMPARED: dict[str, Callable[[str, str], float]] = {
    "numerical": numerical,
    "OCR": ocr,
    "free-form": free_form,
    "regression": regression,
}


def _number(text: str) -> str | None:
    """The one number of an answer as it is written, without thousands separators."""
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text.strip().strip("$"))
    if _NUMBER.fullmatch(text):
        return text
    number = sole_number(text)
    return number if number and _NUMBER.fullmatch(number) else None


def _rounded(number: str) -> Decimal | None:
    try:
        return Decimal(number).quantize(CENT, ROUND_HALF_EVEN)
    except InvalidOperation:  # more digits than any measured number has
        return None


def _words(text: str) -> list[str]:
    return text.lower().split()[:MAX_WORDS]


def _tokens(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())[:MAX_WORDS]


def _grams(words: Sequence[str], size: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[start : start + size]) for start in range(len(words) - size + 1))


def _overlap_f1(left: Counter[tuple[str, ...]], right: Counter[tuple[str, ...]]) -> float:
    return _f1((left & right).total(), left.total(), right.total())


def _f1(shared: int, num_left: int, num_right: int) -> float:
    """2 P R / (P + R) with P = shared / left and R = shared / right; 0 where nothing is shared."""
    return 2 * shared / (num_left + num_right) if shared else 0.0
