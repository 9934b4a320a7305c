"""`run-table --until decided`: seeds are added to a table until its comparisons are decided, or cannot be.

Whoever looks after each seed and stops where it pleases finds differences that are none. Each look here is at the level
at which all of them together err one time in twenty (`results/statistics/power.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from atrl_bench.experiments.plan import Plan
from atrl_bench.experiments.price import price_of
from atrl_bench.experiments.run_dir import keep_settings
from atrl_bench.lab.design import MAX_SEEDS, compared_rows, cost_of
from atrl_bench.printable import Block, Record, counted
from atrl_bench.report.page import lines_of
from atrl_bench.report.table_run import TableRun
from atrl_bench.results.statistics.power import Look, look

WITHOUT_BUDGET = 16  # seeds at most


@dataclass(frozen=True)
class DecidedComparison:
    """A comparison and how it ended; `mean` and `half_width` in points."""

    comparison: str
    verdict: str
    mean: float
    half_width: float
    seeds: int


@dataclass(frozen=True)
class Decided(Record):
    """How the comparisons of a table ended, after how many seeds of at most how many."""

    effect: float
    max_seeds: int
    comparisons: tuple[DecidedComparison, ...]

    def blocks(self) -> Iterable[Block]:
        most = max((item.seeds for item in self.comparisons), default=0)
        yield f"Looked after each seed, at most {self.max_seeds}; stopped after {most}."
        yield from self.said()

    def said(self) -> list[str]:
        return lines_of("decided.txt.j2", decided=self, counted=counted)


def most_seeds(plan_of: Callable[[Sequence[int]], Plan], budget: float | None) -> int:
    """How many seeds the budget, in hours, holds by `plan`'s prices."""
    plan = plan_of([0])
    compared_rows(plan)  # before anything is trained
    if budget is None:
        return WITHOUT_BUDGET
    cost = cost_of(price_of(plan), plan)
    cost.require_two_seeds(budget, cost.repeats, plan.command)
    of_seed = cost.of_seed(cost.repeats)
    return min(MAX_SEEDS, int((budget - cost.once) / of_seed + 1e-9)) if of_seed else WITHOUT_BUDGET


def run_until_decided(
    plan_of: Callable[[Sequence[int]], Plan],
    run: Callable[[Plan], TableRun],
    effect: float,
    max_seeds: int,
    say: Callable[[str], None],
) -> tuple[TableRun, Decided]:
    """Run the table with one seed more at a time; the table as it is at the end, and how its comparisons ended."""
    plan = plan_of([0])
    keep_settings(plan.run_dir.root, lambda kept: {"looks": kept.looks | {plan.definition.id: max_seeds}})
    for count in range(2, max_seeds + 1):
        result = run(plan_of(range(count)))
        decided = Decided(effect, max_seeds, tuple(_ended(result, effect, max_seeds)))
        if result.failures or all(item.verdict != "open" for item in decided.comparisons):
            break
        for line in decided.said():
            say(line)
    return result, decided


def _ended(result: TableRun, effect: float, max_seeds: int) -> Iterable[DecidedComparison]:
    items = [item for item in result.table.comparisons if item.overall is not None]
    for item in items:
        at = Look("open", item.estimate.mean, math.inf, 0)
        if item.over_problems is not None:
            seen = item.by_seed, item.over_problems, item.estimate
            at = look(*seen, effect / 100, max_seeds, comparisons=len(items))
        name = f"{item.row} against {item.other}"
        yield DecidedComparison(name, at.verdict, 100 * at.mean, 100 * at.half_width, at.num_seeds)
