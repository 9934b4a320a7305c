"""The pages behind one number: every problem with its picture, every answer with its verdict, filters that are links.

One page per (row, column), in parts where it would grow beyond a few megabytes, in files of their own beside the table:
they open from disk, on demand, without a server and without scripts. A filter is a link to the page's own address with
a `#` and a name; the style sheet hides the rest, so a filter can be bookmarked and sent to someone.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from jinja2 import Template
from markupsafe import Markup

from atrl_bench.evaluation.tasks import metric_name
from atrl_bench.experiments.answer_credit import remembered_credit
from atrl_bench.experiments.definition import file_stem
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.grading.judge.agreement import judge_summary
from atrl_bench.grading.judge.calibration import calibration_report
from atrl_bench.report.media import Pictures, pictures_of
from atrl_bench.report.page import BESIDE, html_environment, render_page
from atrl_bench.report.rendered import PageRecord, page_key
from atrl_bench.report.table_model import Column, Row, Table, TableCell
from atrl_bench.report.token_shades import Piece, Tokens, shaded
from atrl_bench.results.files import write_texts
from atrl_bench.results.records import Problem, Sample, Verdict
from atrl_bench.results.store import PROBLEMS_AT_ONCE, Cell, Store

PART_BYTES = 1_500_000  # of a page before the next one begins
# What a page can be filtered by, and in which words; the first six are verdicts, the others may come on top.
FILTERS = {
    "correct": "correct",
    "wrong": "wrong",
    "unparseable": "unparseable",
    "timed-out": "timed out",
    "judge-failed": "judge failed",
    "ungraded": "ungraded",
    "truncated": "truncated",
    "fixed": "wrong → right",
    "broken": "right → wrong",
    "disputed": "judge and rule disagree",
}
MARKS = {"correct": "✓", "wrong": "✗"}  # beside the word, never instead of it

CreditOf = Callable[[str], Mapping[tuple[str, int], Tokens]]  # of a cell's answers, by problem and repeat
TaskProblem = tuple[str, str]  # a task and one of its problems
# The baseline's answers to a problem: the score of each repeat, and what every other row shows beside its own.
BaselineAnswers = tuple[Mapping[int, float | None], Markup]


@dataclass(frozen=True)
class AnswerSource:
    """Where the answers behind a table's numbers are: the store, the cells of each (row, column), the datasets.

    `max_problems` is how many problems of a number are shown, the first ones; None shows all.
    """

    store: Store
    cell_keys: Mapping[tuple[str, str], Sequence[str]]
    data_dir: Callable[[str], Path | None] = lambda folder: None  # that has the dataset of this folder
    credit_of: CreditOf = field(default=lambda _: {})
    max_problems: int | None = None
    has_known_anchors: bool = False  # the problems were generated, so what is read from the image can be told


@dataclass(frozen=True)
class AnswerView:
    """One answer as it is shown, with its equals: `repeats` of one seed whose text and verdict are the same.

    `kinds` are the filters that keep it, each with how many of the repeats are of that kind.
    """

    sample: Sample
    seed: int | None
    repeats: tuple[int, ...]
    pieces: tuple[Piece, ...]
    kinds: Mapping[str, int]

    @property
    def source(self) -> str:
        words = [f"training seed {self.seed}"] if self.seed is not None else []
        if self.repeats:
            first, last = self.repeats[0], self.repeats[-1]
            is_run = len(self.repeats) == last - first + 1 > 2
            listed = f"{first} to {last}" if is_run else ", ".join(map(str, self.repeats))
            words.append(f"repeat{'s' if len(self.repeats) > 1 else ''} {listed}")
        return ", ".join(words)


@dataclass(frozen=True)
class ProblemView:
    """One problem with the answers to it, and the baseline's, rendered, beside them; `pictures` are names of files."""

    problem: Problem
    pictures: tuple[str, ...]
    answers: tuple[AnswerView, ...]
    others: Markup


@dataclass(frozen=True)
class PagePart:
    """One file of a page: its name and how many of its answers each filter keeps, 0 for a filter that is not there."""

    name: str
    counts: Counter[str]
    problems: list[Markup]
    first: int = 1  # the number of its first problem on the whole page


@dataclass(frozen=True)
class Pages:
    """What a table links to for one number: the parts of its page, without their problems, in one folder."""

    folder: str
    parts: tuple[PagePart, ...]

    def count(self, kind: str) -> int:
        return sum(part.counts.get(kind, 0) for part in self.parts)

    def parts_with(self, kind: str) -> list[tuple[int, PagePart]]:
        return [(number, part) for number, part in enumerate(self.parts, start=1) if part.counts.get(kind, 0)]


def write_samples(table: Table, answers: AnswerSource, out: Path) -> dict[tuple[str, str], Pages]:
    """Write the pages of every cell that has answers below `out`; return by (row, column) what there is to link to.

    A page of which nothing has changed since it was written is left alone. Pages of this table that an earlier report
    wrote and this one does not have are removed.
    """
    folder = f"samples/{file_name(file_stem(table.id))}/"
    writer = _Writer(table, answers, out)
    pages: dict[tuple[str, str], Pages] = {}
    for position, column in enumerate(table.columns):
        # Column by column, so that the baseline's answers to one are rendered once.
        writer.baselines.clear()
        writer.problems.clear()
        for row, cell in ((row, row.cells[position]) for row in table.rows):
            record = PageRecord(answers.store, f"{folder}{row.id}.{column.id}", writer.key(row, column, cell))
            kept = record.unchanged(out / folder)
            parts = writer.write(row, column, cell, out / folder) if kept is None else [PagePart(**it) for it in kept]
            if parts:
                pages[row.id, column.id] = Pages(folder, tuple(parts))
            if parts and kept is None:
                record.keep(out / folder, [vars(part) for part in parts])
    written = {part.name for links in pages.values() for part in links.parts}
    for old in (out / folder).glob("*.html"):
        if old.name not in written:
            old.unlink()
    answers.store.forget_pages(folder, {f"{folder}{row}.{column}" for row, column in pages})
    return pages


class _Writer:
    """What the pages of one table have in common."""

    def __init__(self, table: Table, answers: AnswerSource, out: Path) -> None:
        self.table, self.answers, self.out = table, answers, out
        self.baselines: dict[str, dict[TaskProblem, BaselineAnswers]] = {}  # of one column, by row
        self.problems: dict[str, dict[str, Problem]] = {}  # of one column, by cell
        self.pictures: dict[str, Pictures] = {}
        self.shown: dict[str, list[str]] = {}
        self.cells = {
            at: [cell for key in keys if (cell := answers.store.cell(key)) is not None]
            for at, keys in answers.cell_keys.items()
        }
        self.seeds = {run.digest: run.spec.get("seed", 0) for run in answers.store.runs() if run.digest}
        self.labels = {row.id: row.label for row in table.rows}

    @cached_property
    def problem(self) -> Template:
        return html_environment().get_template("samples_problem.html.j2")

    @cached_property
    def answer(self) -> Any:
        return html_environment().get_template("samples_answer.html.j2").module.answer  # type: ignore[attr-defined]

    def key(self, row: Row, column: Column, cell: TableCell) -> str:
        """What names all that the page of a number shows: equal means that it would be the same page."""
        baseline, store, cells = row.baseline, self.answers.store, self._answered_cells(row, column)
        return page_key(
            *(self.answers.max_problems, self.answers.has_known_anchors, PART_BYTES),
            *(self.table.id, self.table.title, self.table.profile, row.id, row.label, column, cell.estimate),
            *(cell.counts.samples, baseline, self.labels.get(baseline), self._neighbours(row, column)),
            [(one.key, one.version, self.seeds.get(str(one.spec.get("model_digest")))) for one in cells],
            [(one.key, one.version) for one in self._cells(baseline, column.id)],
            [sorted(self.answers.credit_of(one.key).items()) for one in cells],
            [sorted(self._pictures(one, self._shown(one)).items()) for one in cells],
            [calibration_report(store, one.spec["judge"]) for one in cells if one.spec.get("judge")],
        )

    def write(self, row: Row, column: Column, cell: TableCell, folder: Path) -> list[PagePart]:
        parts = self.parts(row, column)
        links = [replace(part, problems=[]) for part in parts]
        cells = self._cells(row.id, column.id)
        summaries = [judge_summary(self.answers.store, one.key) for one in cells]
        same_row, same_column = self._neighbours(row, column)
        for number, part in enumerate(parts, start=1):
            html = render_page(
                "samples.html.j2",
                images=BESIDE,
                script="answers.js",
                table=self.table,
                row=row,
                column=column,
                metric=metric_name([str(one.spec["task"]) for one in cells], column.metric),
                cell=cell,
                part=part,
                number=number,
                links=Pages("", tuple(links)),
                filters=FILTERS,
                judged=[summary.line for summary in summaries if summary is not None],
                is_shaded=any('<span class="tok' in problem for problem in part.problems),
                has_anchors=any(' read">' in problem for problem in part.problems),
                baseline="" if row.baseline == row.id else self.labels.get(row.baseline, ""),
                same_row=same_row,
                same_column=same_column,
            )
            write_texts(folder, {part.name: html})
        return links

    def parts(self, row: Row, column: Column) -> list[PagePart]:
        parts, num_bytes = list[PagePart](), 0
        for position, (fragment, counts) in enumerate(self._fragments(row, column), start=1):
            num_bytes += len(fragment)
            if not parts or num_bytes > PART_BYTES:
                parts.append(PagePart(_part_name(row, column, len(parts) + 1), Counter(), [], position))
                num_bytes = len(fragment)
            parts[-1].problems.append(fragment)
            parts[-1].counts.update(counts)
        return parts

    def _fragments(self, row: Row, column: Column) -> Iterator[tuple[Markup, Counter[str]]]:
        asked = self._asked(row, column)
        is_suite = len({task for task, _ in asked}) > 1
        for position, ((task, _), view) in enumerate(self._views(row, column, asked), start=1):
            counts = Counter[str]()
            for answer in view.answers:
                counts.update(answer.kinds)
            html = self.problem.render(
                position=position,
                task=task if is_suite else "",
                view=view,
                kinds=sorted(counts),
                marks=MARKS,
                texts=FILTERS,
                label=row.label,
                other=self.labels.get(row.baseline, ""),
            )
            counts["all"] = sum(len(answer.repeats) or 1 for answer in view.answers)
            yield Markup(html), counts  # the template has escaped every value in it

    def _asked(self, row: Row, column: Column) -> dict[TaskProblem, list[Cell]]:
        asked: dict[TaskProblem, list[Cell]] = {}
        for cell in self._answered_cells(row, column):
            for name in self._shown(cell):
                asked.setdefault((_task(cell), name), []).append(cell)
        return asked

    def _views(
        self, row: Row, column: Column, asked: Mapping[TaskProblem, Sequence[Cell]]
    ) -> Iterator[tuple[TaskProblem, ProblemView]]:
        """Yield the problems with their answers, a few problems in memory at a time."""
        cells = self._answered_cells(row, column)
        seeds = {cell.key: self.seeds.get(str(cell.spec.get("model_digest"))) for cell in cells}
        has_seeds = len(set(seeds.values())) > 1
        credit = {cell.key: self.answers.credit_of(cell.key) for cell in cells}
        pictures = {cell.key: self._pictures(cell, self._shown(cell)) for cell in cells}
        order = list(asked)
        for start in range(0, len(order), PROBLEMS_AT_ONCE):
            some = order[start : start + PROBLEMS_AT_ONCE]
            answered = {cell.key: self._answers(cell, [at for at in some if cell in asked[at]]) for cell in cells}
            others = {} if row.id == row.baseline else self._of_baseline(row.baseline, column, some)
            for at in some:
                before, beside = others.get(at, ({}, Markup()))
                views, problem = list[AnswerView](), None
                for cell in asked[at]:
                    samples, seed = answered[cell.key].get(at, []), seeds[cell.key] if has_seeds else None
                    if samples and problem is None:
                        problem = samples[0].problem, pictures[cell.key].get(at[1], ())
                    views += self._merged(samples, seed, before, credit[cell.key])
                if problem is not None:
                    yield at, ProblemView(*problem, tuple(views), beside)

    def _of_baseline(
        self, row: str, column: Column, some: Sequence[TaskProblem]
    ) -> Mapping[TaskProblem, BaselineAnswers]:
        """The baseline's answers of its first training seed, at least those to these problems."""
        rendered = self.baselines.setdefault(row, {})
        new = [at for at in some if at not in rendered]
        answers: dict[TaskProblem, list[Sample]] = {}
        for cell in self._cells(row, column.id) if new else ():
            answers = self._answers(cell, new) | answers
        for at in new:
            samples = answers.get(at, [])
            views = self._merged(samples, None, {}, {})
            html = Markup("").join(self.answer(view, True, MARKS, FILTERS) for view in views)
            rendered[at] = {sample.response.repeat: sample.score for sample in samples}, html
        return rendered

    def _answers(self, cell: Cell, some: Iterable[TaskProblem]) -> dict[TaskProblem, list[Sample]]:
        task, store = _task(cell), self.answers.store
        if cell.key not in self.problems:
            self.problems[cell.key] = {problem.problem_id: problem for problem in store.problems(cell.key)}
        problems = self.problems[cell.key]
        wanted = [problems[name] for of_task, name in some if of_task == task and name in problems]
        of_problem: dict[TaskProblem, list[Sample]] = {}
        for sample in store.samples_of(cell.key, wanted):
            of_problem.setdefault((task, sample.problem.problem_id), []).append(sample)
        return of_problem

    def _merged(
        self,
        samples: Sequence[Sample],
        seed: int | None,
        before: Mapping[int, float | None],
        credit: Mapping[tuple[str, int], Tokens],
    ) -> Iterator[AnswerView]:
        """Yield the answers of one seed to one problem, those of equal text and verdict as one."""
        has_repeats = any(sample.response.repeat for sample in samples)
        groups: dict[tuple[str, bool, str], list[Sample]] = {}
        for sample in samples:
            name = (sample.response.text, sample.response.truncated, repr(without_calls(sample.verdict)))
            groups.setdefault(name, []).append(sample)
        for equal in groups.values():
            of_samples = (kinds_of(sample, before.get(sample.response.repeat)) for sample in equal)
            kinds = Counter(chain.from_iterable(of_samples))
            names = [(sample.problem.problem_id, sample.response.repeat) for sample in equal]
            tokens = next((credit[name] for name in names if name in credit), ())
            is_whole = bool(tokens) and "".join(text for text, _ in tokens) == equal[0].response.text
            yield AnswerView(
                sample=equal[0],
                seed=seed,
                repeats=tuple(sample.response.repeat for sample in equal) if has_repeats else (),
                pieces=shaded(tokens, has_known_anchors=self.answers.has_known_anchors) if is_whole else (),
                kinds=kinds,
            )

    def _cells(self, row: str, column: str) -> Sequence[Cell]:
        return self.cells.get((row, column), ())

    def _answered_cells(self, row: Row, column: Column) -> list[Cell]:
        return [cell for cell in self._cells(row.id, column.id) if cell.num_responses]

    def _shown(self, cell: Cell) -> list[str]:
        if cell.key not in self.shown:
            answered = self.answers.store.answered(cell.key)
            names = [name for name in self.answers.store.problem_ids(cell.key) if name in answered]
            self.shown[cell.key] = names[: self.answers.max_problems]
        return self.shown[cell.key]

    def _neighbours(self, row: Row, column: Column) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        of_row = [one for one in self.table.columns if self._answered_cells(row, one)]
        of_column = [one for one in self.table.rows if self._answered_cells(one, column)]
        return (
            [(one.text, _part_name(row, one)) for one in of_row],
            [(one.label, _part_name(one, column)) for one in of_column],
        )

    def _pictures(self, cell: Cell, problem_ids: Sequence[str]) -> Pictures:
        name = repr([cell.spec.get("task"), cell.spec.get("data_digest"), cell.spec.get("limit")])
        of_data = self.pictures.setdefault(name, {})
        if new := [name for name in problem_ids if name not in of_data]:
            drawn = pictures_of(cell.spec, new, self.out / "media", self.answers.data_dir)
            of_data |= dict.fromkeys(new, ()) | drawn
        return {name: of_data[name] for name in problem_ids}


def _task(cell: Cell) -> str:
    return str(cell.spec.get("task", ""))


def kinds_of(sample: Sample, before: float | None) -> Iterable[str]:
    """Yield the filters that keep an answer; `before` is the baseline's score on the same question and repeat."""
    yield sample.state.replace(" ", "-")
    if sample.response.truncated:
        yield "truncated"
    if before is not None and sample.score is not None and (before == 1.0) != (sample.score == 1.0):
        yield "broken" if before == 1.0 else "fixed"
    if sample.verdict is not None and set(sample.verdict.opinions) == {"correct", "wrong"}:
        yield "disputed"


def without_calls(verdict: Verdict | None) -> Verdict | None:
    """What a page says of a verdict: not how many requests it took, which a kill on the way changes."""
    if verdict is None or "calls" not in verdict.details:
        return verdict
    return verdict._replace(details={name: value for name, value in verdict.details.items() if name != "calls"})


def remembered_shades(run_dir: RunDir) -> CreditOf:
    named = {path.name.partition("-")[0] for path in (run_dir.root / "credit").glob("*-*.jsonl")}

    def credit_of(key: str) -> dict[tuple[str, int], Tokens]:
        if key not in named:
            return {}
        remembered = remembered_credit(key, run_dir)
        return {answer: list(zip(credit.texts, credit.credit_T, strict=True)) for answer, credit in remembered.items()}

    return credit_of


def file_name(name: str) -> str:
    """The name, or its digest where no file should be called so."""
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", name) and ".." not in name:
        return name
    return hashlib.sha256(name.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def _part_name(row: Row, column: Column, number: int = 1) -> str:
    name = file_name(f"{row.id}.{column.id}")
    return f"{name}.html" if number == 1 else f"{name}-{number}.html"
