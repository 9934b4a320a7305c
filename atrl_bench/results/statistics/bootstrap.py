"""The standard error of any statistic, by drawing groups again (Efron; Cameron, Gelbach and Miller 2008, section 3).

A resample draws G of the G groups with replacement, whole groups, so that what belongs together stays together. It is
never written out: a group drawn twice gives its problems the weight 2, one not drawn the weight 0.

The standard deviation over resamples is too small where groups are few or unequal. It is multiplied by what would make
that of a plain mean right on independent problems, sqrt(G / (G - 1)) for equal groups. Intervals are Student's t around
the measured number with the degrees of freedom that a plain mean has, as in `means`: with few groups they hold the
truth more often than the middle 95 % of the resamples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from atrl_bench.results.statistics.means import Estimate, codes_of_groups, satterthwaite

NUM_RESAMPLES = 2000
SEED = 0

Weighted = Callable[[np.ndarray], float]  # weights_P -> the number, NaN where nothing has weight


def bootstrap(parts: Sequence[tuple[Weighted, Sequence[str]]], num_resamples: int = NUM_RESAMPLES) -> Estimate:
    """The mean over parts of each part's number, with its standard error.

    A part is a function of its problems' weights and the group of each problem. Groups of one name in two parts are
    one group: it is drawn for both at once. What the groups are called is irrelevant, the order of the problems is not.
    """
    codes, num_groups = codes_of_groups([groups for _, groups in parts])
    num_problems = sum(len(groups) for _, groups in parts)

    def mean(weights_G: np.ndarray) -> float:
        values = [value(weights_G[codes_P]) for (value, _), codes_P in zip(parts, codes, strict=True)]
        return sum(values) / len(values) if values else math.nan

    centre = mean(np.ones(num_groups))
    sizes_KG = np.array([np.bincount(of_part, minlength=num_groups) for of_part in codes])
    num_K1 = sizes_KG.sum(1, keepdims=True)
    if num_groups < 2 or (sizes_KG.max(axis=1) == num_K1[:, 0]).all():  # each part is one group
        return Estimate(centre, math.nan, math.nan, num_problems, num_groups)
    random = np.random.default_rng(SEED)
    draws = (random.integers(num_groups, size=num_groups) for _ in range(num_resamples))
    replicates = np.array([mean(np.bincount(draw, minlength=num_groups).astype(np.float64)) for draw in draws])
    # A resample may miss all that a number is about, such as every problem of every category; there it has no value.
    replicates = replicates[np.isfinite(replicates)]
    if len(replicates) < 2:
        return Estimate(centre, math.nan, math.nan, num_problems, num_groups)
    # Equal replicates differ by rounding in the last digit, which a test would take for a spread.
    spread = float(replicates.std(ddof=1)) if np.ptp(replicates) > 1e-12 else 0.0
    seen, degrees = satterthwaite(np.broadcast_to(1 / (len(parts) * num_K1), sizes_KG.shape), sizes_KG)
    true = float((1 / num_K1).sum()) / len(parts) ** 2
    return Estimate(centre, spread * math.sqrt(true / seen), degrees, num_problems, num_groups)
