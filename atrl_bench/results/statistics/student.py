"""Quantiles of Student's t without scipy.special, whose import is a seventh of the second that `explain` may take."""

from __future__ import annotations

import math
from functools import cache
from itertools import count
from statistics import NormalDist


@cache
def student_quantile(degrees: float, probability: float) -> float:
    """The t with P(T <= t) = `probability`, which is above 1/2; NaN without `degrees`, as of a single group.

    By Newton's method from the normal quantile: t lies above it, where the tail is convex, so that no step goes too
    far. It is scipy.special.stdtrit's to nine digits, up to 10^5 degrees.
    """
    if not degrees > 0:
        return math.nan
    t, step = NormalDist().inv_cdf(probability), math.inf
    while step > 1e-13 * t:
        x = degrees / (degrees + t * t)
        density = x ** ((degrees + 1) / 2) / math.sqrt(degrees) / _beta(degrees / 2, 0.5)
        tail = _incomplete_beta(degrees / 2, 0.5, x) / 2  # P(T > t)
        step = (tail - (1 - probability)) / density
        t += step
    return t


def _beta(a: float, b: float) -> float:
    return math.exp(math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised I_x(a, b): the continued fraction 26.5.8 of Abramowitz and Stegun, by Lentz's method."""
    if x > (a + 1) / (a + b + 2):  # where it would converge slowly
        return 1 - _incomplete_beta(b, a, 1 - x)
    fraction, above, below = 1.0, 1.0, 0.0
    for n in count(1):
        m = n // 2
        odd = -(a + m) * (a + b + m) / ((a + 2 * m) * (a + 2 * m + 1))
        term = x * (odd if n % 2 else m * (b - m) / ((a + 2 * m - 1) * (a + 2 * m)))
        above, below = 1 + term / above, 1 / (1 + term * below)
        fraction *= above * below
        if abs(above * below - 1) < 1e-15:
            break
    return x**a * (1 - x) ** b / (a * _beta(a, b) * fraction)
