"""How numbers are written: percent and points with one decimal, printed ones as printed, p without false zeros."""

from __future__ import annotations

import math
from decimal import Decimal

from atrl_bench.results.statistics.means import Estimate

WORDS = {1: "up", -1: "down", 0: "equal"}


def percent(share: float, digits: int = 1) -> str:
    """A share as percent, without its sign: 0.4686 is 46.9, -0.176 is −17.6."""
    return "–" if math.isnan(share) else f"{100 * share:z.{digits}f}".replace("-", "−")


def half_width(estimate: Estimate) -> str:
    """Half of the 95 % interval in percentage points, or a dash where there is none."""
    return percent(estimate.half_width())


def error(estimate: Estimate) -> str:
    """The 95 % interval of a score: ±6.3, or 0.0 to 13.2 where the half width would leave 0 to 100."""
    half = estimate.half_width()
    reaches_out = estimate.mean - half < 0 or estimate.mean + half > 1
    return interval(estimate) if reaches_out else f"±{half_width(estimate)}"


def interval(estimate: Estimate) -> str:
    """The 95 % interval of a score in percent, cut off where no score can be: 42.1 to 51.6."""
    low, high = estimate.interval()
    return f"{percent(max(low, 0.0), 1)} to {percent(min(high, 1.0), 1)}"


def points(share: float | Decimal, digits: int = 1) -> str:
    """The size of a difference in percentage points, without its direction.

    A `Decimal` is a published difference: already in points, and written with the digits that were printed.
    """
    return f"{abs(share):f}" if isinstance(share, Decimal) else percent(abs(share), digits)


def direction(share: float | Decimal, digits: int = 1) -> int:
    """1, -1 or 0: which way a difference points once it is written with so many digits."""
    if math.isnan(share) or not float(points(share, digits)):
        return 0
    return 1 if share > 0 else -1


def signed(share: float | Decimal, digits: int = 1) -> str:
    """A difference in percentage points with its sign: +2.8, −0.4; a published one with its own digits."""
    return {1: "+", -1: "−", 0: ""}[direction(share, digits)] + points(share, digits)


def detectable(share: float) -> str:
    """The power of a comparison in words: the true difference that it shows four times in five."""
    return "" if math.isnan(share) else f"a difference of {percent(share)} points could be detected with 80 % power"


def p_value(p: float) -> str:
    """A p-value as "= 0.013" or "< 0.001"."""
    if math.isnan(p):
        return "not defined"
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"
