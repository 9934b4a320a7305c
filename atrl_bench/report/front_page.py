"""The front page of a run folder: every table with its state, the figures, what ran, what it ran on.

Read from the store and from the reports that lie there already, so that it can be written again at any time: beside a
running command it says how far that is, and the same folder gives the same bytes on another day.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from html import unescape
from itertools import compress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from atrl_bench.experiments.definition import AVERAGE, TableDefinition, list_tables, load_table
from atrl_bench.experiments.judge_choice import of_one_judge
from atrl_bench.experiments.progress import duration, trained_label
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.printable import flat_text
from atrl_bench.report.differences import answer_of, contrasts
from atrl_bench.report.figures.anchors import read_scores
from atrl_bench.report.findings import findings
from atrl_bench.report.page import BESIDE, render_page
from atrl_bench.report.rendered import rendered_tables
from atrl_bench.report.table_model import Table
from atrl_bench.results.files import write_texts, writing
from atrl_bench.results.store import Run

OTHER_FORMS = {"{}.md": "Markdown", "{}.csv": "CSV", "latex/{}.tex": "LaTeX", "{}.json": "JSON", "{}.svg": "the figure"}


# The cells without a finished number, in words.
REST = {"partial": "partial", "failed": "failed", "missing": "to run", "not measured": "not measured, with reasons"}


def write_index(run_dir: RunDir) -> Path:
    path = run_dir.reports / "index.html"
    with writing(path):
        write_texts(run_dir.reports, {path.name: render_index(run_dir)})
    return path


def render_index(run_dir: RunDir) -> str:
    tables = {name: table for name, table in rendered_tables(run_dir.reports).items() if table.rows}
    runs, cells, num_answers = _stored(run_dir)
    return render_page(
        "index.html.j2",
        images=BESIDE,
        profile=run_dir.profile,
        answers=findings(tables, read_scores(run_dir.reports / "figures" / "anchors.csv"), run_dir.profile.name),
        tables=list(_statuses(run_dir, tables)),
        diagnostics=[(table.title, grid) for table in tables.values() for grid in table.grids],
        figures=list(_figures(run_dir)),
        pages=list(_pages(run_dir.reports, tables)),
        runs=[(trained_label(run.spec), run) for run in runs],
        duration=duration,
        cells=cells,
        num_answers=num_answers,
        environment=run_dir.environment(),
        settings=sorted(flat_text(run_dir.profile.settings())),
    )


def _statuses(run_dir: RunDir, tables: Mapping[str, Table]) -> Iterable[dict[str, Any]]:
    names = list_tables()
    # The main table first; what was rendered without being a known table last.
    for name in [*sorted(names, key=lambda name: (name != "main_7b", name)), *sorted(set(tables) - set(names))]:
        yield _status(run_dir, name, load_table(name) if name in names else None, tables.get(name))


def _status(run_dir: RunDir, name: str, definition: TableDefinition | None, table: Table | None) -> dict[str, Any]:
    """How far one table is in this folder: its cells by state, the page to read, the command to type.

    A page of some rows or columns says in `shows` how many; what the store has of the others is not known here.
    """
    states = _states(definition, table)
    shows = _shows(definition, table) if definition and table else ""
    open_cells = states.total() - states["not measured"] - states["measured"]
    state = "partial" if states["measured"] + states["partial"] else "not run"
    if not open_cells and not shows:
        state = "done"
    elif state == "not run" and states["failed"]:
        state = "failed"
    forms = OTHER_FORMS.items() if table else ()
    return {
        "id": name,
        "title": definition.title if definition else table.title if table else name,
        "state": state,
        "cells": states,
        "shows": shows,
        "rest": [(states[state], text) for state, text in REST.items() if states[state]],
        "page": f"{name}.html" if table else "",
        "others": [(t, path.format(name)) for path, t in forms if (run_dir.reports / path.format(name)).is_file()],
        "command": "" if state == "done" else f"atrl-bench run-table {name} {run_dir.profile.training_option}",
        "answer": answer_of(contrasts(table)) if table else None,
    }


def _states(definition: TableDefinition | None, table: Table | None) -> Counter[str]:
    if table is not None:  # averages are no cells of their own
        is_task = [column.id != AVERAGE for column in table.columns]
        return Counter(cell.state for row in table.rows for cell in compress(row.cells, is_task))
    if definition is None:
        return Counter()
    unmeasured = [bool(row.not_measured or row.served) for row in definition.rows for _ in definition.columns]
    return Counter("not measured" if never else "missing" for never in unmeasured)


def _shows(definition: TableDefinition, table: Table) -> str:
    parts = []
    for name in ("rows", "columns"):
        defined, rendered = getattr(definition, name), getattr(table, name)
        num_shown = len({item.id for item in defined} & {item.id for item in rendered})
        if num_shown < len(defined):
            parts.append(f"{num_shown} of {len(defined)} {name}")
    return " and ".join(parts)


def _figures(run_dir: RunDir) -> Iterable[dict[str, str]]:
    for folder, address in ((run_dir.reports / "figures", "figures/"), (run_dir.root / "figures", "../figures/")):
        for path in sorted(folder.rglob("*.svg")):
            below = path.relative_to(folder)
            words = " ".join(re.split(r"[-_/]+", str(below.with_suffix(""))))
            data = path.with_suffix(".csv")
            text = path.read_text(encoding="utf-8", errors="replace")
            yield {
                "title": _inside(text, "title") or words.capitalize(),
                "description": _inside(text, "desc"),
                "address": address + quote(str(below)),
                "data": address + quote(str(below.with_suffix(".csv"))) if data.is_file() else "",
            }


def _inside(svg: str, tag: str) -> str:
    match = re.search(rf"<{tag}\b[^<>]*>([^<]*)</{tag}>", svg)
    return unescape(" ".join(match[1].split())) if match else ""


def _pages(reports: Path, tables: Mapping[str, Table]) -> Iterable[tuple[str, str]]:
    for path in sorted(reports.glob("*.html")):
        if path.name != "index.html" and path.stem not in tables:
            title = _inside(path.read_text(encoding="utf-8", errors="replace")[:20_000], "title")
            yield title or path.stem, quote(path.name)


def _stored(run_dir: RunDir) -> tuple[list[Run], dict[str, int], int]:
    """The training runs, how many evaluations there are of each state, and how many answers they hold.

    Answers that were graded several times, by the rules and by a judge, are one evaluation.
    """
    if not run_dir.store_path.is_file():
        return [], {}, 0
    with run_dir.open_store(read_only=True) as store:
        cells = of_one_judge(store.cells(), run_dir.judge, run_dir.engine)
        runs = sorted(store.runs(), key=lambda run: (trained_label(run.spec), run.key))
    states = Counter(cell.state for cell in cells)
    return runs, dict(sorted(states.items())), sum(cell.num_responses for cell in cells)
