"""Scores that are not one plain mean: a benchmark's own number, as a function of its problems' scores and weights.

A task names them in its module: `STATISTICS = {"categories": mean_by(lambda problem: problem.meta["category"])}` makes
the metric `categories@8`. A *maker* looks at the cell's problems once and returns the *statistic*; the statistic is
then asked thousands of times, with each problem's weight being how often its group was drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from atrl_bench.results.records import Problem

# (scores_P, weights_P) -> the number, NaN when nothing has weight. A problem that has no score comes with weight 0.
Statistic = Callable[[np.ndarray, np.ndarray], float]
Maker = Callable[[Sequence[Problem]], Statistic]


def plain_mean(scores_P: np.ndarray, weights_P: np.ndarray) -> float:
    """Sum(w s) / sum(w)."""
    total = float(weights_P.sum())
    return float(weights_P @ scores_P) / total if total > 0 else math.nan


def mean_by(key_of: Callable[[Problem], str | None], merge: Mapping[str, str] | None = None) -> Maker:
    """The maker of "the mean of category means": each category counts the same, whatever its size.

    `merge` names categories that are averaged into one category first: `{"easy": "direction", "hard": "direction"}`.
    Problems whose key is None are left out, and so are categories in which no problem has weight.
    """
    merged = merge or {}

    def make(problems: Sequence[Problem]) -> Statistic:
        keys = [key_of(problem) for problem in problems]
        names = sorted({key for key in keys if key is not None})
        tops = sorted({merged.get(name, name) for name in names})
        # One category more than there are takes the problems that are left out.
        number = {name: i for i, name in enumerate(names)}
        codes_P = np.array([len(names) if key is None else number[key] for key in keys], dtype=np.intp)
        tops_K = np.array([tops.index(merged.get(name, name)) for name in names], dtype=np.intp)

        def statistic(scores_P: np.ndarray, weights_P: np.ndarray) -> float:
            weight_K = np.bincount(codes_P, weights_P, len(names) + 1)[:-1]
            sum_K = np.bincount(codes_P, weights_P * scores_P, len(names) + 1)[:-1]
            there = weight_K > 0
            if not there.any():
                return math.nan
            means, top_codes = sum_K[there] / weight_K[there], tops_K[there]
            sizes = np.bincount(top_codes, minlength=len(tops))
            top_means = np.bincount(top_codes, means, len(tops))[sizes > 0] / sizes[sizes > 0]
            return float(top_means.mean())

        return statistic

    return make


def all_right(key_of: Callable[[Problem], str]) -> Maker:
    """The maker of "the share of parts whose problems are all right", a part being what shares a key."""

    def make(problems: Sequence[Problem]) -> Statistic:
        number = {name: i for i, name in enumerate(dict.fromkeys(map(key_of, problems)))}
        codes_P = np.array([number[key_of(problem)] for problem in problems], dtype=np.intp)

        def statistic(scores_P: np.ndarray, weights_P: np.ndarray) -> float:
            weight_K = np.full(len(number), np.inf)
            np.minimum.at(weight_K, codes_P, weights_P)  # a part with a problem that nobody has judged is left out
            wrong_K = np.bincount(codes_P, scores_P < 1, len(number))
            return plain_mean((wrong_K == 0).astype(float), np.where(np.isinf(weight_K), 0, weight_K))

        return statistic

    return make
