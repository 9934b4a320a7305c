"""The cells of a measured table, read from the store: what was answered, what that amounts to, or why there is none."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePosixPath

from atrl_bench.evaluation.tasks import list_suites, scored
from atrl_bench.experiments.definition import (
    AVERAGE,
    ColumnDefinition,
    RowDefinition,
    TableDefinition,
    as_typed,
    list_tables,
)
from atrl_bench.experiments.plan import table_options
from atrl_bench.models.served import served_digest
from atrl_bench.printable import flat_text
from atrl_bench.profiles import Profile
from atrl_bench.report.table_model import StateCounts, TableCell
from atrl_bench.results.records import Problem
from atrl_bench.results.score_array import ScoreArray
from atrl_bench.results.statistics.means import (
    Difference,
    Estimate,
    SeedSpread,
    average_of,
    over_seeds_too,
    seed_spread,
)
from atrl_bench.results.statistics.metrics import (
    Bounds,
    ScoredSamples,
    bounds,
    group_residuals,
    is_headline,
    parse_metric,
    suite_difference,
    suite_score,
)
from atrl_bench.results.store import Cell, Run, Store
from atrl_bench.training.recipe import Recipe

CellAt = tuple[str, str]  # row, column
Answers = Mapping[str, Mapping[int, ScoreArray]]  # by task, then by training seed


@dataclass(frozen=True)
class TableSource:
    """What a table is built from.

    `cell_keys` names the evaluations of each (row, column), one a seed and part of a suite; `runs` and `recipes` are by
    row; `lacking` says of columns why nothing here may fill them.
    """

    definition: TableDefinition
    store: Store
    profile: Profile
    cell_keys: Mapping[CellAt, Sequence[str]]
    runs: Mapping[str, Sequence[Run]] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0,)
    recipes: Mapping[str, Recipe] = field(default_factory=dict)
    lacking: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def columns(self) -> list[str]:
        return [column.id for column in self.definition.columns]

    @cached_property
    def all_columns(self) -> list[str]:
        return [*self.columns, *([AVERAGE] if self.definition.average else [])]

    def columns_of(self, *rows: str) -> list[str]:
        definitions = [row for row in self.definition.rows if row.id in rows]
        of_rows = [{column.id for column in self.definition.columns_of(row)} for row in definitions]
        return [column for column in self.columns if all(column in of_row for of_row in of_rows)]

    @cached_property
    def baselines(self) -> dict[str, str]:
        return {row.id: self.definition.baseline_of(row) for row in self.definition.rows}

    @cached_property
    def seed_of_model(self) -> dict[str, int]:
        """The training seed of each checkpoint's folder, by which an evaluation names its model."""
        runs = (run for of_row in self.runs.values() for run in of_row)
        return {PurePosixPath(run.checkpoint).name: run.spec.get("seed", 0) for run in runs}


@dataclass(frozen=True)
class MeasuredCells:
    """All cells, and the scores of those that have any: under the column's metric, and the same over every repeat.

    `bounds` are those of cells whose judge failed on some answers, also of those whose number stands.
    """

    cells: dict[CellAt, TableCell] = field(default_factory=dict)
    bounds: dict[CellAt, Bounds] = field(default_factory=dict)
    scores: dict[CellAt, Scores] = field(default_factory=dict)
    all_repeats: dict[CellAt, Scores] = field(default_factory=dict)


def read_cells(source: TableSource) -> MeasuredCells:
    measured = MeasuredCells()
    for row in source.definition.rows:
        for column in source.definition.columns:
            measured.cells[row.id, column.id] = _cell(source, measured, row, column)
        if source.definition.average:
            measured.cells[row.id, AVERAGE] = _average(source, measured, row)
    return measured


def _cell(source: TableSource, measured: MeasuredCells, row: RowDefinition, column: ColumnDefinition) -> TableCell:
    if row.not_measured:
        return TableCell("not measured", reason=row.not_measured)
    if column.id not in source.columns_of(row.id):
        group = next(group.label for group in source.definition.groups if group.id == row.group)
        return TableCell("not measured", is_asked=False, reason=f"{column.text} is not a benchmark of {group}.")
    keys = source.cell_keys.get((row.id, column.id), ())
    stored = [cell for key in keys if (cell := source.store.cell(key))]
    if not any(cell.num_responses for cell in stored):
        return _unanswered(source, row, column, stored)
    tasks = tasks_of(column.task)
    answers, counted = _read(source, stored, tasks)
    at = row.id, column.id
    metrics = column.metric, _over_every_repeat(column.metric, counted.num_repeats)
    if column.relies_on is not None:
        keys = source.cell_keys.get((row.id, column.relies_on), ())
        shown = [cell for key in keys if (cell := source.store.cell(key))]
        with_pictures = _read(source, shown, tasks)[0] if shown else {}
        if not _same_seeds(with_pictures, answers):
            reason = f"it needs the column {column.relies_on}"
            return TableCell("missing", reason=reason, command=_command(source, row, column))
        measured.scores[at], measured.all_repeats[at] = (_reliance(with_pictures, answers, m) for m in metrics)
    elif len(answers) == len(tasks):
        measured.scores[at], measured.all_repeats[at] = (scores_of(answers, metric) for metric in metrics)
    scores, all_repeats = measured.scores.get(at), measured.all_repeats.get(at)
    is_judged = any(source.store.lacks_judgement(cell.key) for cell in stored)
    if scores and is_judged and not column.relies_on:
        between = bounds(lambda score: scores_of(_filled(answers, score), column.metric).parts)
        if between is not None:
            measured.bounds[at] = between
    failure = next((cell.reason for cell in stored if cell.state == "failed"), "")
    num_seeds = len(source.seeds) if row.recipe else 1
    is_whole = len(stored) >= num_seeds * len(tasks) and all(cell.state == "done" for cell in stored)
    unfinished = f"{len(stored) // len(tasks)} of {num_seeds} seeds, not all of them finished"
    whole = replace(
        counted,
        state="failed" if failure else "measured" if is_whole else "partial",
        reason="" if is_whole else failure or unfinished,
        command="" if is_whole else _command(source, row, column),
        estimate=scores.estimate() if scores else None,
        seeds=spread_of(scores.by_seed.values()) if scores and row.recipe else None,
        all_repeats=all_repeats.estimate() if all_repeats else None,
    )
    whole = _within(whole, measured.bounds.get(at))
    if whole.between is not None:
        del measured.scores[at], measured.all_repeats[at]
        return replace(whole, command=_command(source, row, column))
    return whole


def _within(cell: TableCell, between: Bounds | None) -> TableCell:
    """A cell whose number lies between these bounds: with no number where they are wider than its error bar."""
    if between is None:
        return cell
    low, high = (f"{100 * end:.1f}" for end in between)
    said = f"between {low} and {high}: the judge failed on {cell.counts.judge_failed} answers"
    if cell.estimate is not None and is_headline(cell.estimate, between):
        return replace(cell, provenance=(*cell.provenance, ("score", said)))
    without = replace(cell, estimate=None, seeds=None, all_repeats=None, between=between)
    return replace(without, state="failed", reason=f"{said}.")


def _filled(answers: Answers, score: float) -> Answers:
    """With this score for each answer that the judge failed on."""
    return {
        task: {seed: array.with_failed(score) for seed, array in of_seed.items()} for task, of_seed in answers.items()
    }


def _unanswered(source: TableSource, row: RowDefinition, column: ColumnDefinition, stored: Sequence[Cell]) -> TableCell:
    command = _command(source, row, column)
    if row.served:
        reason = f"Only an endpoint has this model. To ask it: {command}"
        return TableCell("not measured", reason=reason, command=command)
    if column.id in source.lacking:
        return TableCell("not measured", reason=source.lacking[column.id], command=command)
    failures = [run.reason for run in source.runs.get(row.id, ()) if run.state == "failed"]
    failures += [cell.reason for cell in stored if cell.state == "failed"]
    if failures:
        return TableCell("failed", reason=failures[0], command=command)
    return TableCell("missing", reason="has not been run yet", command=command)


def _command(source: TableSource, row: RowDefinition, column: ColumnDefinition) -> str:
    """What fills a cell, without the run folder's path: a page is the same wherever that lies."""
    definition, options = source.definition, source.profile.training_option
    if row.served:
        return definition.evaluate_command(row, options)
    if definition.id not in list_tables():
        return f"atrl-bench evaluate {_evaluated(source, row)} --tasks {column.task} {source.profile.option}"
    table = " ".join([as_typed(definition.id), options, *table_options(definition, source.seeds)])
    columns = f"--columns {column.id}" + (" --allow-code" if column.id in source.lacking else "")
    if row.added_by:
        return f"atrl-bench ablate {table} {row.added_by} {columns}"
    return f"atrl-bench run-table {table} --rows {row.id} {columns}"


def _evaluated(source: TableSource, row: RowDefinition) -> str:
    """What `evaluate` is told of a model that is no table's row: its name in another cell, of a training its folder."""
    keys = (key for (of_row, _), keys in source.cell_keys.items() if of_row == row.id for key in keys)
    cell = next(filter(None, map(source.store.cell, keys)), None)
    if cell is None:
        return row.label
    name = str(cell.spec["model_name"])
    if cell.spec["model_digest"] == served_digest(name):
        return f"{name} --base-url URL"
    run = source.store.run(name)
    return name if run is None else f"runs/{source.profile.name}/{run.checkpoint}"


def _average(source: TableSource, measured: MeasuredCells, row: RowDefinition) -> TableCell:
    if row.not_measured:
        return TableCell("not measured", reason=row.not_measured)
    cells = {column: measured.cells[row.id, column] for column in source.columns}
    estimates = [cell.estimate for cell in cells.values() if cell.estimate is not None]
    ends = [measured.bounds.get((row.id, column)) or _both_ends(cell) for column, cell in cells.items()]
    if not all(ends):
        state = next(cell.state for cell in cells.values() if cell.estimate is None)
        return TableCell(state, reason="an average needs every column")
    low, high = (mean(side) for side in zip(*filter(None, ends), strict=True))
    average = TableCell(
        state="measured" if all(cell.state == "measured" for cell in cells.values()) else "partial",
        num_expected=sum(cell.num_expected for cell in cells.values()),
        num_repeats=min(cell.num_repeats for cell in cells.values()),
        counts=sum_counts(cell.counts for cell in cells.values()),
    )
    if len(estimates) == len(cells):
        scores = {column: measured.scores[row.id, column] for column in source.columns}
        by_seed = average_by_seed(list(scores.values()))
        average = replace(
            average,
            estimate=average_of(estimates, shared_residuals(shared_groups(scores), estimates, scores)),
            seeds=spread_of(by_seed.values()) if row.recipe else None,
            all_repeats=average_of([cell.all_repeats for cell in cells.values() if cell.all_repeats]),
        )
    return _within(average, (low, high) if low < high else None)


def _both_ends(cell: TableCell) -> Bounds | None:
    return None if cell.estimate is None else (cell.estimate.mean, cell.estimate.mean)


def sum_counts(counts: Iterable[StateCounts]) -> StateCounts:
    totals: Counter[str] = Counter()
    for count in counts:
        totals.update(vars(count))
    return StateCounts(**totals)


# What the store has of one cell -----------------------------------------------------------------------------------


def _read(source: TableSource, stored: Sequence[Cell], tasks: Sequence[str]) -> tuple[Answers, TableCell]:
    answers: dict[str, dict[int, ScoreArray]] = defaultdict(dict)
    states: Counter[str] = Counter()
    skipped: dict[str, str] = {}
    num_expected: dict[str, int] = {}
    for position, cell in enumerate(stored):
        of_cell, task = source.store.scores(cell.key), cell.spec.get("task", tasks[0])
        seed = source.seed_of_model.get(cell.spec.get("model_name", ""), position // len(tasks))
        answers[task][seed] = of_cell
        num_expected[task] = len(of_cell.problems)
        states.update({state.replace(" ", "_"): count for state, count in of_cell.states.items()})
        states.update(samples=of_cell.num_answers, truncated=cell.num_truncated)
        states.update(tokens=cell.num_tokens, thought_tokens=cell.num_thought)
        skipped |= source.store.skipped(cell.key)
    counted = TableCell(
        state="partial",
        num_expected=sum(num_expected.values()),
        num_repeats=int(stored[0].spec.get("decoding", {}).get("repeats", 1)),
        counts=StateCounts(**states, skipped=len(skipped)),
        skipped=tuple(sorted(skipped.items())),
        provenance=_provenance(stored, source.store),
    )
    return {task: answers[task] for task in tasks if task in answers}, counted


def tasks_of(name: str) -> tuple[str, ...]:
    """The tasks of a suite; a task's name alone."""
    return next((suite.tasks for suite in list_suites() if suite.name == name), (name,))


def _over_every_repeat(metric: str, num_repeats: int) -> str:
    return f"{metric.partition('@')[0]}@{num_repeats}".replace("acc@", "mean@")


def _provenance(stored: Sequence[Cell], store: Store) -> tuple[tuple[str, str], ...]:
    pairs = dict(flat_text(stored[0].spec))
    for cell in stored[1:]:
        for name, value in flat_text(cell.spec):
            if value not in pairs.get(name, "").split(", "):
                pairs[name] = f"{pairs[name]}, {value}" if name in pairs else value
    if names := {name for cell in stored for name in store.answered_as(cell.key)}:
        pairs["answered as"] = ", ".join(sorted(names))
    return (("cell", ", ".join(cell.key for cell in stored)), *pairs.items())


# What the answers behind a cell amount to -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Scores:
    """A cell's answers under one metric, one item a task of its column: of all training seeds, and of each."""

    parts: tuple[ScoredSamples, ...]
    of_seeds: Mapping[int, Scores] = field(default_factory=dict)

    @cached_property
    def by_seed(self) -> dict[int, float]:
        """The number of each training seed that has one."""
        scores = {seed: suite_score(one.parts, num_resamples=0) for seed, one in self.of_seeds.items()}
        return {seed: score.mean for seed, score in scores.items() if score.num_problems}

    def estimate(self) -> Estimate | None:
        estimate = suite_score(self.parts)
        return estimate if estimate.num_problems else None

    def over_seeds(self, estimate: Estimate) -> Estimate:
        """This estimate of it with the error of other training seeds in it, where there are several."""
        alone = [one for of_seed in self.of_seeds.values() if (one := of_seed.estimate()) is not None]
        return over_seeds_too(estimate, list(self.by_seed.values()), alone) if len(alone) > 1 else estimate

    def residuals(self, stderr: float, other: Scores | None = None) -> dict[str, float]:
        return group_residuals(self.parts, stderr, None if other is None else other.parts)

    def minus(self, other: Scores) -> Difference | None:
        difference = suite_difference(self.parts, other.parts)
        return difference if difference.estimate.num_problems else None


def scores_of(answers: Answers, metric: str, *, differences_of: int = 0) -> Scores:
    def parts_of(answers: Answers) -> tuple[ScoredSamples, ...]:
        pooled = (_pooled(task, of_seed, metric) for task, of_seed in answers.items())
        return tuple(replace(part, differences_of=differences_of) for part in pooled)

    seeds = sorted(set.intersection(*map(set, answers.values())))
    alone = {seed: {task: {seed: of_seed[seed]} for task, of_seed in answers.items()} for seed in seeds}
    return Scores(parts_of(answers), {seed: Scores(parts_of(of_seed)) for seed, of_seed in alone.items()})


def _same_seeds(ours: Answers, theirs: Answers) -> bool:
    return {task: set(of_seed) for task, of_seed in ours.items()} == {t: set(of_seed) for t, of_seed in theirs.items()}


def _reliance(shown: Answers, withheld: Answers, metric: str) -> Scores:
    """The scores with pictures less those without, problem by problem and seed by seed."""
    count = int(metric.rpartition("@")[2])
    less = {
        task: {seed: array.repeats(count).less(withheld[task][seed].repeats(count)) for seed, array in of_seed.items()}
        for task, of_seed in shown.items()
    }
    return scores_of(less, "acc@1", differences_of=count)


def average_by_seed(columns: Sequence[Scores]) -> dict[int, float]:
    """Each seed's average over the columns, for the seeds that have them all."""
    common = set.intersection(*(set(column.by_seed) for column in columns))
    return {seed: mean(column.by_seed[seed] for column in columns) for seed in sorted(common)}


def spread_of(numbers: Iterable[float]) -> SeedSpread | None:
    values = list(numbers)
    return seed_spread(values) if values else None


def mean(values: Iterable[float]) -> float:
    """The mean, NaN of nothing."""
    items = list(values)
    return math.fsum(items) / len(items) if items else math.nan


def _pooled(task: str, of_seed: Mapping[int, ScoreArray], metric: str) -> ScoredSamples:
    """The answers of all seeds, as if those of further seeds were further repeats of one run."""
    first = scored(task, next(iter(of_seed.values())), metric)
    name, num_repeats = parse_metric(first.metric, first.statistics)
    pooled = ScoreArray.joined([of_seed[seed].repeats(num_repeats) for seed in sorted(of_seed)])
    return replace(first, answers=pooled, metric=f"{name}@{num_repeats * len(of_seed)}")


# Problems that stand in two columns of a table ------------------------------------------------------------------------
#
# In their average they are one group. A problem is known again by its words: question, choices and answer. A text that
# stands in several groups of one column names none of them (a set that asks the same of many pictures), and one of a
# few words names nothing.

MIN_WORDS = 8
Group = tuple[str, str]  # column, group
Words = tuple[str, ...]


def shared_groups(columns: Mapping[str, Scores]) -> dict[Group, str]:
    """One name for all groups that have a problem in common across columns; nothing for any other group."""
    groups_of: dict[Words, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for column, scores in columns.items():
        for part in scores.parts:
            for problem in part.problems:
                if words := words_of(problem):
                    groups_of[words][column].add(problem.group)
    names: dict[Group, str] = {}
    for words in sorted(groups_of):
        single = [(column, *groups) for column, groups in groups_of[words].items() if len(groups) == 1]
        if len(single) > 1:
            _join(names, [(column, group) for column, group in single])
    return names


def words_of(problem: Problem) -> Words | None:
    question = tuple(problem.question.lower().split())
    if len(question) < MIN_WORDS:
        return None
    return (*question, *problem.gold.choices, problem.gold.answer.strip().lower())


def shared_residuals(
    names: Mapping[Group, str],
    estimates: Iterable[Estimate],
    ours: Mapping[str, Scores],
    theirs: Mapping[str, Scores] | None = None,
) -> list[dict[str, float]]:
    """What the named groups add to the error of each column's score, or of its difference from another's."""
    residuals = []
    for (column, scores), estimate in zip(ours.items(), estimates, strict=True) if names else ():
        sums: dict[str, float] = defaultdict(float)
        for group, value in scores.residuals(estimate.stderr, theirs[column] if theirs else None).items():
            if (column, group) in names:
                sums[names[column, group]] += value
        residuals.append(dict(sums))
    return residuals


def _join(names: dict[Group, str], groups: Sequence[Group]) -> None:
    before = {names[group] for group in groups if group in names}
    name = min([*before, ": ".join(groups[0])])
    renamed = [group for group, known in names.items() if known in before] if before - {name} else []
    names.update(dict.fromkeys([*groups, *renamed], name))
