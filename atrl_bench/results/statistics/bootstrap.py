"""The standard error of any statistic, by drawing groups again (Efron; Cameron, Gelbach and Miller 2008, section 3).

A resample draws G of the G groups with replacement, whole groups, so that what belongs together stays together. It is
never written out: a group drawn twice gives its problems the weight 2, one not drawn the weight 0.

The standard deviation over resamples is multiplied by sqrt(G / (G - 1)): of a plain mean it is then the clustered
standard error of `clustered_mean`, up to the noise of the draws. Intervals are Student's t around the measured number,
which with few groups hold the truth more often than the middle 95 % of the resamples; those are given beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from atrl_bench.results.statistics.means import Estimate

NUM_RESAMPLES = 2000
SEED = 0

Weighted = Callable[[np.ndarray], float]  # weights_P -> the number, NaN where nothing has weight


@dataclass(frozen=True)
class Resampled(Estimate):
    """An estimate by the bootstrap; `middle_95` are the ends of the middle 95 % of the resamples."""

    middle_95: tuple[float, float]


def bootstrap(
    parts: Sequence[tuple[Weighted, Sequence[str]]], num_resamples: int = NUM_RESAMPLES, seed: int = SEED
) -> Resampled:
    """Return the mean over parts of each part's number, with its standard error.

    A part is a function of its problems' weights and the group of each problem. Groups of one name in two parts are
    one group: it is drawn for both at once. What the groups are called is irrelevant, the order of the problems is not.
    """
    labels = list(chain.from_iterable(groups for _, groups in parts))
    code_of = {label: code for code, label in enumerate(dict.fromkeys(labels))}
    codes = [np.array([code_of[label] for label in groups], dtype=np.intp) for _, groups in parts]

    def mean(weights_G: np.ndarray) -> float:
        values = [value(weights_G[codes_P]) for (value, _), codes_P in zip(parts, codes, strict=True)]
        return sum(values) / len(values) if values else math.nan

    num_groups = len(code_of)
    centre = mean(np.ones(num_groups))
    if num_groups < 2:
        return Resampled(centre, math.nan, math.nan, len(labels), num_groups, (math.nan, math.nan))
    random = np.random.default_rng(seed)
    draws = (random.integers(num_groups, size=num_groups) for _ in range(num_resamples))
    replicates = np.array([mean(np.bincount(draw, minlength=num_groups).astype(np.float64)) for draw in draws])
    # A resample may miss all that a number is about, such as every problem of every category; there it has no value.
    replicates = replicates[np.isfinite(replicates)]
    if len(replicates) < 2:
        return Resampled(centre, math.nan, math.nan, len(labels), num_groups, (math.nan, math.nan))
    # Equal replicates differ by rounding in the last digit, which a test would take for a spread.
    spread = float(replicates.std(ddof=1)) if np.ptp(replicates) > 1e-12 else 0.0
    low, high = np.quantile(replicates, [0.025, 0.975])
    return Resampled(
        mean=centre,
        stderr=spread * math.sqrt(num_groups / (num_groups - 1)),
        degrees=num_groups - 1,
        num_problems=len(labels),
        num_groups=num_groups,
        middle_95=(float(low), float(high)),
    )
