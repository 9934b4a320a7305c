"""How near a number is to the right one, in parts of a point."""

from __future__ import annotations

import math
import re

from atrl_bench.grading.answer_parser import Quantity, UnreadableError, read
from atrl_bench.grading.extraction import sole_number
from atrl_bench.grading.scorers import Scored
from atrl_bench.results.records import Gold

# fmt: off
_UNITS = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
# fmt: on
WORDS = {**{word: n for n, word in enumerate(_UNITS)}, **{word: 10 * n for n, word in enumerate(_TENS, start=2)}}
_NUMBER_WORDS = re.compile(rf"\b(?:({'|'.join(_TENS)})(?:[\s-]({'|'.join(_UNITS[1:10])}))?|({'|'.join(_UNITS)}))\b")


def mra(answer: str, gold: Gold) -> Scored:
    r"""Return the mean relative accuracy: the share of the thresholds θ in {0.50, 0.55, …, 0.95} with |p-t|/t <= 1-θ.

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
    """Return the one finite number in an answer, in digits or in words; None where there is none, or several.

    "sixteen" is 16 and not the 6 at its beginning, "1,200" is one number, and "nan" is none.
    """
    for part in (text, sole_number(text)):
        try:
            value = read(part) if part else None
            number = float(value) if isinstance(value, Quantity) else math.nan
        except (UnreadableError, OverflowError):
            continue
        if math.isfinite(number):
            return number
    spelled = _NUMBER_WORDS.findall(text.lower())
    if len(spelled) != 1 or re.search(r"\d|\b(?:hundred|thousand|million|half)\b", text.lower()):
        return None
    tens, unit, alone = spelled[0]
    return float(WORDS[alone] if alone else WORDS[tens] + WORDS.get(unit, 0))
