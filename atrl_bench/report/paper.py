"""What the paper prints: its rows beside the measured ones, and for each row one sentence on whether it was reproduced.

Printed scores are copied; averages, differences and bold are computed from them.

What a row of the paper claims is its gain over the baseline (the baseline row: its score). The paper gives no error bar
for it. Its number was made with as many problems as ours, so it is given the same standard error: the interval of the
difference between the two is wider than ours by the square root of two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Literal

from atrl_bench.experiments.definition import AVERAGE, RowDefinition, TableDefinition
from atrl_bench.papers.scores import PrintedScores
from atrl_bench.report.page import lines_of
from atrl_bench.report.table_model import Footnotes, PublishedRow, PublishedScore, Row, Table, TableCell
from atrl_bench.results.statistics.means import Estimate

Values = Sequence[Decimal | None]


def published_rows(
    definition: TableDefinition, printed: PrintedScores, footnotes: Footnotes
) -> tuple[PublishedRow, ...]:
    values = _values(definition, printed.scores)
    return tuple(
        _row(definition, row, values, printed.spreads, footnotes) for row in definition.rows if row.id in values
    )


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
    """The printed scores of each row that has any, its average last where the table has one."""
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
        group=definition.group_label(row),
        marks=footnotes.marks(row.footnotes),
        scores=scores,
        is_best=scores[-1].is_best if definition.average else all(score.is_best for score in scores),
        other=definition.row(other).label if other else "",
        deltas=_minus(values[row.id], values[other]) if other else (),
    )


def _minus(scores: Values, others: Values | None) -> tuple[Decimal | None, ...]:
    return tuple(
        None if score is None or other is None else score - other
        for score, other in zip(scores, others or [None] * len(scores), strict=True)
    )


# Published beside measured --------------------------------------------------------------------------------------------

Reproduction = Literal["reproduced", "not reproduced", "within noise", "not comparable"]


@dataclass(frozen=True)
class PaperPair:
    """A column's published and measured score, both shares; `difference` is measured minus published."""

    column: str
    published: float | None
    measured: float | None
    difference: float | None
    half_width: float | None

    @property
    def is_apart(self) -> bool:
        return self.difference is not None and self.half_width is not None and abs(self.difference) > self.half_width


@dataclass(frozen=True)
class RowVerdict:
    """What became of one row of the paper."""

    row: str
    label: str
    verdict: Reproduction
    sentence: str
    pairs: tuple[PaperPair, ...]


def against_paper(table: Table) -> tuple[RowVerdict, ...]:
    measured = {row.id: row for row in table.rows}
    return tuple(_verdict(table, published, measured.get(published.id)) for published in table.published)


def _verdict(table: Table, published: PublishedRow, row: Row | None) -> RowVerdict:
    if not table.is_comparable:
        reason = f"profile {table.profile} has another model, other problems and other sizes."
        return RowVerdict(published.id, published.label, "not comparable", f"Not comparable: {reason}", ())
    if row is None or row.is_unmeasured:
        reason = row.cells[0].reason if row is not None else "it was left out here"
        return RowVerdict(published.id, published.label, "not comparable", f"Not comparable: {reason}", ())
    pairs = tuple(_pairs(table, published, row))
    verdict, sentence = _claim(table, published, row)
    return RowVerdict(published.id, published.label, verdict, sentence, pairs)


def _pairs(table: Table, published: PublishedRow, row: Row) -> Iterable[PaperPair]:
    for column, printed, cell in zip(table.columns, published.scores, row.cells, strict=True):
        published_score = None if printed.score is None else float(printed.score) / 100
        if published_score is None or cell.estimate is None:
            yield PaperPair(column.text, published_score, cell.estimate.mean if cell.estimate else None, None, None)
        else:
            difference = cell.estimate.mean - published_score
            yield PaperPair(column.text, published_score, cell.estimate.mean, difference, noise_of(cell.estimate))


def noise_of(estimate: Estimate) -> float | None:
    half_width = math.sqrt(2) * estimate.half_width()
    return None if math.isnan(half_width) else half_width


def _claim(table: Table, published: PublishedRow, row: Row) -> tuple[Reproduction, str]:
    both = [
        (column.text, printed, cell)
        for column, printed, cell in zip(table.columns, published.scores, row.cells, strict=True)
        if printed.score is not None
    ]
    unfinished = [text for text, _, cell in both if cell.state != "measured" or cell.estimate is None]
    if not both or unfinished:
        missing = ", ".join(unfinished) or "every column"
        return "not comparable", f"Not comparable yet: {missing} is missing or incomplete here."
    baseline = next((other.label for other in table.rows if other.id == row.baseline), table.baseline)
    if published.scores[-1].score is not None and table.columns[-1].id == "average":
        return _one(baseline, "on average", *both[-1][1:])
    verdicts = [_one(baseline, f"on {text}", printed, cell) for text, printed, cell in both]
    kinds = [verdict for verdict, _ in verdicts]
    worst: Reproduction = next(kind for kind in ("not reproduced", "within noise", "reproduced") if kind in kinds)
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    first = next(sentence for verdict, sentence in verdicts if verdict == worst)
    return worst, f"Of {len(kinds)} columns: {counts}. {first}"


def _one(baseline: str, where: str, printed: PublishedScore, cell: TableCell) -> tuple[Reproduction, str]:
    is_gain = printed.difference is not None and cell.difference is not None
    estimate = cell.difference.estimate if is_gain and cell.difference else cell.estimate
    stated = printed.difference if is_gain else printed.score
    assert estimate is not None
    assert stated is not None
    noise, apart = noise_of(estimate), estimate.mean - float(stated) / 100
    kind: Reproduction = "within noise"
    if noise is None:
        kind = "not comparable"
    elif abs(apart) > noise:
        kind = "not reproduced"
    elif not is_gain or (abs(estimate.mean) > estimate.half_width() and estimate.mean * float(stated) > 0):
        kind = "reproduced"
    about = {"baseline": baseline, "where": where, "estimate": estimate, "stated": stated, "noise": noise}
    return kind, " ".join(lines_of("reproduction.txt.j2", kind=kind, is_gain=is_gain, apart=apart, **about))
