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
from dataclasses import dataclass, field
from pathlib import Path

from markupsafe import Markup

from atrl_bench.experiments.answer_credit import remembered_credit
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.grading.judge.report import judge_summary
from atrl_bench.report.media import Pictures, pictures_of
from atrl_bench.report.page import html_environment, render_page
from atrl_bench.report.table_model import Column, Row, Table, TableCell
from atrl_bench.results.files import write_atomically
from atrl_bench.results.records import Problem, Sample, Verdict
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
    data_dir: Path | None = None
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
    """One answer as it is shown; `kinds` are the filters that keep it."""

    source: str
    text: str
    pieces: tuple[Piece, ...]
    state: str
    kinds: tuple[str, ...]
    extracted: str | None
    score: float | None
    decided: str
    why: str
    others: tuple[str, ...]


@dataclass(frozen=True)
class PagePart:
    """One file of a page: its name and how many of its answers each filter keeps."""

    name: str
    counts: Mapping[str, int]
    problems: tuple[Markup, ...]


@dataclass(frozen=True)
class Filter:
    """One filter with the places where it has something to show: (part number, address, count)."""

    kind: str
    text: str
    count: int
    parts: tuple[tuple[int, str, int], ...]


@dataclass(frozen=True)
class Pages:
    """What a table links to for one number: the first page of all answers, and the filters."""

    address: str
    count: int
    filters: tuple[Filter, ...]


def write_samples(table: Table, answers: AnswerSource, out: Path) -> dict[tuple[str, str], Pages]:
    """Write the pages of every cell that has answers below `out`; return by (row, column) what there is to link to.

    Pages of this table that an earlier report wrote and this one does not have are removed.
    """
    folder = file_name(table.id)
    page_dir = out / "samples" / folder
    writer = _Writer(table, answers, out)
    pages: dict[tuple[str, str], Pages] = {}
    written: set[str] = set()
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            parts = writer.parts(row, column)
            if not parts:
                continue
            filters, judged = _filters(parts), writer.judged(row, column)
            for number, part in enumerate(parts, start=1):
                content = writer.page(row, column, cell, parts, number, filters, judged)
                write_atomically(page_dir / part.name, content.encode("utf-8", "backslashreplace"))
                written.add(part.name)
            address = f"samples/{folder}/"
            pages[row.id, column.id] = Pages(
                address + parts[0].name, sum(part.counts["all"] for part in parts), _below(address, filters)
            )
    for old in page_dir.glob("*.html"):
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

    def parts(self, row: Row, column: Column) -> list[PagePart]:
        store, keys = self.answers.store, self.answers.cell_keys.get((row.id, column.id), ())
        cells = [cell for key in keys if (cell := store.cell(key)) is not None and cell.num_responses]
        tasks = list(dict.fromkeys(str(cell.spec.get("task", "")) for cell in cells))
        seeds = {self.seeds.get(str(cell.spec.get("model_digest"))) for cell in cells}
        before = {} if row.id == self._baseline(row) else self._before(self._baseline(row), column.id)
        by_problem: dict[tuple[str, str], list[AnswerView]] = {}
        problems: dict[tuple[str, str], Problem] = {}
        pictures: dict[tuple[str, str], tuple[str, ...]] = {}
        for cell in cells:
            task, seed = str(cell.spec.get("task", "")), self.seeds.get(str(cell.spec.get("model_digest")))
            credit, samples = self.answers.credit_of(cell.key), store.samples(cell.key)
            is_repeated = any(sample.response.repeat for sample in samples)
            for sample in self._shown(samples):
                name, repeat = sample.problem.problem_id, sample.response.repeat
                words = ([f"training seed {seed}"] if len(seeds) > 1 else []) + [f"repeat {repeat}"] * is_repeated
                tokens, was_right = credit.get((name, repeat), ()), before.get((task, name, repeat))
                problems.setdefault((task, name), sample.problem)
                by_problem.setdefault((task, name), []).append(_view(", ".join(words), sample, tokens, was_right))
            if any(at not in pictures for at in problems if at[0] == task):
                by_name = self._pictures(cell, [name for of_task, name in problems if of_task == task])
                pictures |= {(task, name): files for name, files in by_name.items()}
        return list(self._parts(row, column, by_problem, problems, pictures, len(tasks) > 1))

    def _shown(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        """Return the answers to as many problems as are asked for."""
        if self.answers.max_problems is None:
            return samples
        names = list(dict.fromkeys(sample.problem.problem_id for sample in samples))[: self.answers.max_problems]
        return [sample for sample in samples if sample.problem.problem_id in names]

    def _parts(
        self,
        row: Row,
        column: Column,
        answers: Mapping[tuple[str, str], Sequence[AnswerView]],
        problems: Mapping[tuple[str, str], Problem],
        pictures: Mapping[tuple[str, str], tuple[str, ...]],
        is_suite: bool,
    ) -> Iterator[PagePart]:
        """Yield the problems in files of a bearable size."""
        names = _names(row.id, column.id)
        fragments: list[Markup] = []
        counts: Counter[str] = Counter()
        for position, (at, views) in enumerate(answers.items(), start=1):
            fragment = Markup(  # the template has escaped every value in it
                self.problem.render(
                    position=position,
                    task=at[0] if is_suite else "",
                    problem=problems[at],
                    kinds=sorted({kind for view in views for kind in view.kinds}),
                    pictures=pictures.get(at, ()),
                    answers=views,
                    marks=MARKS,
                    texts=FILTERS,
                )
            )
            if fragments and sum(map(len, fragments)) + len(fragment) > PART_BYTES:
                yield PagePart(next(names), counts, tuple(fragments))
                fragments, counts = [], Counter()
            fragments.append(fragment)
            counts.update(["all"] * len(views), **Counter(kind for view in views for kind in view.kinds))
        if fragments:
            yield PagePart(next(names), counts, tuple(fragments))

    def page(
        self,
        row: Row,
        column: Column,
        cell: TableCell,
        parts: Sequence[PagePart],
        number: int,
        filters: Sequence[Filter],
        judged: Sequence[str],
    ) -> str:
        part = parts[number - 1]
        return render_page(
            "samples.html.j2",
            pictures=True,
            table=self.table,
            row=row,
            column=column,
            cell=cell,
            part=part,
            parts=parts,
            number=number,
            filters=filters,
            judged=judged,
            kinds=list(FILTERS),
            total=sum(item.counts["all"] for item in parts),
            is_shaded=any('<span class="c' in problem for problem in part.problems),
            baseline="" if self._baseline(row) == row.id else self.labels.get(self._baseline(row), ""),
        )

    def judged(self, row: Row, column: Column) -> list[str]:
        """Return what the judge did in each judged cell, its agreement with the rules included."""
        keys = self.answers.cell_keys.get((row.id, column.id), ())
        summaries = [judge_summary(self.answers.store, key) for key in keys]
        return [summary.line for summary in summaries if summary is not None]

    def _baseline(self, row: Row) -> str:
        return row.baseline or self.answers.baseline

    def _before(self, row: str, column: str) -> dict[tuple[str, str, int], bool]:
        """Return whether the baseline's answers were right, by task, problem and repeat, of its first training seed."""
        if (row, column) not in self.before:
            right: dict[tuple[str, str, int], bool] = {}
            store = self.answers.store
            cells = [store.cell(key) for key in self.answers.cell_keys.get((row, column), ())]
            for cell in filter(None, cells):
                for sample in store.samples(cell.key):
                    at = str(cell.spec.get("task", "")), sample.problem.problem_id, sample.response.repeat
                    if sample.score is not None:
                        right.setdefault(at, sample.score == 1.0)
            self.before[row, column] = right
        return self.before[row, column]

    def _pictures(self, cell: Cell, problem_ids: Sequence[str]) -> Pictures:
        name = repr([cell.spec.get("task"), cell.spec.get("data_digest"), cell.spec.get("limit")])
        of_data = self.pictures.setdefault(name, {})
        if not of_data:
            of_data |= pictures_of(cell.spec, problem_ids, self.out / "media", self.answers.data_dir)
        return of_data


def _view(source: str, sample: Sample, tokens: Tokens, was_right: bool | None) -> AnswerView:
    verdict, response = sample.verdict, sample.response
    state = verdict.state if verdict else "ungraded"
    others = [f"{response.num_tokens} tokens"]
    if tokens:
        values = [value for _, value in tokens]
        others.append(f"Credit from {min(values):.2f} to {max(values):.2f}")
    return AnswerView(
        source=source,
        text=response.text,
        pieces=shaded(tokens) if "".join(text for text, _ in tokens) == response.text else (),
        state=state,
        kinds=tuple(_kinds(state, sample, was_right)),
        extracted=verdict.extracted if verdict else None,
        score=sample.score,
        decided=_decided(verdict) if verdict else "nobody yet",
        why=verdict.why if verdict else "",
        others=tuple(others),
    )


def _kinds(state: str, sample: Sample, was_right: bool | None) -> Iterable[str]:
    yield state.replace(" ", "-")
    if sample.response.truncated:
        yield "truncated"
    if was_right is not None and sample.score is not None and was_right != (sample.score == 1.0):
        yield "broken" if was_right else "fixed"
    if sample.verdict is not None and set(sample.verdict.opinions) == {"correct", "wrong"}:
        yield "disputed"


def _decided(verdict: Verdict) -> str:
    """Return who decided, and what the other one said where both were heard."""
    rule, judge = verdict.opinions
    if verdict.grader == "judge":
        return f"the judge; the rules said {rule}" if rule else "the judge"
    return f"rule grader ({verdict.grader}); the judge said {judge}" if judge else f"rule grader ({verdict.grader})"


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


def _filters(parts: Sequence[PagePart]) -> tuple[Filter, ...]:
    return tuple(
        Filter(
            kind,
            text,
            sum(part.counts[kind] for part in parts),
            tuple(
                (number, f"{part.name}#only-{kind}", part.counts[kind])
                for number, part in enumerate(parts, start=1)
                if part.counts[kind]
            ),
        )
        for kind, text in FILTERS.items()
    )


def _below(address: str, filters: Iterable[Filter]) -> tuple[Filter, ...]:
    """Return the filters that have anything, with addresses as the table's page needs them."""
    return tuple(
        Filter(item.kind, item.text, item.count, tuple((n, address + where, count) for n, where, count in item.parts))
        for item in filters
        if item.count
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


def _names(row: str, column: str) -> Iterator[str]:
    name = file_name(f"{row}.{column}")
    yield f"{name}.html"
    number = 2
    while True:
        yield f"{name}-{number}.html"
        number += 1
