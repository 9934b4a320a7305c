"""The cells of a measured table, read from the store: what was answered, what that amounts to, or why there is none."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePosixPath

from atrl_bench.evaluation.tasks import list_suites
from atrl_bench.experiments.definition import AVERAGE, ColumnDefinition, RowDefinition, TableDefinition
from atrl_bench.experiments.plan import table_options
from atrl_bench.flatten import flat_text
from atrl_bench.profiles import Profile
from atrl_bench.report.labels import group_label
from atrl_bench.report.sample_views import sample_views
from atrl_bench.report.scores import Answers, Scores, average_by_seed, scores_of, spread_of
from atrl_bench.report.shared_problems import named, shared_groups
from atrl_bench.report.table_model import SampleView, StateCounts, TableCell
from atrl_bench.results.score_array import ScoreArray
from atrl_bench.results.statistics import Estimate, average_of
from atrl_bench.results.store import Cell, Run, Store

CellAt = tuple[str, str]  # row, column


@dataclass(frozen=True)
class TableSource:
    """What a table is built from: `cell_keys` by (row, column), `runs` by row, `lacking` why a column stays empty."""

    definition: TableDefinition
    store: Store
    profile: Profile
    cell_keys: Mapping[CellAt, Sequence[str]]
    runs: Mapping[str, Sequence[Run]]
    seeds: tuple[int, ...]
    lacking: Mapping[str, str]

    @cached_property
    def columns(self) -> list[str]:
        """The columns that are measured."""
        return [column.id for column in self.definition.columns]

    @cached_property
    def all_columns(self) -> list[str]:
        """The columns that are printed, the average among them."""
        return [*self.columns, *([AVERAGE] if self.definition.average else [])]

    def columns_of(self, *rows: str) -> list[str]:
        """Return the measured columns that all of these rows are evaluated on."""
        definitions = [row for row in self.definition.rows if row.id in rows]
        of_rows = [{column.id for column in self.definition.columns_of(row)} for row in definitions]
        return [column for column in self.columns if all(column in of_row for of_row in of_rows)]

    @cached_property
    def baselines(self) -> dict[str, str]:
        """The row that each row is set against."""
        return {row.id: self.definition.baseline_of(row) for row in self.definition.rows}

    @cached_property
    def seed_of_model(self) -> dict[str, int]:
        """The training seed of each checkpoint's folder, by which an evaluation names its model."""
        runs = (run for of_row in self.runs.values() for run in of_row)
        return {PurePosixPath(run.checkpoint).name: run.spec.get("seed", 0) for run in runs}


@dataclass(frozen=True)
class MeasuredCells:
    """All cells, and the scores of those that have any: under the column's metric, and the same over every repeat."""

    cells: dict[CellAt, TableCell] = field(default_factory=dict)
    scores: dict[CellAt, Scores] = field(default_factory=dict)
    all_repeats: dict[CellAt, Scores] = field(default_factory=dict)


def read_cells(source: TableSource) -> MeasuredCells:
    """Return every cell of the table, averages included, before rows are compared."""
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
        return TableCell(
            "not measured", reason=f"{column.text} is not a benchmark of {group_label(source.definition, row)}."
        )
    keys = source.cell_keys.get((row.id, column.id), ())
    stored = [cell for key in keys if (cell := source.store.cell(key))]
    if not any(cell.num_responses for cell in stored):
        return _unanswered(source, row, column, stored)
    tasks = _tasks_of(column)
    answers, counted = _read(source, stored, tasks)
    at = row.id, column.id
    if len(answers) == len(tasks):
        measured.scores[at] = scores_of(answers, column.metric)
        measured.all_repeats[at] = scores_of(answers, _over_every_repeat(column.metric, counted.num_repeats))
    scores, all_repeats = measured.scores.get(at), measured.all_repeats.get(at)
    failure = next((cell.reason for cell in stored if cell.state == "failed"), "")
    num_seeds = len(source.seeds) if row.recipe else 1
    is_whole = len(stored) >= num_seeds * len(tasks) and all(cell.state == "done" for cell in stored)
    unfinished = f"{len(stored) // len(tasks)} of {num_seeds} seeds, not all of them finished"
    return replace(
        counted,
        state="failed" if failure else "measured" if is_whole else "partial",
        reason="" if is_whole else failure or unfinished,
        command="" if is_whole else _command(source, row, column),
        estimate=scores.estimate() if scores else None,
        seeds=spread_of(scores.by_seed.values()) if scores and row.recipe else None,
        all_repeats=all_repeats.estimate() if all_repeats else None,
    )


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
    """Return what fills a cell, without the folder's path: a page is the same wherever its folder lies."""
    definition, options = source.definition, source.profile.training_option
    if row.served:
        return definition.evaluate_command(row, options)
    table = " ".join([definition.id, options, *table_options(definition, source.seeds)])
    columns = f"--columns {column.id}" + (" --allow-code" if column.id in source.lacking else "")
    if row.added_by:
        return f"atrl-bench ablate {table} {row.added_by} {columns}"
    return f"atrl-bench run-table {table} --rows {row.id} {columns}"


def _average(source: TableSource, measured: MeasuredCells, row: RowDefinition) -> TableCell:
    if row.not_measured:
        return TableCell("not measured", reason=row.not_measured)
    cells = [measured.cells[row.id, column] for column in source.columns]
    estimates = [cell.estimate for cell in cells if cell.estimate is not None]
    if len(estimates) < len(cells):
        state = next(cell.state for cell in cells if cell.estimate is None)
        return TableCell(state, reason="an average needs every column")
    by_seed = average_by_seed([measured.scores[row.id, column] for column in source.columns])
    return TableCell(
        state="measured" if all(cell.state == "measured" for cell in cells) else "partial",
        estimate=average_of(estimates, _shared_residuals(source, measured, row, estimates)),
        num_expected=sum(cell.num_expected for cell in cells),
        seeds=spread_of(by_seed.values()) if row.recipe else None,
        all_repeats=average_of([cell.all_repeats for cell in cells if cell.all_repeats]),
        num_repeats=min(cell.num_repeats for cell in cells),
        counts=sum_counts(cell.counts for cell in cells),
    )


def _shared_residuals(
    source: TableSource, measured: MeasuredCells, row: RowDefinition, estimates: Sequence[Estimate]
) -> list[dict[str, float]]:
    """Return what the groups that columns share add to the error of each column's score."""
    scores = {column: measured.scores[row.id, column] for column in source.columns}
    names = shared_groups(scores)
    if not names:
        return []
    pairs = zip(scores.items(), estimates, strict=True)
    return [named(of_column.residuals(each.stderr), column, names) for (column, of_column), each in pairs]


def sum_counts(counts: Iterable[StateCounts]) -> StateCounts:
    """Return the counts of several cells together."""
    totals: Counter[str] = Counter()
    for count in counts:
        totals.update(vars(count))
    return StateCounts(**totals)


# What the store has of one cell -----------------------------------------------------------------------------------


def _read(source: TableSource, stored: Sequence[Cell], tasks: Sequence[str]) -> tuple[Answers, TableCell]:
    """Return the answers by task and training seed, and the cell with all that is counted before they are scored."""
    answers: dict[str, dict[int, ScoreArray]] = defaultdict(dict)
    states: Counter[str] = Counter()
    skipped: dict[str, str] = {}
    views: list[SampleView] = []
    num_expected: dict[str, int] = {}
    for position, cell in enumerate(stored):
        of_cell, task = source.store.scores(cell.key), cell.spec.get("task", tasks[0])
        seed = source.seed_of_model.get(cell.spec.get("model_name", ""), position // len(tasks))
        answers[task][seed] = of_cell
        num_expected[task] = len(of_cell.problems)
        states.update({state.replace(" ", "_"): count for state, count in of_cell.states.items()})
        states.update(samples=of_cell.num_answers, truncated=cell.num_truncated)
        skipped |= source.store.skipped(cell.key)
        views = views or sample_views(source.store, cell.key, of_cell)
    counted = TableCell(
        state="partial",
        num_expected=sum(num_expected.values()),
        num_repeats=int(stored[0].spec.get("decoding", {}).get("repeats", 1)),
        counts=StateCounts(**states, skipped=len(skipped)),
        skipped=tuple(sorted(skipped.items())),
        provenance=_provenance(stored),
        samples=tuple(views),
    )
    return {task: answers[task] for task in tasks if task in answers}, counted


def _tasks_of(column: ColumnDefinition) -> list[str]:
    return list(next((suite.tasks for suite in list_suites() if suite.name == column.task), (column.task,)))


def _over_every_repeat(metric: str, num_repeats: int) -> str:
    return f"{metric.partition('@')[0]}@{num_repeats}".replace("acc@", "mean@")


def _provenance(stored: Sequence[Cell]) -> tuple[tuple[str, str], ...]:
    """Return what the cell's key was made of, once for the settings that all seeds share."""
    pairs = dict(flat_text(stored[0].spec))
    for cell in stored[1:]:
        for name, value in flat_text(cell.spec):
            if value not in pairs.get(name, "").split(", "):
                pairs[name] = f"{pairs[name]}, {value}" if name in pairs else value
    return (("cell", ", ".join(cell.key for cell in stored)), *pairs.items())
