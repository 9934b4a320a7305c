"""What the answers behind one cell amount to: over all training seeds and parts of a suite, and for each seed alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from atrl_bench.analysis.task_scores import scored
from atrl_bench.results.score_array import ScoreArray
from atrl_bench.results.statistics import (
    Difference,
    Estimate,
    ScoredSamples,
    SeedSpread,
    group_residuals,
    parse_metric,
    seed_spread,
    suite_difference,
    suite_score,
)

Answers = Mapping[str, Mapping[int, ScoreArray]]  # by task, then by training seed


@dataclass(frozen=True)
class Scores:
    """A cell's answers under one metric, one item a task of its column, and the number of each training seed."""

    parts: tuple[ScoredSamples, ...]
    by_seed: Mapping[int, float]

    def estimate(self) -> Estimate | None:
        """Return the cell's number, None while nothing of it has a verdict."""
        estimate = suite_score(self.parts)
        return estimate if estimate.num_problems else None

    def residuals(self, stderr: float, other: Scores | None = None) -> dict[str, float]:
        """Return what each group adds to the error of the number, or of its difference from another."""
        return group_residuals(self.parts, stderr, None if other is None else other.parts)

    def minus(self, other: Scores) -> Difference | None:
        """Return the paired difference, None where no problem has a verdict on both sides."""
        difference = suite_difference(self.parts, other.parts)
        return difference if difference.estimate.num_problems else None


def scores_of(answers: Answers, metric: str) -> Scores:
    """Return what the answers amount to under a metric."""
    parts = tuple(_pooled(task, of_seed, metric) for task, of_seed in answers.items())
    return Scores(parts, _by_seed(answers, metric))


def average_by_seed(columns: Sequence[Scores]) -> dict[int, float]:
    """Return each seed's average over the columns, for the seeds that have them all."""
    common = set.intersection(*(set(column.by_seed) for column in columns))
    return {seed: mean(column.by_seed[seed] for column in columns) for seed in sorted(common)}


def spread_of(numbers: Iterable[float]) -> SeedSpread | None:
    """Return the spread over seeds, None without a seed."""
    values = list(numbers)
    return seed_spread(values) if values else None


def mean(values: Iterable[float]) -> float:
    """Return the mean, NaN of nothing."""
    items = list(values)
    return math.fsum(items) / len(items) if items else math.nan


def _pooled(task: str, of_seed: Mapping[int, ScoreArray], metric: str) -> ScoredSamples:
    """Return the answers of all seeds, as if those of further seeds were further repeats of one run."""
    first = scored(task, next(iter(of_seed.values())), metric)
    name, num_repeats = parse_metric(first.metric, first.statistics)
    pooled = ScoreArray.joined([of_seed[seed].repeats(num_repeats) for seed in sorted(of_seed)])
    return replace(first, answers=pooled, metric=f"{name}@{num_repeats * len(of_seed)}")


def _by_seed(answers: Answers, metric: str) -> dict[int, float]:
    numbers = {}
    for seed in sorted(set.intersection(*(set(of_seed) for of_seed in answers.values()))):
        parts = [_pooled(task, {seed: of_seed[seed]}, metric) for task, of_seed in answers.items()]
        estimate = suite_score(parts, num_resamples=0)
        if estimate.num_problems:
            numbers[seed] = estimate.mean
    return numbers
