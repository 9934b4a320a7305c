"""The tables of signals: what each credit rule is worth at the bases of the worlds, and how far it agrees with itself.

Built from stored measurements alone. A base that is not measured here is a column that says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from atrl_bench.errors import reason_of
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.lab.signal.efficiency import Efficiency
from atrl_bench.lab.signal.record import RuleSignal, Signal
from atrl_bench.lab.signal.stored import SignalColumn, read_signal, signal_columns
from atrl_bench.lab.signal.tables import SignalTable, load_signal_table
from atrl_bench.printable import Block, Command, Record, Rows
from atrl_bench.report.front_page import write_index
from atrl_bench.report.table_model import Grid, GridCell, Table
from atrl_bench.report.table_run import TableRun, write_report
from atrl_bench.results.statistics.means import Estimate

Measured = Sequence[tuple[SignalColumn, Signal | None]]


@dataclass(frozen=True)
class SignalPlan(Record):
    """What a table of signals still has to measure."""

    table: str
    profile: str
    folder: str
    columns: tuple[tuple[str, str, int, int], ...]
    """World and base, state, responses, passes forward and back."""
    next: str

    def blocks(self) -> Iterable[Block]:
        yield f"{self.table} under profile {self.profile}, in {self.folder}"
        yield ""
        rows = [(name, f"{responses:,}", f"{passes:,}", state) for name, state, responses, passes in self.columns]
        yield Rows(rows, ("Measurements", "responses", "passes", ""), right=(1, 2), indent=0, cut=True)
        yield "A pass is one forward and backward over a group of responses; sampling and tried steps come beside it."
        yield Command(self.next)


def plan_signals(name: str, run_dir: RunDir) -> SignalPlan:
    table, group = load_signal_table(name), run_dir.profile.training.group_size
    lines = []
    for column, signal in _measured(table, run_dir):
        state = column.obstacle or ("done" if signal else "to do")
        request = column.request
        lines.append((_title(column), state, request.prompts * group, request.prompts * len(request.rules)))
    command = f"atrl-bench run-table {name} {run_dir.options}"
    return SignalPlan(name, run_dir.profile.name, str(run_dir.root), tuple(lines), command)


def run_signals(name: str, run_dir: RunDir, *, quiet: bool) -> TableRun:
    """The rendered table after every base that the store lacks was measured, as far as that succeeds."""
    from atrl_bench.lab.signal.measure import measured_signal

    failures, num_measured = {}, 0
    for column, signal in _measured(load_signal_table(name), run_dir):
        if signal is None and not column.obstacle:
            try:
                measured_signal(column.request, run_dir, quiet=quiet)
                num_measured += 1
            except Exception as error:  # the other bases go on
                failures[_title(column)] = reason_of(error)
    return render_signals(name, run_dir, num_measured_now=num_measured, failures=failures)


def render_signals(
    name: str, run_dir: RunDir, *, num_measured_now: int | None = None, failures: dict[str, str] | None = None
) -> TableRun:
    """The rendered table, as far as the store is filled, without measuring anything."""
    table = signal_table(load_signal_table(name), run_dir)
    files = write_report(table, run_dir.reports)
    return TableRun(table, (*files, write_index(run_dir)), num_measured_now, failures or {})


def is_measured(name: str, run_dir: RunDir) -> bool:
    return any(signal is not None for _, signal in _measured(load_signal_table(name), run_dir))


def _measured(table: SignalTable, run_dir: RunDir) -> Measured:
    columns = signal_columns(table, run_dir)
    if not run_dir.store_path.is_file():
        return [(column, None) for column in columns]
    with run_dir.open_store(read_only=True) as store:
        return [(column, read_signal(store, column.key)) for column in columns]


def signal_table(table: SignalTable, run_dir: RunDir) -> Table:
    """A table of signals, as far as the store is filled."""
    columns = _measured(table, run_dir)
    grids = _efficiencies(table, columns) if table.shows == "efficiency" else _reliabilities(table, columns)
    notes = [_of(column, signal) for column, signal in columns if signal is not None]
    for column, signal in columns:
        if signal is None:
            run = f"Not measured yet: atrl-bench run-table {table.id} {run_dir.options}"
            notes.append(f"{_title(column)}: {column.obstacle or run}")
    return Table(
        id=table.id,
        title=table.title,
        caption=table.caption,
        label=table.label,
        profile=run_dir.profile.name,
        profile_title=run_dir.profile.title,
        says=_answer(table, grids),
        grids=grids,
        notes=tuple(notes),
        environment=tuple(sorted(run_dir.environment().items())),
    )


def _efficiencies(table: SignalTable, columns: Measured) -> tuple[Grid, ...]:
    grid, ratio = partial(_grid, table, columns), "95 % intervals draw blocks of problems again; * excludes 1."
    return (
        grid(
            "Efficiency, with Adam",
            "How many times as many prompts uniform credit needs for the same gain, of gradients divided by the root "
            f"of their second moments, as Adam divides them. {ratio}",
            lambda rule: _efficiency(rule.efficiency_scaled),
            neutral=1.0,
            is_drawn=True,
            is_ratio=True,
        ),
        grid(
            "Efficiency, of plain gradients",
            f"The same without Adam. {ratio}",
            lambda rule: _efficiency(rule.efficiency),
            neutral=1.0,
            is_ratio=True,
        ),
        grid(
            "What one step gains over uniform credit",
            "Points of success on problems that the step was not made from, each rule at its own best step size, minus "
            "uniform credit at its own; ± half of the 95 % interval over directions, in brackets the difference that "
            "could be detected with 80 % power. Read it with the efficiency: noise may lie where it does no harm.",
            lambda rule: _gain(rule.step.over_uniform) if rule.step else None,
            neutral=0.0,
            is_drawn=True,
        ),
    )


def _reliabilities(table: SignalTable, columns: Measured) -> tuple[Grid, ...]:
    grid = partial(_grid, table, columns)
    return (
        grid(
            "Agreement with itself under another seed",
            f"{' '.join(table.caption.split())} A rule without any chance is not drawn by seeds and agrees fully.",
            lambda rule: _share(rule.reliability, rule.reliability_ends),
            is_drawn=True,
        ),
        grid(
            "AUC on the tokens read from the image",
            "The chance that a token read from the image has more credit than another one, with the 95 % interval over "
            "problems; * excludes 0.5, which is chance.",
            lambda rule: _share(rule.anchor_auc, rule.auc_ends, 0.5),
            neutral=0.5,
        ),
        grid(
            "Share of the weight on the 15 % of tokens with the most",
            "0.15 is uniform credit. A property of the responses, without an interval.",
            lambda rule: _share(rule.top_share, (math.nan, math.nan)),
        ),
    )


def _grid(
    table: SignalTable,
    columns: Measured,
    title: str,
    explanation: str,
    cell_of: Callable[[RuleSignal], GridCell | None],
    **looks: Any,
) -> Grid:
    cells = [(rule, tuple(_cell(rule, column, signal, cell_of) for column, signal in columns)) for rule in table.rules]
    return Grid(title, explanation, tuple(_title(column) for column, _ in columns), tuple(cells), "Rule", **looks)


def _cell(
    rule: str, column: SignalColumn, signal: Signal | None, cell_of: Callable[[RuleSignal], GridCell | None]
) -> GridCell:
    if rule not in column.rules:
        return GridCell("–", reason=f"The data of {column.world} does not say which tokens {rule} puts credit on.")
    if signal is None:
        return GridCell("not run", reason=column.obstacle or "Not measured here yet.")
    return cell_of(next(one for one in signal.rules if one.rule == rule)) or GridCell("–", reason="Not measured.")


def _efficiency(efficiency: Efficiency) -> GridCell:
    if math.isnan(efficiency.factor):
        return GridCell("–", reason="The signal of the batch was not told from zero.")
    high = math.inf if math.isnan(efficiency.high) else efficiency.high  # which JSON has no word for
    text = f"{efficiency.factor:.2f} [{efficiency.low:.2f}, {high:.2f}]".replace("inf", "∞")
    return GridCell(text, efficiency.factor, efficiency.low, high, _verdict(efficiency.low, high, 1.0))


def _gain(gain: Estimate) -> GridCell:
    low, high = gain.interval()
    text = f"{gain.mean:+.1f} ±{gain.half_width():.1f}".replace("-", "−")
    seen = f"({gain.detectable():.1f})" if gain.stderr > 0 else ""
    return GridCell(text, gain.mean, low, high, _verdict(low, high, 0.0), seen)


def _share(value: float, ends: tuple[float, float], neutral: float | None = None) -> GridCell:
    if math.isnan(value):
        return GridCell("–", reason="The credit is the same for all tokens, or nothing is known of them.")
    low, high = ends
    text = f"{value:.2f}" if math.isnan(low) else f"{value:.2f} [{low:.2f}, {high:.2f}]"
    verdict = "" if neutral is None else _verdict(low, high, neutral)
    return GridCell(text.replace("-", "−"), value, low, high, verdict)


def _verdict(low: float, high: float, neutral: float) -> Literal["up", "down", ""]:
    """On which side of a number an interval lies."""
    return "up" if low > neutral else "down" if high < neutral else ""


def _answer(table: SignalTable, grids: Sequence[Grid]) -> str:
    """What a hurried reader takes away, as strong as the intervals allow."""
    first, parts = grids[0], []
    for number, column in enumerate(first.columns):
        cells = [(name, cells[number]) for name, cells in first.rows if not math.isnan(cells[number].value)]
        if not cells:
            continue
        if table.shows == "efficiency":
            up = [f"{name} {cell.value:.2f}" for name, cell in cells if cell.verdict == "up"]
            down = [f"{name} {cell.value:.2f}" for name, cell in cells if cell.verdict == "down"]
            parts.append(f"{column}: above 1 {', '.join(up) or 'none'}; below 1 {', '.join(down) or 'none'}.")
        else:
            lowest = min(cells, key=lambda cell: cell[1].value)
            parts.append(f"{column}: the least, {lowest[0]}, {lowest[1].text}.")
    if not parts and any(cell.seen for _, cells in grids[-1].rows for cell in cells):
        return "The signal of these batches was not told from zero, and no rule from another."
    if not parts:
        return "Nothing is measured here yet."
    if table.shows == "efficiency":
        return f"Efficiency with Adam, where the interval leaves 1 out. {' '.join(parts)}"
    return f"How far a credit agrees with itself. {' '.join(parts)}"


def _of(column: SignalColumn, signal: Signal) -> str:
    return (
        f"{_title(column)}: {signal.responses:,} responses to {signal.prompts} problems of {signal.data}, "
        f"{signal.success:.0%} right; gradients of {signal.parameters:,} parameters; measurement {column.key}."
    )


def _title(column: SignalColumn) -> str:
    return f"{column.world}: {column.base}"
