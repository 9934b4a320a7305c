"""From a plan to its page; `run-table all`: every table and ablation, one after the other, in one run folder.

Rows that two tables have in common are trained and evaluated once, since the store knows them by what they are made of.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from typer import echo

from atrl_bench.engines.devices import Cluster, Machine
from atrl_bench.errors import reason_of
from atrl_bench.experiments.definition import MAIN_TABLE, OWN, list_tables
from atrl_bench.experiments.plan import Plan, cell_keys, plan_table
from atrl_bench.experiments.progress import duration
from atrl_bench.experiments.run import run_plan
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.lab.signal.page import is_measured, render_signals
from atrl_bench.lab.signal.tables import list_signal_tables
from atrl_bench.papers.audit import audit
from atrl_bench.papers.paper import load_paper
from atrl_bench.printable import Block, Record, Rows
from atrl_bench.report.analysis_pages import write_audit
from atrl_bench.report.evaluations import write_evaluations
from atrl_bench.report.figures.draw import draw_all
from atrl_bench.report.front_page import write_index
from atrl_bench.report.rendered import rendered_tables
from atrl_bench.report.table_model import Table
from atrl_bench.report.table_run import TableRun, look_for_overlap, render


@dataclass(frozen=True)
class TableOutcome:
    """What became of one table: its cells by state, its page, and what failed, by the names of jobs or of the table."""

    table: str
    seconds: float
    cells: dict[str, int]
    report: Path | None
    failures: dict[str, str]


@dataclass(frozen=True)
class AllTables(Record):
    """What became of every table, in the order in which they were run."""

    tables: tuple[TableOutcome, ...]

    @property
    def has_failures(self) -> bool:
        return any(table.failures for table in self.tables)

    def blocks(self) -> Iterable[Block]:
        rows = []
        for table in self.tables:
            cells = ", ".join(f"{count} {state}" for state, count in table.cells.items()) or "failed"
            rows.append((table.table, duration(table.seconds), cells))
        yield Rows(rows, right=(1,), indent=0)
        for table in self.tables:
            for name, reason in table.failures.items():
                yield f"Failed: {name if name == table.table else f'{table.table}: {name}'}: {reason}"
        if self.has_failures:
            yield "The same command again does what is missing."
        yield from (f"Reports: {folder}" for folder in sorted({t.report.parent for t in self.tables if t.report}))


def run_table(plan: Plan, where: Machine | Cluster, *, jobs: int | None = None, quiet: bool = False) -> TableRun:
    """The table after all that could be trained and evaluated; once that is all, test problems are looked for in it."""
    result = run_plan(plan, where, jobs=jobs, quiet=quiet)
    if not result.failures:
        look_for_overlap(plan)
    return render(plan, num_done_now=result.num_done, failures=result.failures)


def run_all(
    run_dir: RunDir,
    where: Machine | Cluster,
    *,
    tables: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    jobs: int | None = None,
    quiet: bool = False,
) -> AllTables:
    """Every table; one that fails stops no other."""
    names = sorted(tables or list_tables(OWN), key=lambda name: (name != MAIN_TABLE, name))
    outcomes = []
    for number, name in enumerate(names, start=1):
        if not quiet:
            echo(f"Table {number} of {len(names)}: {name}")
        started = time.monotonic()
        try:
            result = run_table(plan_table(name, run_dir, seeds=seeds), where, jobs=jobs, quiet=quiet)
            became = _cells(result.table), result.page, result.failures
        except Exception as error:
            became = {}, None, {name: reason_of(error)}
        outcomes.append(TableOutcome(name, time.monotonic() - started, *became))
    finish_folder(run_dir)
    return AllTables(tuple(outcomes))


def _cells(table: Table) -> dict[str, int]:
    columns = len(table.columns) - table.has_average
    states = Counter(cell.state for row in table.rows for cell in row.cells[:columns])
    return {state: states[state] for state in sorted(states, key=("measured", *states).index)}


def report_all(run_dir: RunDir, *, max_problems: int | None = None, with_credit: bool = False) -> list[Path]:
    """The pages of what is stored: tables, by the seeds that they last had here, figures, audit and front page."""
    seeds = {name: table.seeds for name, table in rendered_tables(run_dir.reports).items()}
    pages = []
    for name in list_tables():
        plan = plan_table(name, run_dir, seeds=seeds.get(name))
        with run_dir.open_store() as store:
            cells = [store.cell(key) for keys in cell_keys(plan, store).values() for key in keys]
        if any(cell is not None and cell.num_responses for cell in cells):
            pages.append(render(plan, max_problems=max_problems, with_credit=with_credit).files[0])
    pages += [render_signals(name, run_dir).files[0] for name in list_signal_tables() if is_measured(name, run_dir)]
    return [*pages, *finish_folder(run_dir)]


def finish_folder(run_dir: RunDir) -> list[Path]:
    draw_all(run_dir)
    evaluations = [page for page in [write_evaluations(run_dir)] if page is not None]
    paper = load_paper(OWN)
    return [*evaluations, write_audit(audit(paper), run_dir.reports, paper)[0], write_index(run_dir)]
