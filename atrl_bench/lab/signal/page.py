"""The tables of signals: what each credit rule is worth at the bases of the worlds, and how far it agrees with itself.

Built from stored measurements alone. A base that is not measured here is a column that says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from atrl_bench.errors import reason_of
from atrl_bench.experiments.price import Price
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.lab.signal.efficiency import Efficiency
from atrl_bench.lab.signal.price import signal_price
from atrl_bench.lab.signal.record import RuleSignal
from atrl_bench.lab.signal.stored import SignalColumn, signal_columns
from atrl_bench.lab.signal.tables import SignalGrid, SignalTable, load_signal_table
from atrl_bench.report.front_page import write_index
from atrl_bench.report.page import lines_of
from atrl_bench.report.table_model import Grid, GridCell, Table
from atrl_bench.report.table_run import TableRun, write_report
from atrl_bench.results.statistics.means import Estimate


def price_of_signals(name: str, run_dir: RunDir) -> Price:
    costs, notes = [], []
    for column in signal_columns(load_signal_table(name), run_dir):
        if column.obstacle:
            notes.append(f"{column.title}: {column.obstacle}")
        else:
            [cost] = signal_price(column.request, run_dir).costs
            state = "done" if column.signal else "to do"
            costs.append(replace(cost, row=column.title, state=state, checkpoint=column.key))
    command = f"atrl-bench run-table {name} {run_dir.options}"
    return Price(name, run_dir, tuple(costs), next=command, notes=tuple(notes), noun="measurement")


def run_signals(name: str, run_dir: RunDir, *, quiet: bool) -> TableRun:
    """The rendered table after every base that the store lacks was measured, as far as that succeeds."""
    from atrl_bench.lab.signal.measure import measured_signal

    failures, num_measured = {}, 0
    for column in signal_columns(load_signal_table(name), run_dir):
        if column.signal is None and not column.obstacle:
            try:
                measured_signal(column.request, run_dir, quiet=quiet)
                num_measured += 1
            except Exception as error:  # the other bases go on
                failures[column.title] = reason_of(error)
    return render_signals(name, run_dir, num_measured_now=num_measured, failures=failures)


def render_signals(
    name: str, run_dir: RunDir, *, num_measured_now: int | None = None, failures: dict[str, str] | None = None
) -> TableRun:
    """The rendered table, as far as the store is filled, without measuring anything."""
    table = signal_table(load_signal_table(name), run_dir)
    files = write_report(table, run_dir.reports)
    return TableRun(table, (*files, write_index(run_dir)), num_measured_now, failures or {})


def is_measured(name: str, run_dir: RunDir) -> bool:
    return any(column.signal is not None for column in signal_columns(load_signal_table(name), run_dir))


def signal_table(table: SignalTable, run_dir: RunDir) -> Table:
    columns = signal_columns(table, run_dir)
    grids = tuple(_grid(table, grid, columns) for grid in table.grids)
    return Table(
        id=table.id,
        title=table.title,
        caption=table.caption,
        label=table.label,
        profile=run_dir.profile.name,
        profile_title=run_dir.profile.title,
        says=_answer(table, grids),
        grids=grids,
        notes=tuple(lines_of("signal_notes.txt.j2", columns=columns, table=table, run_dir=run_dir)),
        environment=tuple(sorted(run_dir.environment().items())),
    )


def _grid(table: SignalTable, grid: SignalGrid, columns: Sequence[SignalColumn]) -> Grid:
    titles = tuple(column.title for column in columns)
    rows = tuple((rule, tuple(_cell(rule, grid, column) for column in columns)) for rule in table.rules)
    about = grid.title, " ".join(grid.explanation.split())
    return Grid(*about, titles, rows, "Rule", grid.neutral, is_drawn=grid.is_drawn, is_ratio=grid.is_ratio)


def _cell(rule: str, grid: SignalGrid, column: SignalColumn) -> GridCell:
    if rule not in column.rules:
        return GridCell("–", reason=f"The data of {column.world} does not say which tokens {rule} puts credit on.")
    if column.signal is None:
        return GridCell("not run", reason=column.obstacle or "Not measured here yet.")
    return rule_cell(next(one for one in column.signal.rules if one.rule == rule), grid.shows, grid.neutral)


def _efficiency(efficiency: Efficiency) -> GridCell:
    if math.isnan(efficiency.factor):
        return GridCell("–", reason="The signal of the batch is not clearly different from zero.")
    return GridCell(efficiency.text, efficiency.factor, efficiency.low, efficiency.upper)


def _gain(gain: Estimate) -> GridCell:
    text = f"{gain.mean:+.1f} ±{gain.half_width():.1f}".replace("-", "−")
    return GridCell(text, gain.mean, *gain.interval(), seen=f"({gain.detectable():.1f})" if gain.stderr > 0 else "")


def _share(value: float, ends: tuple[float, float] = (math.nan, math.nan)) -> GridCell:
    if math.isnan(value):
        return GridCell("–", reason="The credit is the same for all tokens, or nothing is known of them.")
    text = f"{value:.2f}" if math.isnan(ends[0]) else f"{value:.2f} [{ends[0]:.2f}, {ends[1]:.2f}]"
    return GridCell(text.replace("-", "−"), value, *ends)


# The numbers that a grid may show.
CELLS: dict[str, Callable[[RuleSignal], GridCell]] = {
    "efficiency": lambda rule: _efficiency(rule.efficiency),
    "efficiency_scaled": lambda rule: _efficiency(rule.efficiency_scaled),
    "over_uniform": lambda rule: _gain(rule.step.over_uniform) if rule.step else GridCell("–", reason="Not measured."),
    "reliability": lambda rule: _share(rule.reliability, rule.reliability_ends),
    "anchor_auc": lambda rule: _share(rule.anchor_auc, rule.auc_ends),
    "top_share": lambda rule: _share(rule.top_share),
}


def rule_cell(rule: RuleSignal, shows: str, neutral: float | None) -> GridCell:
    """One number of a rule, with the side of `neutral` on which its interval lies."""
    cell = CELLS[shows](rule)
    if neutral is None:
        return cell
    return replace(cell, verdict="up" if cell.low > neutral else "down" if cell.high < neutral else "")


def _answer(table: SignalTable, grids: Sequence[Grid]) -> str:
    """What a hurried reader takes away, as strong as the intervals allow."""
    first = grids[0]
    known = [
        (title, {name: cells[number] for name, cells in first.rows if not math.isnan(cells[number].value)})
        for number, title in enumerate(first.columns)
    ]
    is_stepped = any(cell.seen for _, cells in grids[-1].rows for cell in cells)
    columns = [(title, cells) for title, cells in known if cells]
    about = {"says": table.says, "neutral": first.neutral, "columns": columns, "is_stepped": is_stepped}
    return " ".join(lines_of("signal_answer.txt.j2", **about))
