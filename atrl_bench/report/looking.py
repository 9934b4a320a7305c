"""Did training make it look more? What a table's columns of reliance say of its rows, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from atrl_bench.experiments.definition import ColumnDefinition, RowDefinition
from atrl_bench.report.cells import CellAt, TableSource
from atrl_bench.report.differences import Differences
from atrl_bench.report.table_model import TableCell
from atrl_bench.results import numbers


def looks(source: TableSource, cells: Mapping[CellAt, TableCell], differences: Differences) -> str:
    """A sentence a column of reliance; a star for what survives the table's correction."""
    columns = [column for column in source.definition.columns if column.relies_on is not None]
    sentences = [sentence for column in columns for sentence in _sentences(column, source, cells, differences)]
    return " ".join(["Did training make it look more?", *sentences]) if sentences else ""


def _sentences(
    column: ColumnDefinition, source: TableSource, cells: Mapping[CellAt, TableCell], differences: Differences
) -> Iterator[str]:
    rows = {row.id: row for row in source.definition.rows}
    measured = [row for row in rows.values() if cells[row.id, column.id].estimate is not None]
    for baseline in dict.fromkeys(source.baselines[row.id] for row in measured):
        base = cells[baseline, column.id].estimate if baseline in rows else None
        gains = [
            f"{row.label} {numbers.signed(cell.difference.estimate.mean)}{'*' if cell.is_significant else ''}"
            for row in measured
            if (cell := cells[row.id, column.id]).difference is not None and source.baselines[row.id] == baseline
        ]
        if base is not None and gains:
            lost = f"{rows[baseline].label} loses {100 * base.mean:.1f} points without the picture"
            yield f"{column.label} ({column.subscript}): {lost}; the others, against that: {', '.join(gains)}."
    for row in measured:
        other = _with_uniform_credit(row, measured)
        difference = differences.between(row.id, other.id, column.id) if other is not None else None
        if other is not None and difference is not None:
            low, high = map(numbers.signed, difference.estimate.interval())
            gain = numbers.signed(difference.estimate.mean)
            yield f"{row.label} relies {gain} points more than {other.label} ({low} to {high})."


def _with_uniform_credit(row: RowDefinition, rows: list[RowDefinition]) -> RowDefinition | None:
    """The row that differs from an AT-RL row in its credit alone."""
    if row.credit.rule != "atrl":
        return None
    same = (row.recipe, row.model, row.data, row.group)
    alike = (other for other in rows if other.credit.rule == "uniform")
    return next((other for other in alike if (other.recipe, other.model, other.data, other.group) == same), None)
