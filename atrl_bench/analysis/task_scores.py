"""A task's samples under any metric a table or a user may name, the task's own number among them."""

from __future__ import annotations

from collections.abc import Mapping

from atrl_bench.evaluation.tasks import find_task
from atrl_bench.results.score_array import ScoreArray
from atrl_bench.results.statistics import Maker, ScoredSamples


def scored(task: str, answers: ScoreArray, metric: str) -> ScoredSamples:
    """Return the answers to a task under a metric; `headline@N` is the number that the benchmark is quoted by."""
    name, _, num_repeats = metric.partition("@")
    if name in ("acc", "mean"):
        return ScoredSamples(answers, f"mean@{num_repeats}")
    if name == "headline":
        name = find_task(task).code.headline
    return ScoredSamples(answers, f"{name}@{num_repeats}", statistics_of(task))


def statistics_of(task: str) -> Mapping[str, Maker]:
    """Return the composite statistics that a task defines, by name."""
    return find_task(task).code.statistics
