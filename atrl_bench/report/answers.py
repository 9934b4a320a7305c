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
from pathlib import Path

from markupsafe import Markup

from atrl_bench.experiments.answer_credit import remembered_credit
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.grading.judge.report import judge_summary
from atrl_bench.report.media import Pictures, pictures_of
from atrl_bench.report.page import html_environment, render_page
from atrl_bench.report.table_model import Column, Row, Table, TableCell
from atrl_bench.results.files import write_texts
from atrl_bench.results.records import Problem, Sample
from atrl_bench.results.store import Cell, Store

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

Tokens = Sequence[tuple[str, float]]  # the pieces of a response, in order, each with its share of the credit
CreditOf = Callable[[str], Mapping[tuple[str, int], Tokens]]  # of a cell's answers, by problem and repeat


@dataclass(frozen=True)
class AnswerSource:
    """Where the answers behind a table's numbers are: the store, the cells of each (row, column), the datasets.

    `max_problems` is how many problems of a number are shown, the first ones; None shows all.
    """

    store: Store
    cell_keys: Mapping[tuple[str, str], Sequence[str]]
    data_dir: Callable[[str], Path | None] = lambda folder: None  # that has the dataset of this folder
    baseline: str = ""
    credit_of: CreditOf = field(default=lambda _: {})
    max_problems: int | None = None


@dataclass(frozen=True)
class Piece:
    """A piece of a response and how dark it is shaded: 0 is not at all; `is_top` for the most credited ones."""

    text: str
    level: int
    is_top: bool


@dataclass(frozen=True)
class AnswerView:
    """One answer as it is shown; `source` says which seed and repeat, `kinds` are the filters that keep it."""

    sample: Sample
    source: str
    tokens: Tokens
    kinds: tuple[str, ...]

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The response in shades, nothing where its credit is not known."""
        joined = "".join(text for text, _ in self.tokens)
        return shaded(self.tokens) if joined == self.sample.response.text else ()


@dataclass(frozen=True)
class ProblemView:
    """One problem with the answers to it; `pictures` are the names of files."""

    problem: Problem
    pictures: tuple[str, ...]
    answers: list[AnswerView]


@dataclass(frozen=True)
class PagePart:
    """One file of a page: its name and how many of its answers each filter keeps."""

    name: str
    counts: Mapping[str, int]
    problems: tuple[Markup, ...]


@dataclass(frozen=True)
class Pages:
    """What a table links to for one number: the parts of its page, without their problems, in one folder."""

    folder: str
    parts: tuple[PagePart, ...]

    def count(self, kind: str) -> int:
        """Return how many answers a filter keeps, "all" of them or those of a kind."""
        return sum(part.counts[kind] for part in self.parts)

    def parts_with(self, kind: str) -> list[tuple[int, PagePart]]:
        """Return the parts where a filter has something to show, each with its number."""
        return [(number, part) for number, part in enumerate(self.parts, start=1) if part.counts[kind]]


def write_samples(table: Table, answers: AnswerSource, out: Path) -> dict[tuple[str, str], Pages]:
    """Write the pages of every cell that has answers below `out`; return by (row, column) what there is to link to.

    Pages of this table that an earlier report wrote and this one does not have are removed.
    """
    folder = f"samples/{file_name(table.id)}/"
    writer = _Writer(table, answers, out)
    pages: dict[tuple[str, str], Pages] = {}
    written: set[str] = set()
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            parts = list(writer.parts(row, column))
            if not parts:
                continue
            links = Pages(folder, tuple(replace(part, problems=()) for part in parts))
            contents = writer.contents(row, column, cell, parts, links)
            written.update(path.name for path in write_texts(out / folder, contents))
            pages[row.id, column.id] = links
    for old in (out / folder).glob("*.html"):
        if old.name not in written:
            old.unlink()
    return pages


class _Writer:
    """What the pages of one table have in common."""

    def __init__(self, table: Table, answers: AnswerSource, out: Path) -> None:
        self.table, self.answers, self.out = table, answers, out
        self.problem = html_environment().get_template("samples_problem.html.j2")
        self.pictures: dict[str, Pictures] = {}
        # What the baseline made of each answer, to tell what a method changed.
        self.before: dict[tuple[str, str], dict[tuple[str, str, int], bool]] = {}
        self.seeds = {run.digest: run.spec.get("seed", 0) for run in answers.store.runs() if run.digest}
        self.labels = {row.id: row.label for row in table.rows}

    def parts(self, row: Row, column: Column) -> Iterator[PagePart]:
        """Yield the problems of a cell in files of a bearable size."""
        name = file_name(f"{row.id}.{column.id}")
        views = self._views(row, column)
        is_suite = len({task for task, _ in views}) > 1
        number, fragments, counts = 1, list[Markup](), Counter[str]()
        for position, ((task, _), view) in enumerate(views.items(), start=1):
            of_problem = Counter(kind for answer in view.answers for kind in answer.kinds)
            fragment = Markup(  # the template has escaped every value in it
                self.problem.render(
                    position=position,
                    task=task if is_suite else "",
                    view=view,
                    kinds=sorted(of_problem),
                    marks=MARKS,
                    texts=FILTERS,
                )
            )
            if fragments and sum(map(len, fragments)) + len(fragment) > PART_BYTES:
                yield PagePart(_part_name(name, number), counts, tuple(fragments))
                number, fragments, counts = number + 1, [], Counter()
            fragments.append(fragment)
            counts.update(of_problem, all=len(view.answers))
        if fragments:
            yield PagePart(_part_name(name, number), counts, tuple(fragments))

    def _views(self, row: Row, column: Column) -> dict[tuple[str, str], ProblemView]:
        cells = [cell for cell in self._cells(row.id, column.id) if cell.num_responses]
        seeds = {cell.key: self.seeds.get(str(cell.spec.get("model_digest"))) for cell in cells}
        has_seeds = len(set(seeds.values())) > 1
        before = {} if row.id == self._baseline(row) else self._before(self._baseline(row), column.id)
        views: dict[tuple[str, str], ProblemView] = {}
        for cell in cells:
            task, samples = str(cell.spec.get("task", "")), self._first(self.answers.store.samples(cell.key))
            credit = self.answers.credit_of(cell.key)
            has_repeats = any(sample.response.repeat for sample in samples)
            pictures = self._pictures(cell, _problem_ids(samples))
            for sample in samples:
                name, repeat = sample.problem.problem_id, sample.response.repeat
                words = [f"training seed {seeds[cell.key]}"] * has_seeds + [f"repeat {repeat}"] * has_repeats
                view = views.setdefault((task, name), ProblemView(sample.problem, pictures.get(name, ()), []))
                kinds = tuple(_kinds(sample, before.get((task, name, repeat))))
                view.answers.append(AnswerView(sample, ", ".join(words), credit.get((name, repeat), ()), kinds))
        return views

    def _cells(self, row: str, column: str) -> list[Cell]:
        keys = self.answers.cell_keys.get((row, column), ())
        return [cell for key in keys if (cell := self.answers.store.cell(key)) is not None]

    def _first(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        """Return the answers to the first problems, as many as are to be shown."""
        names = set(_problem_ids(samples)[: self.answers.max_problems])
        return [sample for sample in samples if sample.problem.problem_id in names]

    def contents(
        self, row: Row, column: Column, cell: TableCell, parts: Sequence[PagePart], links: Pages
    ) -> dict[str, str]:
        """Return the HTML of each part by its name."""
        keys = self.answers.cell_keys.get((row.id, column.id), ())
        summaries = [judge_summary(self.answers.store, key) for key in keys]
        baseline = self._baseline(row)
        return {
            part.name: render_page(
                "samples.html.j2",
                pictures=True,
                table=self.table,
                row=row,
                column=column,
                cell=cell,
                part=part,
                number=number,
                links=links,
                filters=FILTERS,
                judged=[summary.line for summary in summaries if summary is not None],
                is_shaded=any('<span class="c' in problem for problem in part.problems),
                baseline="" if baseline == row.id else self.labels.get(baseline, ""),
            )
            for number, part in enumerate(parts, start=1)
        }

    def _baseline(self, row: Row) -> str:
        return row.baseline or self.answers.baseline

    def _before(self, row: str, column: str) -> dict[tuple[str, str, int], bool]:
        """Return whether the baseline's answers were right, by task, problem and repeat, of its first training seed."""
        if (row, column) not in self.before:
            right: dict[tuple[str, str, int], bool] = {}
            for cell in self._cells(row, column):
                for sample in self.answers.store.samples(cell.key):
                    at = str(cell.spec.get("task", "")), sample.problem.problem_id, sample.response.repeat
                    if sample.score is not None:
                        right.setdefault(at, sample.score == 1.0)
            self.before[row, column] = right
        return self.before[row, column]

    def _pictures(self, cell: Cell, problem_ids: Sequence[str]) -> Pictures:
        """Return the pictures of a cell's problems, drawn once for all cells of the same data."""
        name = repr([cell.spec.get("task"), cell.spec.get("data_digest"), cell.spec.get("limit")])
        of_data = self.pictures.setdefault(name, {})
        if not of_data:
            of_data |= pictures_of(cell.spec, problem_ids, self.out / "media", self.answers.data_dir)
        return of_data


def _problem_ids(samples: Sequence[Sample]) -> list[str]:
    return list(dict.fromkeys(sample.problem.problem_id for sample in samples))


def _kinds(sample: Sample, was_right: bool | None) -> Iterable[str]:
    yield sample.state.replace(" ", "-")
    if sample.response.truncated:
        yield "truncated"
    if was_right is not None and sample.score is not None and was_right != (sample.score == 1.0):
        yield "broken" if was_right else "fixed"
    if sample.verdict is not None and set(sample.verdict.opinions) == {"correct", "wrong"}:
        yield "disputed"


LEVELS = 6  # of shading above none
TOP_FRACTION = 0.15  # of the tokens, which the paper calls anchors


def shaded(tokens: Tokens) -> tuple[Piece, ...]:
    """Return the pieces with their shade: none for the least credited token, the darkest for the most.

    The scale is the response's own. Equal credit everywhere is no shade at all: there is nothing to see.
    """
    values = [value for _, value in tokens]
    low, high = min(values, default=0.0), max(values, default=0.0)
    if not high > low:
        return tuple(Piece(text, 0, is_top=False) for text, _ in tokens)
    top = sorted(values, reverse=True)[max(1, round(TOP_FRACTION * len(values))) - 1]
    return tuple(
        Piece(text, round(LEVELS * (value - low) / (high - low)), is_top=value >= top) for text, value in tokens
    )


def remembered_shades(run_dir: RunDir) -> CreditOf:
    """Return what gives the credit that was computed before, of any answer of a run folder."""

    def credit_of(key: str) -> dict[tuple[str, int], Tokens]:
        if not any((run_dir.root / "credit").glob(f"{key}-*.jsonl")):
            return {}
        remembered = remembered_credit(key, run_dir)
        return {answer: list(zip(credit.texts, credit.credit_T, strict=True)) for answer, credit in remembered.items()}

    return credit_of


def file_name(name: str) -> str:
    """Return the name, or its digest where no file should be called so."""
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", name) and ".." not in name:
        return name
    return hashlib.sha256(name.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def _part_name(name: str, number: int) -> str:
    return f"{name}.html" if number == 1 else f"{name}-{number}.html"
