"""From the store to the one internal model of a table: every difference, average, bold and arrow is computed here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from atrl_bench.experiments.definition import AVERAGE, RowDefinition, TableDefinition, load_paper_scores
from atrl_bench.flatten import flat_text
from atrl_bench.profiles import Profile
from atrl_bench.report.cells import CellAt, TableSource, read_cells
from atrl_bench.report.differences import Differences, comparisons, with_best, with_differences
from atrl_bench.report.labels import as_measured, group_label, row_label
from atrl_bench.report.notes import Footnotes, table_notes
from atrl_bench.report.paper import published_claims, published_rows
from atrl_bench.report.table_model import Column, Row, Table, TableCell
from atrl_bench.report.training_grids import training_grids
from atrl_bench.results.store import Run, Store


def build_table(
    definition: TableDefinition,
    store: Store,
    *,
    profile: Profile,
    cell_keys: Mapping[CellAt, Sequence[str]],
    runs: Mapping[str, Sequence[Run]],
    seeds: Sequence[int] = (0,),
    environment: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    lacking: Mapping[str, str] | None = None,
    rates: Mapping[str, float] | None = None,
) -> Table:
    """Return the table as far as the store is filled.

    `cell_keys` names the evaluations of each (row, column), one a seed and part of a suite; `runs` the training
    runs of each row; `notes` come after those that the numbers ask for; `lacking` says of columns why nothing here may
    fill them; `rates` the learning rates that rows were picked at. A cell without a key, or with a key the store does
    not have, is missing and carries the command that fills it.
    """
    printed, definition = definition, as_measured(definition, profile, rates)
    source = TableSource(definition, store, profile, cell_keys, runs, tuple(seeds), lacking or {})
    measured = read_cells(source)
    differences = Differences(measured.scores, source)
    cells = with_differences(measured.cells, source.baselines, differences)
    cells, ties = with_best(cells, source, differences)
    scores = load_paper_scores(printed)
    footnotes, published_footnotes = _footnotes(source, has_published=bool(scores))
    return Table(
        id=definition.id,
        title=definition.title,
        caption=definition.caption,
        source=definition.source,
        label=definition.label,
        profile=profile.name,
        profile_title=profile.title,
        is_comparable=profile.name == "paper",
        baseline=row_label(definition, definition.baseline),
        columns=_columns(definition, published_footnotes),
        rows=tuple(_row(row, source, cells, footnotes) for row in definition.rows),
        published=published_rows(printed, scores, published_footnotes),
        comparisons=tuple(comparisons(source, measured, published_claims(printed, scores))),
        grids=training_grids(definition.rows, runs),
        notes=(*table_notes(source, cells, ties), *notes),
        footnotes=footnotes.all(),
        published_footnotes=published_footnotes.all(),
        settings=tuple(flat_text(profile.settings())),
        environment=tuple(sorted((environment or {}).items())),
        has_average=definition.average,
        seeds=source.seeds,
    )


def _footnotes(source: TableSource, *, has_published: bool) -> tuple[Footnotes, Footnotes]:
    """Return the footnotes of the measured and of the published table.

    A note on a row that is trained here says how; every other note is about a number that the paper printed.
    """
    definition = source.definition
    trained = [row.footnotes for row in definition.rows if row.recipe]
    printed = [column.footnotes for column in definition.columns]
    for row in definition.rows:
        if row.in_paper:
            printed += [row.footnotes, *(row.cell_footnotes.get(column, ()) for column in source.all_columns)]
    return Footnotes(definition, trained), Footnotes(definition, printed if has_published else [])


def _columns(definition: TableDefinition, footnotes: Footnotes) -> tuple[Column, ...]:
    average = [Column(AVERAGE, "Average", "", "mean of the columns")] if definition.average else []
    columns = [
        Column(c.id, c.label, c.subscript, c.metric, footnotes.marks(c.footnotes), c.frames) for c in definition.columns
    ]
    return (*columns, *average)


def _row(row: RowDefinition, source: TableSource, cells: Mapping[CellAt, TableCell], footnotes: Footnotes) -> Row:
    definition = source.definition
    fields = definition.recipe_fields(row) if row.recipe else {}
    runs = sorted(source.runs.get(row.id, ()), key=lambda run: run.spec.get("seed", 0))
    finished = [run for run in runs if run.state == "done"]
    of_row = tuple(cells[row.id, column] for column in source.all_columns)
    return Row(
        id=row.id,
        label=row.label,
        group=group_label(definition, row),
        marks=footnotes.marks(row.footnotes),
        cells=of_row,
        is_best=of_row[-1].is_best if definition.average else all(cell.is_best for cell in of_row),
        recipe=row.recipe or "",
        credit=credit_name(row) if "credit" in fields else "",
        schedule=fields.get("schedule", ""),
        data=fields.get("data", ""),
        training_seeds=tuple(run.spec.get("seed", 0) for run in finished),
        checkpoints=tuple(run.digest[:16] for run in finished),
        baseline=source.baselines[row.id],
        in_paper=row.in_paper,
        served=row.served or "",
    )


def credit_name(row: RowDefinition) -> str:
    """Return the row's credit in words: its rule, and the preset and settings where they say anything."""
    if row.credit.rule == "uniform":
        return "uniform"
    changed = ", ".join(f"{name} {value}" for name, value in sorted(row.credit.settings.items()))
    return f"{row.credit.rule}, preset {row.credit.preset}" + (f", {changed}" if changed else "")
