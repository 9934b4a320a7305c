"""`run-table all`: every table and ablation, one after the other, in one run folder.

Rows that two tables have in common are trained and evaluated once, since the store knows them by what they are made of.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atrl_bench.analysis.audit import audit
from atrl_bench.cli.table_run import run_table
from atrl_bench.engines.devices import Cluster, Machine
from atrl_bench.errors import AtrlBenchError
from atrl_bench.experiments.definition import list_tables
from atrl_bench.experiments.plan import cell_keys, plan_table
from atrl_bench.experiments.progress import duration
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.lab.signal.page import is_measured, render_signals
from atrl_bench.lab.signal.tables import list_signal_tables
from atrl_bench.printable import Block, Record, Rows
from atrl_bench.report.audit_page import write_audit
from atrl_bench.report.figures.draw import draw_all
from atrl_bench.report.front_page import write_index
from atrl_bench.report.rendered import rendered_tables
from atrl_bench.report.table_run import TableRun, render

FIRST = "main_7b"  # the table that people wait for, and whose trainings most others share


@dataclass(frozen=True)
class TableOutcome:
    """What became of one table: what was rendered, or why nothing was, and how long it took."""

    name: str
    seconds: float
    rendered: TableRun | None
    error: str = ""

    @property
    def cells(self) -> dict[str, int]:
        """How many cells are in each state; averages are no cells of their own."""
        if self.rendered is None:
            return {}
        table = self.rendered.table
        columns = len(table.columns) - table.has_average
        states = Counter(cell.state for row in table.rows for cell in row.cells[:columns])
        return {state: states[state] for state in sorted(states, key=("measured", *states).index)}

    @property
    def failures(self) -> dict[str, str]:
        """What failed, by the names of jobs or of the table."""
        return {self.name: self.error} if self.rendered is None else self.rendered.failures


@dataclass(frozen=True)
class AllTables(Record):
    """What became of every table, in the order in which they were run."""

    tables: tuple[TableOutcome, ...]

    @property
    def has_failures(self) -> bool:
        """Whether anything is missing that should be there."""
        return any(table.failures for table in self.tables)

    def document(self) -> list[dict[str, Any]]:
        """Return what `--json` prints: of each table its cells by state, its page, what failed."""
        return [
            {
                "table": table.name,
                "seconds": round(table.seconds, 1),
                "cells": table.cells,
                "report": str((table.rendered and table.rendered.page) or ""),
                "failures": table.failures,
            }
            for table in self.tables
        ]

    def blocks(self) -> Iterable[Block]:
        """Yield a row for each table, then what failed, then where the pages are."""
        rows = []
        for table in self.tables:
            cells = ", ".join(f"{count} {state}" for state, count in table.cells.items()) or "failed"
            rows.append((table.name, duration(table.seconds), cells))
        yield Rows(rows, right=(1,), indent=0)
        for table in self.tables:
            for name, reason in table.failures.items():
                yield f"Failed: {name if name == table.name else f'{table.name}: {name}'}: {reason}"
        if self.has_failures:
            yield "The same command again does what is missing."
        folders = {path.parent for table in self.tables if table.rendered for path in table.rendered.files}
        yield from (f"Reports: {folder}" for folder in sorted(folders))


def run_all(
    run_dir: RunDir,
    where: Machine | Cluster,
    *,
    tables: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    jobs: int | None = None,
    quiet: bool = False,
    on_table: Callable[[int, int, str], None] | None = None,
) -> AllTables:
    """Return every table after running what the store lacks; a table that fails does not stop the others.

    `on_table(number, how many, name)` is called before each.
    """
    names = sorted(tables or list_tables(), key=lambda name: (name != FIRST, name))
    outcomes = []
    for number, name in enumerate(names, start=1):
        if on_table is not None:
            on_table(number, len(names), name)
        outcomes.append(_run(name, run_dir, where, seeds, jobs, quiet))
    finish_folder(run_dir)
    return AllTables(tuple(outcomes))


def _run(
    name: str, run_dir: RunDir, where: Machine | Cluster, seeds: Sequence[int] | None, jobs: int | None, quiet: bool
) -> TableOutcome:
    started, result, error = time.monotonic(), None, ""
    try:
        result = run_table(plan_table(name, run_dir, seeds=seeds), where, jobs=jobs, quiet=quiet)
    except AtrlBenchError as caught:
        error = caught.what
    except Exception as caught:
        error = f"{type(caught).__name__}: {caught}"
    return TableOutcome(name, time.monotonic() - started, result, error)


def report_all(run_dir: RunDir, *, max_problems: int | None = None, with_credit: bool = False) -> list[Path]:
    """Return the pages of a run folder, rendered from its store: every table that has a number, the audit, the front.

    A table keeps the training seeds that it was last rendered with here. Every figure that there is data for is drawn
    before the front page, which shows them.
    """
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
    """Draw every figure that there is data for, then write the audit and the front page; return these two."""
    draw_all(run_dir)
    return [write_audit(audit(), run_dir.reports)[0], write_index(run_dir)]
