"""What each row of a table did at every learning rate that it was trained at, and at which it is compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from atrl_bench.experiments.definition import TableDefinition
from atrl_bench.experiments.plan import Plan, cell_keys, runs_by_rate
from atrl_bench.experiments.rates import rate_text
from atrl_bench.report.cells import TableSource, read_cells
from atrl_bench.report.labels import as_measured, row_label
from atrl_bench.report.scores import mean
from atrl_bench.report.table_model import TrainingFigures
from atrl_bench.results.store import Run, Store

# What a run records that says how well a rate suits, and how a page calls it.
FIGURES = {
    "accuracy": "accuracy over the run",
    "late accuracy": "accuracy over its second half",
    "last accuracy": "accuracy at the end",
    "last greedy": "greedy at the end",
    "worst greedy": "greedy, worst checkpoint",
    "worst readable": "with an answer, worst checkpoint",
    "last drift": "drift of unrewarded tokens",
}
TEST = "test, mean of the columns"
EXPLANATION = (
    "Each row at every rate it was trained at, in multiples of the profile's learning rate, means over the training "
    "seeds that pick a rate. "
    "The rate marked with * has the highest accuracy over the second half of the run, which is that of the answers "
    "sampled for training: no test problem decides. Greedy: the share of right answers to training problems that the "
    "run does not train on, at the end and at the worst of a few checkpoints. With an answer: "
    "the share of these responses in which one can be read. Drift: KL divergence from the base, a token, on tokens of "
    "these answers that nobody rewarded; on all where the data does not say which. The last column picks nothing; "
    "it is there for the rates that rows are compared at, over all seeds."
)


def rate_note(definition: TableDefinition, rates: Mapping[str, float]) -> str:
    """Return what a reader has to know of the learning rates behind the numbers."""
    tried = ", ".join(f"{rate:g}" for rate in sorted(definition.rates))
    note = (
        f"Each trained row stands here at its best learning rate of {tried} times the profile's, picked by its "
        "accuracy in the second half of training; the same comparisons at one rate for all stand below."
    )
    undecided = [row_label(definition, row) for row, rate in rates.items() if math.isnan(rate)]
    if undecided:
        note += f" Not yet trained at all of them, and left open: {', '.join(undecided)}."
    return note


def rate_figures(plan: Plan, store: Store, chosen: Mapping[str, float]) -> list[TrainingFigures]:
    """Return the small table of every row at every rate, nothing where no run has recorded anything."""
    definition, runs = as_measured(plan.definition, plan.profile), runs_by_rate(plan, store, plan.rate_seeds)
    tests = {rate: _test_scores(plan, store, rate) for rate in sorted(definition.rates)}
    lines: list[tuple[str, tuple[float | None, ...]]] = []
    for row in definition.rows:
        of_row = runs.get(row.id, {})
        for rate in sorted(of_row) if len(of_row) > 1 else ():
            values = (*(_mean(of_row[rate], name) for name in FIGURES), tests[rate].get(row.id))
            mark = "*" if chosen.get(row.id) == rate else ""
            lines.append((f"{row_label(definition, row.id)}, {rate_text(rate)}{mark}", values))
    if not any(value is not None for _, values in lines for value in values):
        return []
    names = (*FIGURES.values(), TEST)
    return [TrainingFigures("Every learning rate", names, tuple(lines), EXPLANATION)]


def _test_scores(plan: Plan, store: Store, rate: float) -> dict[str, float]:
    """Return the mean of the columns of each row that was evaluated at this rate."""
    definition = plan.definition
    at = plan.at({row.id: rate for row in definition.rows if row.recipe})
    source = TableSource(definition, store, plan.profile, cell_keys(at, store), {}, plan.seeds, {})
    cells = read_cells(source).cells
    scores = {}
    for row in definition.rows:
        estimates = [cells[row.id, column].estimate for column in source.columns_of(row.id)]
        if row.recipe and all(estimates):
            scores[row.id] = mean(estimate.mean for estimate in estimates if estimate)
    return scores


def _mean(runs: Sequence[Run], name: str) -> float | None:
    values = [run.summary[name] for run in runs if run.state == "done" and name in run.summary]
    return mean(values) if values else None
