"""The paper's rows: printed scores are copied, averages, differences and bold are computed from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal

from atrl_bench.experiments.definition import AVERAGE, RowDefinition, TableDefinition, load_paper_spreads
from atrl_bench.report.labels import group_label
from atrl_bench.report.notes import Footnotes
from atrl_bench.report.table_model import PublishedRow, PublishedScore

Values = Sequence[Decimal | None]


def published_rows(
    definition: TableDefinition, scores: Mapping[tuple[str, str], Decimal], footnotes: Footnotes
) -> tuple[PublishedRow, ...]:
    """Return the rows that the paper prints any score of."""
    spreads = load_paper_spreads(definition)
    values = _values(definition, scores)
    return tuple(_row(definition, row, values, spreads, footnotes) for row in definition.rows if row.id in values)


def published_claims(
    definition: TableDefinition, scores: Mapping[tuple[str, str], Decimal]
) -> dict[tuple[str, str], Decimal]:
    """Return, by row and the row it is compared with, the printed difference between the means of all columns."""
    values = _values(definition, scores)
    claims = {}
    for row, other in definition.credit_pairs:
        deltas = _minus(values[row], values[other]) if row in values and other in values else ()
        of_columns = [delta for delta in deltas[: len(definition.columns)] if delta is not None]
        if of_columns and len(of_columns) == len(definition.columns):
            claims[row, other] = sum(of_columns, Decimal(0)) / len(of_columns)
    return claims


def _values(definition: TableDefinition, scores: Mapping[tuple[str, str], Decimal]) -> dict[str, Values]:
    """Return the printed scores of each row that has any, its average last where the table has one."""
    printed = {row.id: [scores.get((row.id, column.id)) for column in definition.columns] for row in definition.rows}
    return {
        row: [*of_row, *([_average(of_row)] if definition.average else [])]
        for row, of_row in printed.items()
        if any(score is not None for score in of_row)
    }


def _average(printed: Values) -> Decimal | None:
    scores = [score for score in printed if score is not None]
    if len(scores) < len(printed):
        return None
    return (sum(scores, Decimal(0)) / len(scores)).quantize(Decimal("0.01"), ROUND_HALF_UP)


def _row(
    definition: TableDefinition,
    row: RowDefinition,
    values: Mapping[str, Values],
    spreads: Mapping[tuple[str, str], Decimal],
    footnotes: Footnotes,
) -> PublishedRow:
    columns = [*(column.id for column in definition.columns), *([AVERAGE] if definition.average else [])]
    baseline = definition.baseline_of(row)
    rivals = [values[r.id] for r in definition.rows if r.id in values and definition.baseline_of(r) == baseline]
    best = [max((score for score in column if score is not None), default=None) for column in zip(*rivals, strict=True)]
    changes = _minus(values[row.id], values.get(baseline if baseline != row.id else ""))
    scores = tuple(
        PublishedScore(
            score=score,
            difference=change,
            is_best=score is not None and score == top,
            sd=spreads.get((row.id, column)),
            marks=footnotes.marks(row.cell_footnotes.get(column, ())),
        )
        for column, score, change, top in zip(columns, values[row.id], changes, best, strict=True)
    )
    other = row.compared_with if row.compared_with in values else None
    return PublishedRow(
        id=row.id,
        label=row.label,
        group=group_label(definition, row),
        marks=footnotes.marks(row.footnotes),
        scores=scores,
        is_best=scores[-1].is_best if definition.average else all(score.is_best for score in scores),
        other=definition.row(other).label if other else "",
        deltas=_minus(values[row.id], values[other]) if other else (),
    )


def _minus(scores: Values, others: Values | None) -> tuple[Decimal | None, ...]:
    """Return the differences of two rows where both have a score; all None without the other row."""
    return tuple(
        None if score is None or other is None else score - other
        for score, other in zip(scores, others or [None] * len(scores), strict=True)
    )
