"""From a plan to its rendered table, as far as the store is filled; and test problems in its training data."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from atrl_bench.analysis.contamination.overlap import overlap, overlap_counts
from atrl_bench.data.own import short
from atrl_bench.digests import canonical_json
from atrl_bench.errors import MissingDataError
from atrl_bench.experiments.answer_credit import shade_changes
from atrl_bench.experiments.definition import AVERAGE, file_stem
from atrl_bench.experiments.plan import Plan, best_rates, cell_keys, evaluations_of, obstacle, runs_by_rate
from atrl_bench.experiments.rates import Rates, span_text
from atrl_bench.experiments.run_dir import read_settings
from atrl_bench.experiments.spread import assumed_spreads
from atrl_bench.papers.printed import printed_beside
from atrl_bench.printable import Block, Record, counted
from atrl_bench.report.answers import AnswerSource, Pages, remembered_shades, write_samples
from atrl_bench.report.build import build_table, made_with, rate_grids, rate_note
from atrl_bench.report.cells import CellAt, TableSource
from atrl_bench.report.charts import Drawing, draw
from atrl_bench.report.differences import contrasts, with_headroom
from atrl_bench.report.front_page import write_index
from atrl_bench.report.html import render_html
from atrl_bench.report.latex import render_latex
from atrl_bench.report.page import lines_of
from atrl_bench.report.protocols import with_protocols
from atrl_bench.report.rendered import PageRecord, page_key, table_from_json
from atrl_bench.report.table_model import Comparison, Table
from atrl_bench.report.text import render_csv, render_json, render_markdown
from atrl_bench.results.files import write_texts, writing
from atrl_bench.results.statistics.power import POWER, detectable
from atrl_bench.results.store import Store


@dataclass(frozen=True)
class TableRun(Record):
    """A rendered table, its files, how many jobs were finished for it (None: none was to be run), and what failed."""

    table: Table
    files: tuple[Path, ...]
    num_done_now: int | None
    failures: dict[str, str]

    @property
    def page(self) -> Path | None:
        return next((path for path in self.files if path.suffix == ".html"), None)

    def blocks(self) -> Iterable[Block]:
        for name, reason in self.failures.items():
            yield f"Failed: {name}: {reason}"
        if self.num_done_now == 0 and not self.failures:
            yield "Everything was in the store; nothing was trained or generated."
        pages = [path for path in self.files if path.suffix == ".html"]
        for path in pages:
            yield f"Report: {path}"
        beside = [path.name for path in self.files if path not in pages and path.suffix != ".tex"]
        floats = [path for path in self.files if path.suffix == ".tex"]
        yield f"Beside it: {', '.join(beside)}" + (f"; LaTeX: {floats[0].parent}, one table a file" if floats else "")


def render(
    plan: Plan,
    *,
    max_problems: int | None = None,
    num_done_now: int | None = None,
    failures: dict[str, str] | None = None,
    with_credit: bool = False,
) -> TableRun:
    """The rendered table, as far as the store is filled, without running anything.

    `max_problems` is how many problems of a number the pages of answers show; None shows all. `with_credit` first has
    the models compute the credit of every answer whose verdict differs from the baseline's.
    """
    run_dir = plan.run_dir
    with run_dir.open_store() as store:
        planned = _PlannedTable(plan, store)
        table, drawings = planned.read()
        if with_credit:
            _shade_changes(plan, store, planned.keys)
        shades = remembered_shades(run_dir)
        known = plan.profile.generated_data
        answers = AnswerSource(store, planned.keys, run_dir.data_dir, shades, max_problems, has_known_anchors=known)
        files = _write(table, drawings, planned.record, answers, run_dir.reports)
    return TableRun(table, (*files, write_index(run_dir)), num_done_now, failures or {})


def _write(
    table: Table, drawings: Mapping[str, Drawing] | None, record: PageRecord, answers: AnswerSource, out: Path
) -> list[Path]:
    """The files of a table, written unless they are those that would come out."""
    with writing(f"the report to {out}"):
        pages = write_samples(table, answers, out)
    whole = PageRecord(answers.store, f"{file_stem(table.id)}.html", page_key(record.key, canonical_json(pages)))
    if drawings is not None and (kept := whole.unchanged(out)) is not None:
        return [out / file["name"] for file in kept]
    drawings = draw(table) if drawings is None else drawings
    files = _write_forms(table, out, pages, drawings)
    figures = [{"name": one.file, "shows": shows, "described": one.description} for shows, one in drawings.items()]
    record.keep(out, [{"name": f"{file_stem(table.id)}.json"}, *figures])
    whole.keep(out, [{"name": str(path.relative_to(out))} for path in files])
    return files


def _shade_changes(plan: Plan, store: Store, keys: Mapping[tuple[str, str], Sequence[str]]) -> None:
    tasks = {key: cell.spec["task"] for of_cell in keys.values() for key in of_cell if (cell := store.cell(key))}
    for row in plan.definition.rows:
        baseline = plan.definition.baseline_of(row)
        for column in plan.definition.columns if row.id != baseline else ():
            before = {tasks[key]: key for key in reversed(keys.get((baseline, column.id), ())) if key in tasks}
            for key in keys.get((row.id, column.id), ()):
                if key in tasks and tasks[key] in before:
                    shade_changes(store, key, before[tasks[key]], plan.run_dir)


def write_report(
    table: Table, out: Path, answers: AnswerSource | None = None, drawings: Mapping[str, Drawing] | None = None
) -> list[Path]:
    """Write the table as HTML, LaTeX, Markdown, CSV, JSON, its figures as SVG; return the paths, HTML first.

    With `answers`, the page's numbers open to pages of their own with everything that was asked and answered.
    """
    with writing(f"the report to {out}"):
        pages = write_samples(table, answers, out) if answers else {}
    return _write_forms(table, out, pages, draw(table) if drawings is None else drawings)


def _write_forms(
    table: Table, out: Path, pages: Mapping[tuple[str, str], Pages], drawings: Mapping[str, Drawing]
) -> list[Path]:
    stem = file_stem(table.id)
    with writing(f"the report to {out}"):
        return write_texts(
            out,
            {
                f"{stem}.html": render_html(table, pages, drawings),
                **{f"latex/{stem}{end}.tex": source for end, source in render_latex(table).items()},
                **{drawing.file: drawing.svg for drawing in drawings.values()},
                f"{stem}.md": render_markdown(table),
                f"{stem}.csv": render_csv(table),
                f"{stem}.json": render_json(table),
            },
        )


def read_table(plan: Plan, store: Store) -> Table:
    """The table as far as the store is filled: as it was rendered, where nothing has changed since.

    Where rows are compared at their best learning rates, these are its numbers, and all rates stand beside them.
    """
    return _PlannedTable(plan, store).read()[0]


class _PlannedTable:
    """A planned table as far as the store is filled: its numbers, what stands beside them, the record of its files."""

    def __init__(self, plan: Plan, store: Store) -> None:
        self.plan, self.store, self.rates = plan, store, best_rates(plan, store)
        self.printed = printed_beside(plan.definition)
        self.notes = [*_look_notes(plan), *_overlap_notes(plan)]
        self.lacking = _obstacles(plan)

    @cached_property
    def keys(self) -> dict[CellAt, list[str]]:
        """The cells of its numbers."""
        return cell_keys(self.plan.at(self.rates), self.store)

    @cached_property
    def record(self) -> PageRecord:
        """Of its files as they would be now: all that its numbers and its words depend on."""
        plan, store = self.plan, self.store
        keys = cell_keys(plan, store) if self.rates else self.keys
        cells = [(at, [store.cell(key) for key in of_cell]) for at, of_cell in sorted(keys.items())]
        key = page_key(
            *(plan.definition.model_dump_json(), plan.profile.model_dump_json(), plan.seeds),
            *(runs_by_rate(plan, store), cells, plan.run_dir.environment(), self.printed, self.notes, self.lacking),
        )
        return PageRecord(store, f"{file_stem(plan.definition.id)}.json", key)

    def read(self) -> tuple[Table, dict[str, Drawing] | None]:
        """The table, and its drawings where it is the one that was rendered."""
        reports = self.plan.run_dir.reports
        if (files := self.record.unchanged(reports)) is None:
            return self._built(), None
        table, *figures = [(file, (reports / file["name"]).read_text(encoding="utf-8")) for file in files]
        drawings = {file["shows"]: Drawing(file["name"], text, file["described"]) for file, text in figures}
        return table_from_json(table[1]), drawings

    def _built(self) -> Table:
        plan, store, rates = self.plan, self.store, self.rates
        table = self._at(rates)
        if rates:
            table = replace(
                table,
                equal_rate=self._at({}).comparisons,
                grids=(*table.grids, *rate_grids(plan, store, rates)),
                notes=(rate_note(plan, store, rates), *table.notes),
            )
        table = with_headroom(table, plan.definition)
        said = _before_and_after(table, plan)
        return replace(table, notes=(said, *table.notes)) if said else table

    def _at(self, rates: Rates) -> Table:
        plan, store, at = self.plan, self.store, self.plan.at(rates)
        source = TableSource(
            plan.definition,
            store,
            plan.profile,
            cell_keys(at, store),
            runs={row: list(chain(*of_row.values())) for row, of_row in runs_by_rate(at, store).items()},
            seeds=plan.seeds,
            recipes=plan.definition.recipes(),
            lacking=self.lacking,
        )
        judged_at = {row: text for row, of_seed in rates.items() if (text := span_text(of_seed))}
        table = build_table(source, printed=self.printed, notes=self.notes, rates=judged_at)
        return made_with(with_protocols(table, plan.definition), plan.profile, plan.run_dir.environment())


def _before_and_after(table: Table, plan: Plan) -> str:
    """What the design could see before it ran, by assumed variances, and what it saw; "" without numbers of credit."""
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


def _obstacles(plan: Plan) -> dict[str, str]:
    reasons = {
        column.id: [obstacle(item.task) for item in evaluations_of(column)] for column in plan.definition.columns
    }
    return {column: next(filter(None, of_column)) for column, of_column in reasons.items() if any(of_column)}


def _training_sets(plan: Plan) -> list[str]:
    return list(dict.fromkeys(job.recipe.data for job in plan.jobs if job.recipe is not None))


def _tasks(plan: Plan) -> list[str]:
    return list(dict.fromkeys(item.task for item in evaluations_of(*plan.definition.columns)))


def _look_notes(plan: Plan) -> list[str]:
    most = read_settings(plan.run_dir.root).looks.get(plan.definition.id)
    if most is None:
        return []
    return [
        f"Seeds were added until the comparisons were decided, at most {most}, at a level that counts the looks; the "
        "intervals here are those of a single look."
    ]


def _overlap_notes(plan: Plan) -> list[str]:
    try:
        of_sets = {train: overlap_counts(plan.run_dir, train, _tasks(plan)) for train in _training_sets(plan)}
    except MissingDataError:  # a partial table can be shown where the data is not
        return []
    return [overlap_note(plan.profile.option, train, counts) for train, counts in of_sets.items()]


def overlap_note(option: str, train: str, counts: Mapping[str, Mapping[str, Any] | None]) -> str:
    """The sentences that a table says about its training set and its benchmarks."""
    # Without the path of a folder: a page is the same wherever that lies.
    return " ".join(lines_of("overlap.txt.j2", train=short(train), counts=counts, option=option))


def look_for_overlap(plan: Plan) -> None:
    """Count the test problems in the training data, unless these data were looked through before.

    A table may have been killed between its last answer and this; where all was done before, the data may be gone.
    """
    for train in _training_sets(plan):
        with suppress(MissingDataError):
            counts = overlap_counts(plan.run_dir, train, _tasks(plan))
            tasks = [task for task, of_task in counts.items() if of_task is None]
            if tasks:
                overlap(train, tasks, plan.run_dir)
