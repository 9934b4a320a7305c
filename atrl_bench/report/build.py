"""From the store to the one internal model of a table: every difference, average, bold and arrow is computed here.

And its grids: what the training runs say of their credit and of themselves, and of every learning rate they tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from atrl_bench.experiments.definition import AVERAGE, RowDefinition, TableDefinition
from atrl_bench.experiments.plan import Plan, cell_keys, runs_by_rate
from atrl_bench.experiments.rates import Rates, broke, rate_text
from atrl_bench.models.bases import list_bases
from atrl_bench.papers.scores import NOTHING_PRINTED, PrintedScores
from atrl_bench.printable import flat_text
from atrl_bench.profiles import Profile
from atrl_bench.report.cells import CellAt, MeasuredCells, TableSource, mean, read_cells, sum_counts
from atrl_bench.report.differences import Differences, comparisons, with_best, with_differences
from atrl_bench.report.looking import looks
from atrl_bench.report.page import TEMPLATES, lines_of
from atrl_bench.report.paper import published_claims, published_rows
from atrl_bench.report.table_model import (
    ROUNDING,
    SIGNIFICANCE,
    Column,
    Footnotes,
    Grid,
    GridCell,
    Row,
    Table,
    TableCell,
)
from atrl_bench.results.records import Gold
from atrl_bench.results.store import Run, Store
from atrl_bench.settings import Settings, read_settings


def build_table(
    source: TableSource,
    *,
    printed: PrintedScores = NOTHING_PRINTED,
    notes: Sequence[str] = (),
    rates: Mapping[str, str] | None = None,
) -> Table:
    """The table as far as the store is filled.

    `printed` is what the paper prints; `notes` come after those that the numbers ask for; `rates` are the learning
    rates that rows are judged at. A cell without a key, or with a key the store does not have, is missing and carries
    the command that fills it.
    """
    published, profile = source.definition, source.profile
    definition = published.as_measured(profile, rates)
    source = replace(source, definition=definition)
    measured = read_cells(source)
    differences = Differences(measured.scores, source)
    cells = with_differences(measured.cells, source.baselines, differences)
    cells, tied = with_best(cells, source, differences)
    relies = any(column.relies_on for column in definition.columns)
    says, of_looking = looks(source, measured, cells, differences) if relies else ("", ())
    footnotes, published_footnotes = _footnotes(source, has_published=bool(printed.scores))
    return Table(
        id=definition.id,
        title=definition.title,
        caption=definition.caption,
        source=definition.source,
        label=definition.label,
        profile=profile.name,
        profile_title=profile.title,
        is_comparable=profile.name in definition.comparable_under,
        baseline=definition.row_label(definition.baseline),
        columns=_columns(definition, published_footnotes),
        rows=tuple(_row(row, source, cells, footnotes) for row in definition.rows),
        published=published_rows(published, printed, published_footnotes),
        comparisons=tuple(comparisons(source, measured, published_claims(published, printed.scores))),
        grids=(*of_looking, *training_grids(definition, source.runs)),
        notes=(*_notes(source, measured, cells, tied), *notes),
        footnotes=footnotes.all(),
        published_footnotes=published_footnotes.all(),
        has_average=definition.average,
        seeds=source.seeds,
        says=says,
    )


def made_with(table: Table, profile: Profile, environment: Mapping[str, str]) -> Table:
    """The table with the profile's settings, and the machine and versions that its numbers were made with."""
    return replace(table, settings=tuple(flat_text(profile.settings())), environment=tuple(sorted(environment.items())))


def _footnotes(source: TableSource, *, has_published: bool) -> tuple[Footnotes, Footnotes]:
    """The footnotes of the measured and of the published table.

    A note on a row that is trained here says how; every other note is about a number that the paper printed.
    """
    definition = source.definition
    trained = [row.footnotes for row in definition.rows if row.recipe]
    printed = [column.footnotes for column in definition.columns]
    for row in definition.rows:
        if row.in_paper:
            printed += [row.footnotes, *(row.cell_footnotes.get(column, ()) for column in source.all_columns)]
    texts = definition.footnotes
    return Footnotes(texts, trained), Footnotes(texts, printed if has_published else [])


def _columns(definition: TableDefinition, footnotes: Footnotes) -> tuple[Column, ...]:
    average = [Column(AVERAGE, "Average", "", "mean of the columns")] if definition.average else []
    columns = [
        Column(c.id, c.label, c.subscript, c.metric, footnotes.marks(c.footnotes), c.frames) for c in definition.columns
    ]
    return (*columns, *average)


def _row(row: RowDefinition, source: TableSource, cells: Mapping[CellAt, TableCell], footnotes: Footnotes) -> Row:
    definition, recipe = source.definition, source.recipes.get(row.id)
    runs = sorted(source.runs.get(row.id, ()), key=lambda run: run.spec.get("seed", 0))
    finished = [run for run in runs if run.state == "done"]
    data = recipe.data if recipe else ""
    of_row = tuple(cells[row.id, column] for column in source.all_columns)
    return Row(
        id=row.id,
        label=row.label,
        group=definition.group_label(row),
        marks=footnotes.marks(row.footnotes),
        cells=of_row,
        is_best=of_row[-1].is_best if definition.average else all(cell.is_best for cell in of_row),
        recipe=row.recipe or "",
        credit=credit_name(row) if hasattr(recipe, "credit") else "",
        schedule=getattr(recipe, "schedule", ""),
        data=data.rpartition("/")[2] if data.startswith("/") else data,  # the user's own without its folder
        training_seeds=tuple(run.spec.get("seed", 0) for run in finished),
        checkpoints=tuple(run.digest[:16] for run in finished),
        baseline=source.baselines[row.id],
        in_paper=row.in_paper,
        served=row.served or "",
    )


def credit_name(row: RowDefinition) -> str:
    if row.credit.rule == "uniform":
        return "uniform"
    changed = ", ".join(f"{name} {value}" for name, value in sorted(row.credit.settings.items()))
    return f"{row.credit.rule}, preset {row.credit.preset}" + (f", {changed}" if changed else "")


def _notes(
    source: TableSource, measured: MeasuredCells, cells: Mapping[CellAt, TableCell], tied: Sequence[str]
) -> list[str]:
    definition = source.definition
    of_column = {column: [cell for (_, of), cell in cells.items() if of == column] for column in source.columns}
    settings = [dict(cell.provenance) for cell in cells.values()]
    return lines_of(
        "notes.txt.j2",
        definition=definition,
        profile=source.profile,
        seeds=source.seeds,
        significance=SIGNIFICANCE,
        row_label=definition.row_label,
        column_label=definition.column_label,
        baselines=list(dict.fromkeys(source.baselines.values())),
        baseline_labels=list(dict.fromkeys(definition.row_label(row, beside=row) for row in source.baselines.values())),
        models=_replaced_models(definition),
        lacking={
            column: reason
            for column, reason in source.lacking.items()
            if any(cell.reason == reason for cell in of_column[column])
        },
        has_rule_alone=any(of_cell.get("judge") == "none" for of_cell in settings),
        judges=list(dict.fromkeys(of_cell["judge.model"] for of_cell in settings if "judge.model" in of_cell)),
        engines=list(dict.fromkeys(filter(None, map(_engine, settings)))),
        counts=sum_counts(cell.counts for of_cells in of_column.values() for cell in of_cells),
        tied=list(dict.fromkeys(map(definition.column_label, tied))),
        all_tied=set(tied) == set(source.all_columns),
        rounding=ROUNDING,
        **_exactness(measured),
    )


def _exactness(measured: MeasuredCells) -> dict[str, Any]:
    """How exact a number has to be, where a gold answer is one: by what the questions of a column say and allow."""
    golds_of: dict[str, list[Gold]] = {}
    for (_, column), scores in measured.scores.items():
        golds = (problem.gold for part in scores.parts for problem in part.problems)
        golds_of.setdefault(column, [gold for gold in golds if gold.metric == "equal" and not gold.choices])
    has_numbers = any(char.isdigit() for golds in golds_of.values() for gold in golds for char in gold.answer)
    to_decimals, to_gold = (
        [column for column, golds in golds_of.items() if any(isinstance(gold.precision, kind) for gold in golds)]
        for kind in (int, str)
    )
    tolerances = {column: max((gold.tolerance for gold in golds), default=0.0) for column, golds in golds_of.items()}
    return {"has_numbers": has_numbers, "to_decimals": to_decimals, "to_gold": to_gold, "tolerances": tolerances}


def _replaced_models(definition: TableDefinition) -> list[str]:
    named = dict.fromkeys(filter(None, map(definition.model_of, definition.rows)))
    return [model for model in named if model not in list_bases()]


def _engine(of_cell: Mapping[str, str]) -> str:
    return f"{of_cell['engine.name']} {of_cell['engine.version']}" if "engine.name" in of_cell else ""


# What the training runs say -------------------------------------------------------------------------------------------


class GridWords(Settings):
    """How a report calls what training runs record, by the names of their summaries, and what it says of it."""

    title: str
    explanation: str
    figures: dict[str, str]


class TrainingGrids(Settings):
    """The words of all grids about training runs."""

    credit: GridWords
    training: GridWords
    rates: GridWords


@cache
def _words() -> TrainingGrids:
    return read_settings(TEMPLATES / "training_grids.yaml", TrainingGrids)


def training_grids(definition: TableDefinition, runs: Mapping[str, Sequence[Run]]) -> list[Grid]:
    trained = [
        row for row in definition.rows if any(run.state == "done" for run in runs.get(row.id, ())) and row.recipe
    ]
    credited = [row for row in trained if row.credit.rule != "uniform"]
    return [
        grid
        for words, of_grid in ((_words().credit, credited), (_words().training, trained))
        for grid in _grid(words, [(definition.row_label(row.id), _means(words, runs[row.id])) for row in of_grid])
    ]


def _grid(words: GridWords, lines: Sequence[tuple[str, Mapping[str, float | None]]]) -> list[Grid]:
    """The grid of the figures that any line has; none where no line has any."""
    recorded = [name for name in words.figures if any(values.get(name) is not None for _, values in lines)]
    rows = tuple((label, tuple(_cell(values.get(name)) for name in recorded)) for label, values in lines)
    columns = tuple(words.figures[name] for name in recorded)
    return [Grid(words.title, words.explanation, columns, rows)] if recorded else []


def _cell(value: float | None) -> GridCell:
    return GridCell("–") if value is None else GridCell(f"{value:.3f}".replace("-", "−"), value)


def _means(words: GridWords, runs: Sequence[Run]) -> dict[str, float | None]:
    summaries = [run.summary for run in runs if run.state == "done"]
    numbers = {name: [s[name] for s in summaries if isinstance(s.get(name), (int, float))] for name in words.figures}
    return {name: mean(values) if values else None for name, values in numbers.items()}


# Every learning rate --------------------------------------------------------------------------------------------------


def rate_note(plan: Plan, store: Store, rates: Rates) -> str:
    label, runs = plan.definition.row_label, runs_by_rate(plan, store)
    [note] = lines_of(
        "rates.txt.j2",
        tried=[f"{rate:g}" for rate in sorted(plan.definition.rates)],
        broke=[
            f"{label(row)} at {rate_text(rate)} ({sum(map(broke, at_rate))} of {len(at_rate)})"
            for row, of_row in runs.items()
            for rate, at_rate in sorted(of_row.items())
            if any(map(broke, at_rate))
        ],
        undecided=[label(row) for row, of_seed in rates.items() if not of_seed],
    )
    return note


def rate_grids(plan: Plan, store: Store, rates: Rates) -> list[Grid]:
    definition, runs = plan.definition.as_measured(plan.profile), runs_by_rate(plan, store)
    tests = {rate: _test_scores(plan, store, rate) for rate in sorted(definition.rates)}
    lines = []
    for row in definition.rows:
        of_row = runs.get(row.id, {})
        for rate in sorted(of_row) if len(of_row) > 1 else ():
            values = _means(_words().rates, of_row[rate]) | {"test": tests[rate].get(row.id)}
            mark = "*" if rate in rates.get(row.id, {}).values() else ""
            lines.append((f"{definition.row_label(row.id)}, {rate_text(rate)}{mark}", values))
    return _grid(_words().rates, lines)


def _test_scores(plan: Plan, store: Store, rate: float) -> dict[str, float]:
    definition = plan.definition
    at = plan.at({row.id: dict.fromkeys(plan.seeds, rate) for row in definition.rows if row.recipe})
    source = TableSource(definition, store, plan.profile, cell_keys(at, store), seeds=plan.seeds)
    cells = read_cells(source).cells
    scores = {}
    for row in definition.rows:
        estimates = [cells[row.id, column].estimate for column in source.columns_of(row.id)]
        if row.recipe and all(estimates):
            scores[row.id] = mean(estimate.mean for estimate in estimates if estimate)
    return scores
