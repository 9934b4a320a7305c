"""The front page of a run folder: its answers, every table with its state, the figures, what ran, what it ran on.

Read from the store and from the reports that lie there already, so that it can be written again at any time: beside a
running command it says how far that is, and the same folder gives the same bytes on another day.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from itertools import chain, compress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from atrl_bench.analysis.anchors import CREDIT, LAST, AnchorScore
from atrl_bench.digests import sha256
from atrl_bench.experiments.definition import (
    AVERAGE,
    MAIN_TABLE,
    OWN,
    TableDefinition,
    as_typed,
    file_stem,
    list_tables,
    paper_of,
    table_under,
)
from atrl_bench.experiments.judge_choice import of_one_judge
from atrl_bench.experiments.progress import duration, trained_label
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.plugins import paper_folders
from atrl_bench.printable import flat_text
from atrl_bench.report.differences import Answer, anchor_contrasts, answer_of, contrasts, counted, in_words
from atrl_bench.report.figures.anchors import read_scores
from atrl_bench.report.page import BESIDE, lines_of, render_page
from atrl_bench.report.rendered import PageRecord, page_key, rendered_tables
from atrl_bench.report.table_model import SIGNIFICANCE, Comparison, Table
from atrl_bench.results.files import write_texts, writing
from atrl_bench.results.statistics.means import benjamini_hochberg
from atrl_bench.results.store import Run

OTHER_FORMS = {"{}.md": "Markdown", "{}.csv": "CSV", "latex/{}.tex": "LaTeX", "{}.json": "JSON", "{}.svg": "the figure"}


# The cells without a finished number, in words.
REST = {"partial": "partial", "failed": "failed", "missing": "to run", "not measured": "not measured, with reasons"}


def write_index(run_dir: RunDir) -> Path:
    """The path of the page, which is left alone where nothing that it shows has changed."""
    path = run_dir.reports / "index.html"
    if not run_dir.store_path.is_file():  # nothing remembers what it was made from
        return _write_index(run_dir, path)
    with run_dir.open_store() as store:
        shown = PageRecord(store, path.name, _key(run_dir))
        if shown.unchanged(run_dir.reports) is None:
            _write_index(run_dir, path)
            shown.keep(run_dir.reports, [{"name": path.name}])
    return path


def _write_index(run_dir: RunDir, path: Path) -> Path:
    with writing(path):
        write_texts(run_dir.reports, {path.name: render_index(run_dir)})
    return path


def _key(run_dir: RunDir) -> str:
    """What names all that the page shows: the store's part of it, and every file that it reads or links to."""
    reports = run_dir.reports
    files = chain(reports.glob("*.*"), (reports / "latex").glob("*"), (reports / "figures").rglob("*.*"))
    shown = [path for path in sorted(files) if path.name != "index.html" and path.is_file()]
    digests = [(str(path.relative_to(reports)), sha256(path)) for path in shown]
    defined = [(name, sha256(path)) for name, home in paper_folders().items() for path in sorted(home.rglob("*.yaml"))]
    return page_key(run_dir.profile, _stored(run_dir), run_dir.environment(), digests, defined)


def render_index(run_dir: RunDir) -> str:
    tables = {name: table for name, table in rendered_tables(run_dir.reports).items() if table.rows}
    runs, cells, num_answers = _stored(run_dir)
    return render_page(
        "index.html.j2",
        images=BESIDE,
        profile=run_dir.profile,
        answers=findings(tables, read_scores(run_dir.reports / "figures" / "anchors.csv"), run_dir.profile.name),
        tables=list(_statuses(run_dir, tables)),
        rest=REST,
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
    names = [name for name in list_tables() if paper_of(name)[0] == OWN or name in tables]
    # The main table first; what was rendered without being a known table last.
    for name in [*sorted(names, key=lambda name: (name != MAIN_TABLE, name)), *sorted(set(tables) - set(names))]:
        defined = table_under(name, run_dir.profile) if name in names else tables[name]
        yield _status(run_dir, name, defined, tables.get(name))


def _status(run_dir: RunDir, name: str, defined: TableDefinition | Table, table: Table | None) -> dict[str, Any]:
    """How far one table is in this folder: its cells by state, the page to read, the command to type.

    A page of some rows or columns says in `shows` how many; what the store has of the others is not known here.
    """
    states, shows = _states(table or defined), _shows(defined, table) if table else ""
    state = _state(states, is_whole=not shows)
    forms, stem = OTHER_FORMS.items() if table else (), file_stem(name)
    options = run_dir.profile.training_option
    return {
        "id": name,
        "title": defined.title,
        "state": state,
        "cells": states,
        "shows": shows,
        "page": f"{stem}.html" if table else "",
        "others": [(t, path.format(stem)) for path, t in forms if (run_dir.reports / path.format(stem)).is_file()],
        "command": "" if state == "done" else f"atrl-bench run-table {as_typed(name)} {options}",
        "answer": answer_of(contrasts(table)) if table else None,
    }


def _state(states: Counter[str], *, is_whole: bool) -> str:
    if is_whole and states.total() == states["not measured"] + states["measured"]:
        return "done"
    if states["measured"] + states["partial"]:
        return "partial"
    return "failed" if states["failed"] else "not run"


def _states(shown: TableDefinition | Table) -> Counter[str]:
    if isinstance(shown, Table):  # averages are no cells of their own
        is_task = [column.id != AVERAGE for column in shown.columns]
        return Counter(cell.state for row in shown.rows for cell in compress(row.cells, is_task))
    unmeasured = [bool(row.not_measured or row.served) for row in shown.rows for _ in shown.columns]
    return Counter("not measured" if never else "missing" for never in unmeasured)


def _shows(whole: TableDefinition | Table, table: Table) -> str:
    parts = []
    for name in ("rows", "columns"):
        defined, rendered = getattr(whole, name), getattr(table, name)
        num_shown = len({item.id for item in defined} & {item.id for item in rendered})
        if num_shown < len(defined):
            parts.append(f"{num_shown} of {len(defined)} {name}")
    return " and ".join(parts)


def _figures(run_dir: RunDir) -> Iterable[dict[str, str]]:
    for path in sorted((run_dir.reports / "figures").rglob("*.svg")):
        below, data = path.relative_to(run_dir.reports), path.with_suffix(".csv")
        text = path.read_text(encoding="utf-8", errors="replace")
        yield {
            "title": _inside(text, "title") or path.stem,
            "description": _inside(text, "desc"),
            "address": quote(str(below)),
            "data": quote(str(below.with_suffix(".csv"))) if data.is_file() else "",
        }


def _inside(svg: str, tag: str) -> str:
    match = re.search(rf"<{tag}\b[^<>]*>([^<]*)</{tag}>", svg)
    return unescape(" ".join(match[1].split())) if match else ""


def _pages(reports: Path, tables: Mapping[str, Table]) -> Iterable[tuple[str, str]]:
    for path in sorted(reports.glob("*.html")):
        if path.name != "index.html" and path.stem not in map(file_stem, tables):
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


# What the folder answers ----------------------------------------------------------------------------------------------
#
# In words and from its own numbers: the comparisons of credit in its tables, the scores behind its figure on anchors.
# The accuracy while training has intervals over seeds alone, corrected for the number of comparisons.

HELPS = "Does AT-RL's credit help the methods that it is added to?"
PLACEMENT = "Does credit on the tokens that look at the image beat credit anywhere else?"
READINGS = "Which reading of the paper finds the tokens that are read from the image?"


@dataclass(frozen=True)
class Finding:
    """A question, what this folder says to it, the numbers behind that, and where to look; `command` where it is open.

    `answer` is the badge and the sentence, and `seen` what their figure shows in words, where the question is one about
    differences; `counted` says why the scores of the table do not subtract to these.

    An answer is the sentence that a hurried reader takes away, so it is as strong as the weakest of its numbers.
    """

    question: str
    text: str
    because: tuple[str, ...] = ()
    page: str = ""
    command: str = ""
    answer: Answer | None = None
    seen: str = ""
    counted: str = ""
    figure: str = ""  # the name of its file


def findings(tables: Mapping[str, Table], anchors: Sequence[AnchorScore], profile: str) -> list[Finding]:
    compared = [
        _compared(HELPS, MAIN_TABLE, tables.get(MAIN_TABLE), profile),
        _compared(PLACEMENT, "credit_placement", tables.get("credit_placement"), profile),
    ]
    readings = _readings(anchors)
    return compared if readings is None else [*compared, readings]


def _compared(question: str, name: str, table: Table | None, profile: str) -> Finding:
    of_anchors = anchor_contrasts(table) if table else []
    answer = answer_of(of_anchors)
    if answer is None:
        return Finding(question, "Not answered yet.", command=f"atrl-bench run-table {name} --profile {profile}")
    learning = _learning(of_anchors)
    because = lines_of(
        "contrasts.txt.j2",
        contrasts=of_anchors,
        num_learning=len(learning),
        learned=[pair for pair, q_value in learning if q_value < SIGNIFICANCE],
    )
    assert table is not None
    end = "" if len(of_anchors) == len(contrasts(table)) else "_anchors"
    words = {"seen": in_words(of_anchors), "counted": counted(table), "figure": f"{name}{end}.svg"}
    return Finding(question, answer.sentence, tuple(because), f"{file_stem(name)}.html#credit", answer=answer, **words)


def _learning(contrasts: Sequence[Comparison]) -> list[tuple[tuple[Comparison, float], float]]:
    """The differences in the accuracy while training, each with a p-value corrected for their number."""
    over_seeds = [(contrast, contrast.training.estimate()) for contrast in contrasts if contrast.training is not None]
    tested = [(contrast, estimate) for contrast, estimate in over_seeds if estimate is not None]
    q_values = benjamini_hochberg([estimate.p_value() for _, estimate in tested])
    return [((contrast, estimate.mean), q) for (contrast, estimate), q in zip(tested, q_values, strict=True)]


def _readings(scores: Sequence[AnchorScore]) -> Finding | None:
    density = {(s.reading, s.corrected, s.setting): s for s in scores if s.part == LAST}
    credit = {(s.preset, s.setting): s for s in scores if s.part == CREDIT}
    if not density or ("default", "atrl") not in credit:
        return None
    best = max(density.values(), key=lambda score: score.mean)
    answer, *because = lines_of(
        "readings.txt.j2",
        best=best,
        best_rule=max(credit.values(), key=lambda score: score.mean),
        default=credit["default", "atrl"],
        other_row=density["predicting" if best.reading == "own" else "own", best.corrected, best.setting],
        debiased=density[best.reading, True, best.setting],
        plain=density[best.reading, False, best.setting],
        credit=credit,
        auc=_auc,
        against=_against,
    )
    return Finding(READINGS, answer, tuple(because), "figures/anchors.svg")


def _auc(score: AnchorScore) -> str:
    return f"{score.mean:.2f} ±{1.96 * score.standard_error:.2f}"


def _against(score: AnchorScore, other: AnchorScore) -> str:
    """How one stands to another, whose errors are taken as independent: wider than a paired interval."""
    half_width = 1.96 * math.hypot(score.standard_error, other.standard_error)
    difference = score.mean - other.mean
    clear = "clear" if abs(difference) > half_width else "within noise"
    return f"{'+' if difference >= 0 else '−'}{abs(difference):.2f}, {clear}"
