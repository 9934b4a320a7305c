"""The rules of others, as published, for comparing with numbers that were made with them; never used by a task here."""

from __future__ import annotations

from atrl_bench.grading.scorers.scored import Scored
from atrl_bench.results.records import Gold


def math_verify(answer: str, gold: Gold) -> Scored:
    """R1-V's verdict on GeoQA: math-verify on the whole response and on the gold answer as it stands.

    It reproduces the 1,508 published verdicts. It reads `10√{2}` as 10 and may take a number from the reasoning for the
    answer; where it and `equal` differ, `equal` is right (tests/evaluation/test_geoqa_verdicts.py has every row).
    """
    from math_verify import parse, verify

    # No time limits of its own: they are signal handlers, and sympy is deaf to them. The worker has one.
    expected, predicted = parse(gold.answer, parsing_timeout=0), parse(answer, parsing_timeout=0)
    right = bool(verify(expected, predicted, timeout_seconds=0))
    return Scored(float(right), f"math-verify read {str(predicted[:1])[:80]}, gold {str(expected[:1])[:80]}")
