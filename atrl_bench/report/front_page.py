"""The front page of a run folder: every table with its state, the figures, what ran, what it ran on.

Read from the store and from the reports that lie there already, so that it can be written again at any time: beside a
running command it says how far that is, and the same folder gives the same bytes on another day.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from atrl_bench.errors import StoreError
from atrl_bench.experiments.definition import TableDefinition, list_tables, load_table
from atrl_bench.experiments.flatten import flat_text
from atrl_bench.experiments.judge_choice import of_one_judge
from atrl_bench.experiments.progress import duration, label
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.report.findings import answers
from atrl_bench.report.page import render_page
from atrl_bench.results.files import write_atomically
from atrl_bench.results.store import Run

PARTS = {"title", "columns", "rows", "comparisons"}  # what of a rendered table is read here
OTHER_FORMS = {".md": "Markdown", ".csv": "CSV", ".tex": "LaTeX", "_document.tex": "LaTeX document", ".json": "JSON"}


@dataclass(frozen=True)
class Status:
    """How far one table is in this folder: its cells by state, the page to read, the command to type.

    A page of some rows or columns says in `shows` how many; what the store has of the others is not known here.
    """

    id: str
    title: str
    state: str
    measured: int
    partial: int
    failed: int
    not_measured: int
    total: int
    shows: str
    page: str
    others: tuple[tuple[str, str], ...]
    command: str

    @property
    def rest(self) -> tuple[tuple[int, str], ...]:
        """The cells without a finished number, counted and in words."""
        known = self.measured + self.partial + self.failed + self.not_measured
        counts = (self.partial, "partial"), (self.failed, "failed"), (self.total - known, "to run")
        return tuple((n, text) for n, text in (*counts, (self.not_measured, "not measured, with reasons")) if n)


@dataclass(frozen=True)
class Picture:
    """A figure of the folder with the numbers behind it."""

    name: str
    title: str
    description: str
    address: str
    data: str


@dataclass(frozen=True)
class Training:
    """One training run as a line."""

    name: str
    state: str
    time: str
    digest: str
    reason: str


def write_index(run_dir: RunDir) -> Path:
    """Write `index.html` among the reports of the run folder and return its path."""
    path = run_dir.reports / "index.html"
    try:
        write_atomically(path, render_index(run_dir).encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise StoreError(
            f"Cannot write {path}.", why=f"{error}.", next_step="use a folder you can write to with --out"
        ) from error
    return path


def render_index(run_dir: RunDir) -> str:
    """Return the front page of the folder."""
    reports = rendered(run_dir.reports)
    runs, cells, num_answers = _stored(run_dir)
    return render_page(
        "index.html.j2",
        pictures=True,
        profile=run_dir.profile,
        answers=answers(reports, run_dir.reports, run_dir.profile.name),
        tables=list(_statuses(run_dir, reports)),
        diagnostics=[
            (report["title"], figures)
            for report in reports.values()
            for figures in report.get("figures", ())
            if figures.get("rows")
        ],
        figures=list(_figures(run_dir)),
        pages=list(_pages(run_dir.reports, reports)),
        runs=[_training(run) for run in runs],
        cells=cells,
        num_answers=num_answers,
        environment=run_dir.environment(),
        settings=sorted(flat_text(run_dir.profile.model_dump(exclude={"name", "title"}))),
    )


def rendered(reports: Path) -> dict[str, dict[str, Any]]:
    """Return the tables that were rendered into this folder and can be read, by name, as their JSON has them."""
    found = {}
    for path in sorted(reports.glob("*.json")):
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # Damaged is as good as not rendered: rendering it again is what helps, and no other table waits.
        if isinstance(document, dict) and document.get("id") == path.stem and document.keys() >= PARTS:
            found[path.stem] = document
    return found


def _statuses(run_dir: RunDir, reports: Mapping[str, Mapping[str, Any]]) -> Iterable[Status]:
    known = list_tables()
    # The main table first; what was rendered without being a known table last.
    for name in [*sorted(known, key=lambda name: (name != "main_7b", name)), *sorted(set(reports) - set(known))]:
        yield _status(run_dir, name, load_table(name) if name in known else None, reports.get(name))


def _status(run_dir: RunDir, name: str, definition: TableDefinition | None, report: Mapping[str, Any] | None) -> Status:
    states: Counter[str] = Counter()
    for row in report["rows"] if report else ():
        cells = [c for c, column in zip(row["cells"], report["columns"], strict=True) if column["id"] != "average"]  # type: ignore[index]
        states.update(cell["state"] for cell in cells)
    total = states.total()
    if definition is not None and report is None:
        total = len(definition.rows) * len(definition.columns)
        unmeasured = [row for row in definition.rows if row.not_measured or row.served]
        states["not measured"] = len(unmeasured) * len(definition.columns)
    shows = _shown(definition, report) if definition and report else ""
    open_cells = total - states["not measured"] - states["measured"]
    state = "partial" if states["measured"] + states["partial"] else "not run"
    if not open_cells and not shows:
        state = "done"
    elif state == "not run" and states["failed"]:
        state = "failed"
    return Status(
        id=name,
        title=definition.title if definition else str(report["title"]) if report else name,
        state=state,
        measured=states["measured"],
        partial=states["partial"],
        failed=states["failed"],
        not_measured=states["not measured"],
        total=total,
        shows=shows,
        page=f"{name}.html" if report else "",
        others=tuple(
            (text, f"{name}{suffix}")
            for suffix, text in OTHER_FORMS.items()
            if report and (run_dir.reports / f"{name}{suffix}").is_file()
        ),
        command="" if state == "done" else f"atrl-bench run-table {name} --profile {run_dir.profile.name}",
    )


def _shown(definition: TableDefinition, report: Mapping[str, Any]) -> str:
    """Return how much of the table a page of some rows or columns shows, "" where it shows all."""
    parts = []
    for name, items in (("rows", definition.rows), ("columns", definition.columns)):
        shown = {item["id"] for item in report[name]} & {item.id for item in items}
        if len(shown) < len(items):
            parts.append(f"{len(shown)} of {len(items)} {name}")
    return " and ".join(parts)


def _figures(run_dir: RunDir) -> Iterable[Picture]:
    """Yield the figures that were drawn into this folder, each once."""
    for folder, address in ((run_dir.reports / "figures", "figures/"), (run_dir.root / "figures", "../figures/")):
        for path in sorted(folder.rglob("*.svg")):
            below = path.relative_to(folder)
            words = " ".join(re.split(r"[-_/]+", str(below.with_suffix(""))))
            data = path.with_suffix(".csv")
            text = path.read_text(encoding="utf-8", errors="replace")
            yield Picture(
                name=str(below.with_suffix("")),
                title=_inside(text, "title") or words.capitalize(),
                description=_inside(text, "desc"),
                address=address + quote(str(below)),
                data=address + quote(str(below.with_suffix(".csv"))) if data.is_file() else "",
            )


def _inside(svg: str, tag: str) -> str:
    """Return the text of the picture's own title or description, as plain text."""
    from html import unescape

    found = re.search(rf"<{tag}\b[^<>]*>([^<]*)</{tag}>", svg)
    return unescape(" ".join(found[1].split())) if found else ""


def _pages(reports: Path, tables: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield the other pages of the folder, such as the audit: their own titles and addresses."""
    for path in sorted(reports.glob("*.html")):
        if path.name != "index.html" and path.stem not in tables:
            title = _inside(path.read_text(encoding="utf-8", errors="replace")[:20_000], "title")
            yield title or path.stem, quote(path.name)


def _stored(run_dir: RunDir) -> tuple[list[Run], dict[str, int], int]:
    """Return the training runs, how many evaluations there are of each state, and how many answers they hold.

    Answers that were graded several times, by the rules and by a judge, are one evaluation.
    """
    if not run_dir.store_path.is_file():
        return [], {}, 0
    with run_dir.open_store(read_only=True) as store:
        cells = of_one_judge(store.cells(), run_dir.judge)
        runs = sorted(store.runs(), key=lambda run: (label("run", run.spec), run.key))
    states = Counter(cell.state for cell in cells)
    return runs, dict(sorted(states.items())), sum(cell.num_responses for cell in cells)


def _training(run: Run) -> Training:
    return Training(
        name=label("run", run.spec).removeprefix("train "),
        state=run.state,
        time="" if run.seconds is None else duration(run.seconds),
        digest=run.digest[:16],
        reason=run.reason,
    )
