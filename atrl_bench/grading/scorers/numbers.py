"""How near a number is to the right one, in parts of a point."""

from __future__ import annotations

import math
import re

from atrl_bench.grading.answer_parser import Quantity, parse
from atrl_bench.grading.prose import sole_number
from atrl_bench.grading.scorers.scored import Scored
from atrl_bench.grading.spelling import NUMBER_WORDS
from atrl_bench.results.records import Gold

_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_VALUES = {word: n for n, word in enumerate(NUMBER_WORDS)} | {word: 10 * n for n, word in enumerate(_TENS, start=2)}
_TENS_RE, _UNITS_RE, _ALONE_RE = ("|".join(words) for words in (_TENS, NUMBER_WORDS[1:10], NUMBER_WORDS))
_SPELLED = re.compile(rf"\b(?:({_TENS_RE})(?:[\s-]({_UNITS_RE}))?|({_ALONE_RE}))\b")


def mra(answer: str, gold: Gold) -> Scored:
    r"""The mean relative accuracy: the share of the thresholds θ in {0.50, 0.55, …, 0.95} with |p-t|/t <= 1-θ.

    VSI-Bench's metric for numbers (Yang et al., "Thinking in Space", section 3). Its arithmetic is kept, because the
    published numbers have it: 1-θ is taken in floating point, where 1-0.8 is a little less than 0.2. So an error of
    exactly 20 %, as in 4 chairs instead of 5, earns 0.6 and not 0.7.
    """
    import numpy as np

    target, prediction = float(gold.answer), read_number(answer)
    if prediction is None:
        return Scored(0.0, "no number in the answer")
    if target == 0:
        return Scored(float(prediction == 0), "the right number is zero")
    error = abs(prediction - target) / abs(target)
    score = float((error <= 1 - np.linspace(0.5, 0.95, 10)).mean())
    return Scored(score, f"off by {error:.1%}", {"relative_error": error})


def read_number(text: str) -> float | None:
    """The one finite number in an answer, in digits or in words; None where there is none, or several.

    "sixteen" is 16 and not the 6 at its beginning, "1,200" is one number, and "nan" is none.
    """
    for part in (text, sole_number(text)):
        try:
            value = parse(part).value if part else None
            number = float(value) if isinstance(value, Quantity) else math.nan
        except OverflowError:
            continue
        if math.isfinite(number):
            return number
    spelled = _SPELLED.findall(text.lower())
    if len(spelled) != 1 or re.search(r"\d|\b(?:hundred|thousand|million|half)\b", text.lower()):
        return None
    tens, unit, alone = spelled[0]
    return float(_VALUES[alone] if alone else _VALUES[tens] + _VALUES.get(unit, 0))
