"""`run-table all`: every table and ablation, one after the other, in one run folder.

Rows that two tables have in common are trained and evaluated once, since the store knows them by what they are made of.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atrl_bench.errors import AtrlBenchError
from atrl_bench.escape import folded
from atrl_bench.experiments.definition import list_tables
from atrl_bench.experiments.progress import duration
from atrl_bench.experiments.run import Outcome, cell_keys, plan_table, render, run_table
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import Profile
from atrl_bench.report.front_page import write_index
from atrl_bench.report.rendered import rendered_tables
from atrl_bench.report.table_model import Table
from atrl_bench.results.store import Store

FIRST = "main_7b"  # the table that people wait for, and whose trainings most others share


@dataclass(frozen=True)
class Everything:
    """What became of every table: its outcome, or why there is none; `seconds` is how long each took."""

    outcomes: dict[str, Outcome]
    errors: dict[str, str]
    seconds: dict[str, float]

    @property
    def has_failures(self) -> bool:
        """Whether anything is missing that should be there."""
        return bool(self.errors) or any(outcome.failures for outcome in self.outcomes.values())

    def records(self) -> list[dict[str, Any]]:
        """Return a record for each table: its cells by state, its page, what failed."""
        return [
            {
                "table": name,
                "seconds": round(self.seconds[name], 1),
                "cells": _states(self.outcomes[name].table) if name in self.outcomes else {},
                "report": next((str(path) for path in self.outcomes[name].files if path.suffix == ".html"), "")
                if name in self.outcomes
                else "",
                "failures": self.outcomes[name].failures if name in self.outcomes else {name: self.errors[name]},
            }
            for name in self.seconds
        ]

    def summary(self) -> str:
        """Return a line for each table, eighty columns wide, then what failed."""
        lines = []
        for record in self.records():
            cells = ", ".join(f"{count} {state}" for state, count in record["cells"].items()) or "failed"
            lines.append(f"{record['table']:<24} {duration(record['seconds']):>8}  {cells}")
        for record in self.records():
            for name, reason in record["failures"].items():
                where = name if name == record["table"] else f"{record['table']}: {name}"
                lines += folded(f"Failed: {where}: {reason}", rest="  ")
        if self.has_failures:
            lines.append("The same command again does what is missing.")
        folders = {path.parent for outcome in self.outcomes.values() for path in outcome.files}
        return "\n".join([*lines, *(f"Reports: {folder}" for folder in sorted(folders))])


def run_all(
    *,
    profile: Profile,
    workspace: Path | None = None,
    tables: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    data_dir: Path | None = None,
    jobs: int | None = None,
    quiet: bool = False,
    on_table: Callable[[int, int, str], None] | None = None,
) -> Everything:
    """Return every table after running what the store lacks; a table that fails does not stop the others.

    `on_table(number, how many, name)` is called before each.
    """
    names = sorted(tables or list_tables(), key=lambda name: (name != FIRST, name))
    everything = Everything({}, {}, {})
    for number, name in enumerate(names, start=1):
        if on_table is not None:
            on_table(number, len(names), name)
        started = time.monotonic()
        try:
            plan = plan_table(name, profile=profile, workspace=workspace, seeds=seeds, data_dir=data_dir)
            everything.outcomes[name] = run_table(plan, jobs=jobs, quiet=quiet)
        except AtrlBenchError as error:
            everything.errors[name] = error.what
        except Exception as error:
            everything.errors[name] = f"{type(error).__name__}: {error}"
        everything.seconds[name] = time.monotonic() - started
    finish_folder(RunDir.at(workspace, profile, data_dir))
    return everything


def report_all(
    *,
    profile: Profile,
    workspace: Path | None = None,
    data_dir: Path | None = None,
    max_problems: int | None = None,
) -> list[Path]:
    """Return the pages of a run folder, rendered from its store: every table that has a number, the audit, the front.

    A table keeps the training seeds that it was last rendered with here. Every figure that there is data for is drawn
    before the front page, which shows them.
    """
    run_dir = RunDir.at(workspace, profile, data_dir)
    seeds = {name: table.seeds for name, table in rendered_tables(run_dir.reports).items()}
    pages = []
    for name in list_tables():
        plan = plan_table(name, profile=profile, workspace=workspace, seeds=seeds.get(name), data_dir=data_dir)
        with Store.open(run_dir.store_path) as store:
            stored = [store.cell(key) for keys in cell_keys(plan, store).values() for key in keys]
        if any(cell is not None and cell.num_responses for cell in stored):
            pages.append(render(plan, max_problems=max_problems).files[0])
    return [*pages, *finish_folder(run_dir)]


def finish_folder(run_dir: RunDir) -> list[Path]:
    """Draw every figure that there is data for, then write the audit and the front page; return these two."""
    from atrl_bench.analysis.audit import audit
    from atrl_bench.report.audit_page import write_audit
    from atrl_bench.report.figures.draw import draw_all

    draw_all(run_dir)
    return [write_audit(audit(), run_dir.reports)[0], write_index(run_dir)]


def _states(table: Table) -> dict[str, int]:
    """Return how many cells are in each state; averages are no cells of their own."""
    columns = len(table.columns) - table.has_average
    states = [cell.state for row in table.rows for cell in row.cells[:columns]]
    return {state: states.count(state) for state in sorted(set(states), key=("measured", *states).index)}
