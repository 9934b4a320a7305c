"""Did training make it look more? What a table's columns of reliance say of its rows: two sentences and a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from atrl_bench.experiments.definition import ColumnDefinition, RowDefinition
from atrl_bench.report.cells import CellAt, MeasuredCells, Scores, TableSource, spread_of
from atrl_bench.report.differences import Differences
from atrl_bench.report.page import lines_of
from atrl_bench.report.table_model import Comparison, Grid, GridCell, TableCell
from atrl_bench.results import numbers
from atrl_bench.results.statistics.means import Difference, benjamini_hochberg


def looks(
    source: TableSource, measured: MeasuredCells, cells: Mapping[CellAt, TableCell], differences: Differences
) -> tuple[str, tuple[Grid, ...]]:
    """What the columns of reliance say together, and each row's reliance with its interval; nothing without such.

    A difference is clear as anywhere: over problems and training seeds, after a correction for their number.
    """
    columns = [column for column in source.definition.columns if column.relies_on is not None]
    rows = [row for row in source.definition.rows if any(cells[row.id, column.id].estimate for column in columns)]
    from_base, by_credit = list[Comparison](), list[Comparison]()
    for column, row in product(columns, rows):
        cell, base, name = cells[row.id, column.id], source.baselines[row.id], _name(column)
        if cell.difference is not None:
            by_seed = differences.by_seed(row.id, base, column.id)
            from_base.append(_comparison(row.label, name, cell.difference, by_seed, cell.q_value))
        for other in rows:
            difference = differences.between(row.id, other.id, column.id) if _differ_in_credit(row, other) else None
            if difference is not None:
                by_seed = differences.by_seed(row.id, other.id, column.id)
                by_credit.append(_comparison(name, other.label, difference, by_seed))
    if not from_base:
        return "", ()
    says = " ".join(lines_of("looking.txt.j2", from_base=from_base, by_credit=_corrected(by_credit)))
    shown = tuple(
        (
            source.definition.row_label(row.id),
            tuple(_level(cells[row.id, c.id], measured.scores.get((row.id, c.id))) for c in columns),
        )
        for row in rows
    )
    about = "Points that go without the picture, and their 95 % interval over problems and training seeds."
    heads = tuple(map(_name, columns))
    return says, (Grid("What the answers owe to the picture", about, heads, shown, is_drawn=True),)


def _name(column: ColumnDefinition) -> str:
    return f"{column.label}, {column.subscript.removeprefix('reliance, ')}"


def _comparison(
    row: str, other: str, difference: Difference, by_seed: Mapping[int, float], q_value: float | None = None
) -> Comparison:
    return Comparison(row, other, (), (), spread_of(by_seed.values()), overall=difference, overall_q=q_value)


def _corrected(pairs: Sequence[Comparison]) -> list[Comparison]:
    q_values = benjamini_hochberg([pair.overall.p_value for pair in pairs if pair.overall is not None])
    return [replace(pair, overall_q=q) for pair, q in zip(pairs, q_values, strict=True)]


def _differ_in_credit(row: RowDefinition, other: RowDefinition) -> bool:
    """Whether an AT-RL row and one without credit are the same but for that."""
    same = [(one.recipe, one.model, one.data, one.group, one.settings) for one in (row, other)]
    return (row.credit.rule, other.credit.rule) == ("atrl", "uniform") and same[0] == same[1]


def _level(cell: TableCell, scores: Scores | None) -> GridCell:
    if cell.estimate is None or scores is None:
        return GridCell("–", reason=cell.reason)
    low, high = scores.over_seeds(cell.estimate).interval()
    text = f"{numbers.percent(cell.estimate.mean)} ({numbers.percent(low)} to {numbers.percent(high)})"
    return GridCell(text, 100 * cell.estimate.mean, 100 * low, 100 * high)
