"""How near a number is to the right one, in parts of a point; and the published rule for numbers and formulas."""

from __future__ import annotations

import math
import re

from atrl_bench.grading.answer_parser import Quantity, parse
from atrl_bench.grading.numbers_in_text import sole_number
from atrl_bench.grading.scorers.scored import Scored
from atrl_bench.grading.spelling import NUMBER_VALUES
from atrl_bench.results.records import Gold

_SPELLED = re.compile(rf"\b(?:{'|'.join(sorted(NUMBER_VALUES, key=len, reverse=True))})\b")


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
    spelled = _SPELLED.findall(re.sub(r"[\s-]", " ", text.lower()))
    if len(spelled) != 1 or re.search(r"\d|\b(?:hundred|thousand|million|half)\b", text.lower()):
        return None
    return float(NUMBER_VALUES[spelled[0]])


# Rules of others, as published, for comparing with numbers that were made with them; no task here uses one.


def math_verify(answer: str, gold: Gold) -> Scored:
    """R1-V's verdict on GeoQA: math-verify on the whole response and on the gold answer as it stands.

    It reproduces the 1,508 published verdicts. It reads `10√{2}` as 10 and may take a number from the reasoning for the
    answer; where it and `equal` differ, `equal` is right (tests/grading/test_geoqa_verdicts.py has every row).
    """
    from math_verify import parse, verify

    # No time limits of its own: they are signal handlers, and sympy is deaf to them. The worker has one.
    expected, predicted = parse(gold.answer, parsing_timeout=0), parse(answer, parsing_timeout=0)
    right = bool(verify(expected, predicted, timeout_seconds=0))
    return Scored(float(right), f"math-verify read {str(predicted[:1])[:80]}, gold {str(expected[:1])[:80]}")


def mathruler(response: str, gold: Gold) -> Scored:
    """EasyR1's verdict, which PAPO, VPPO and NoisyRollout print: the last box against the gold answer, by mathruler.

    A response without a box is wrong, and so is an option's text where its letter is asked for.
    """
    from mathruler.grader import extract_boxed_content, grade_answer

    box = extract_boxed_content(response)
    right = any(grade_answer(box, answer) for answer in gold.references or (gold.answer,))
    return Scored(float(right), f"mathruler read {box[:80]}")
