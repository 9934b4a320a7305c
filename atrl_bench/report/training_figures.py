"""What the training runs of a table say about their credit and about themselves, as small tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from atrl_bench.experiments.definition import RowDefinition
from atrl_bench.report.scores import mean
from atrl_bench.report.table_model import TrainingFigures
from atrl_bench.results.store import Run

# What a training run's summary says about its credit and about itself, and how a report calls it.
CREDIT_FIGURES = {
    "credit/anchor_auc": "anchor AUC",
    "credit/anchor_auc_connectivity": "anchor AUC, density alone",
    "credit/edge_density": "edge density",
    "credit/cut": "cut",
    "credit/random_cut": "random cut",
    "credit/entropy": "entropy",
    "credit/top15_share": "share of top 15 %",
    "credit/position_correlation": "corr. with position",
}
TRAINING_FIGURES = {
    "first accuracy": "accuracy, first rollouts",
    "last accuracy": "accuracy, last rollouts",
    "accuracy": "accuracy, all rollouts",
    "last completions/mean_length": "tokens, last",
    "last entropy": "entropy, last",
    "last kl": "KL, last",
    "last clip_ratio/region_mean": "clipped, last",
    "last frac_reward_zero_std": "groups without signal, last",
}
CREDIT_EXPLANATION = (
    "Means over the training run, then over seeds. Anchor AUC: how well the credit ranks the tokens that transcribe "
    "the image above the others; 0.5 is chance. A cut close to the random cut means that the clusters say nothing. "
    "Entropy is a share of the largest possible."
)
TRAINING_EXPLANATION = (
    "Means over the first, the last and all rollouts of the training runs, then over seeds. Accuracy is that of the "
    "answers sampled for training; over all rollouts it says how fast a method learned."
)


def training_figures(rows: Sequence[RowDefinition], runs: Mapping[str, Sequence[Run]]) -> tuple[TrainingFigures, ...]:
    """Return a small table on the credit and one on the training, each where any run has recorded something of it."""
    trained = [row for row in rows if row.recipe]
    credited = [row for row in trained if row.credit.rule != "uniform"]
    tables = (
        _figures("Where the credit went", CREDIT_FIGURES, CREDIT_EXPLANATION, credited, runs),
        _figures("How the training went", TRAINING_FIGURES, TRAINING_EXPLANATION, trained, runs),
    )
    return tuple(table for table in tables if table is not None)


def _figures(
    title: str,
    names: Mapping[str, str],
    explanation: str,
    rows: Iterable[RowDefinition],
    runs: Mapping[str, Sequence[Run]],
) -> TrainingFigures | None:
    summaries = {row.label: [run.summary for run in runs.get(row.id, ()) if run.state == "done"] for row in rows}
    means = {label: {name: _mean(of_row, name) for name in names} for label, of_row in summaries.items() if of_row}
    recorded = [name for name in names if any(of_row[name] is not None for of_row in means.values())]
    if not recorded:
        return None
    return TrainingFigures(
        title=title,
        names=tuple(names[name] for name in recorded),
        rows=tuple((label, tuple(of_row[name] for name in recorded)) for label, of_row in means.items()),
        explanation=explanation,
    )


def _mean(summaries: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [summary.get(name) for summary in summaries]
    numbers = [float(value) for value in values if isinstance(value, (int, float))]
    return mean(numbers) if numbers else None
