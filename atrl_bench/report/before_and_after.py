"""What a table's design could see before it ran, by what is assumed of such comparisons, and what it saw."""

from __future__ import annotations

import math
import statistics

from atrl_bench.experiments.definition import AVERAGE
from atrl_bench.experiments.plan import Plan
from atrl_bench.experiments.spread import assumed_spreads
from atrl_bench.printable import counted
from atrl_bench.report.differences import contrasts
from atrl_bench.report.table_model import Comparison, Table
from atrl_bench.results.statistics.power import POWER, detectable


def before_and_after(table: Table, plan: Plan) -> str:
    """A sentence for the page; "" where no comparison of credit has numbers."""
    items = contrasts(table)
    if not items:
        return ""
    seeds, repeats = len(plan.seeds), plan.profile.evaluation.num_repeats
    problems = [_problems(table, item) for item in items]
    num_tests = sum(len(of_item) + (len(of_item) > 1) for of_item in problems)
    averages = [assumed_spreads(plan, of_item).average for of_item in problems]
    before = statistics.median(detectable(spread, seeds, repeats, comparisons=num_tests) for spread in averages)
    design = f"{counted(seeds, 'seed')} and {counted(repeats, 'answer')} to each problem"
    could = "nothing, since one seed shows no difference" if math.isinf(before) else f"{100 * before:.1f} points"
    text = f"Before it ran, {design} could see {could} with power {POWER:g}, by assumed variances."
    after = [item.detectable for item in items if item.detectable is not None]
    if after:
        of = f" (median of {len(after)})" if len(after) > 1 else ""
        text += f" After it, with its own: {100 * statistics.median(after):.1f} points{of}."
    return text


def _problems(table: Table, item: Comparison) -> dict[str, int]:
    """How many problems each column has that the two rows were compared on."""
    counted_columns = zip(table.columns, item.differences, strict=False)
    of_columns = {column.id: found.estimate.num_problems for column, found in counted_columns if found is not None}
    return {name: count for name, count in of_columns.items() if name != AVERAGE}
