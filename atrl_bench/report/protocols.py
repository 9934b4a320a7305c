"""Released checkpoints: what is printed, what is measured as printed and as here, and which of the two it agrees with.

A printed score is reached where the measured one is no further from it than the noise of both; a protocol explains a
gap where the score is reached under one protocol and not under the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal

from atrl_bench.experiments.definition import RowDefinition, TableDefinition
from atrl_bench.report.page import lines_of
from atrl_bench.report.paper import noise_of
from atrl_bench.report.table_model import Grid, GridCell, Row, Table
from atrl_bench.results import numbers
from atrl_bench.results.statistics.means import Estimate


@dataclass(frozen=True)
class Pair:
    """One score of a checkpoint: printed, and measured under both protocols."""

    label: str
    printed: Decimal | None
    ours: Estimate | None
    as_printed: Estimate | None

    def is_reached(self, measured: Estimate) -> bool:
        noise = noise_of(measured)
        return noise is not None and abs(self._gap(measured)) <= noise

    def _gap(self, measured: Estimate) -> float:
        return measured.mean - float(self.printed or 0) / 100

    @property
    def verdict(self) -> str:
        if self.printed is None or self.ours is None or self.as_printed is None:
            return ""
        reached = self.is_reached(self.as_printed), self.is_reached(self.ours)
        about = {"gap": self._gap(self.as_printed), "printed": self.printed, "difference": self.difference}
        return " ".join(lines_of("protocols.txt.j2", as_printed=reached[0], as_here=reached[1], **about))

    @property
    def difference(self) -> str:
        assert self.ours is not None
        assert self.as_printed is not None
        return numbers.signed(self.as_printed.mean - self.ours.mean)

    def cells(self) -> tuple[GridCell, ...]:
        def cell(estimate: Estimate | None) -> GridCell:
            if estimate is None:
                return GridCell("–", reason="not measured")
            return GridCell(f"{numbers.percent(estimate.mean)} ±{numbers.half_width(estimate)}", estimate.mean)

        printed = "–" if self.printed is None else str(self.printed)
        both = self.ours is not None and self.as_printed is not None
        apart = "–" if self.printed is None or self.as_printed is None else numbers.signed(self._gap(self.as_printed))
        protocols = self.difference if both else "–"
        return GridCell(printed), cell(self.as_printed), cell(self.ours), GridCell(protocols), GridCell(apart)


def with_protocols(table: Table, definition: TableDefinition) -> Table:
    """The table with its checkpoints under both protocols beside what is printed; others come back as they are."""
    pairs = list(_pairs(table, definition))
    if not pairs:
        return table
    grid = Grid(
        title="Printed and measured, by protocol",
        explanation="Percent, with 95 % intervals. As printed: prompt, sampling and picture size as the authors' paper "
        "or code has them. A score is reached where it is within the noise of both numbers.",
        columns=("printed", "measured as printed", "measured as here", "as printed − as here", "measured − printed"),
        rows=tuple((pair.label, pair.cells()) for pair in pairs),
        head="Checkpoint",
    )
    told = [f"{pair.label}: {pair.verdict}" for pair in pairs if pair.verdict] if table.is_comparable else []
    lacks = {row.printed_by: p.not_ours for row in definition.rows if (p := definition.protocol_of(row)) and p.not_ours}
    asked = [f"As {paper} prints, but not here: {text}." for paper, text in lacks.items()]
    return replace(table, grids=(grid, *table.grids), notes=(*told, *asked, *table.notes))


def _pairs(table: Table, definition: TableDefinition) -> Iterable[Pair]:
    measured = {row.id: row for row in table.rows}
    printed = {row.id: row for row in table.published}
    for row in definition.rows:
        ours = next((other for other in definition.rows if _is_other(row, other, definition)), None)
        if row.protocol is None or ours is None:
            continue
        for column in definition.columns_of(row):
            at = [item.id for item in definition.columns].index(column.id)
            scores = [_estimate(measured.get(each.id), at) for each in (ours, row)]
            score = printed[row.id].scores[at].score if row.id in printed else None
            if score is not None or any(scores):
                name = definition.group_label(row) or row.label
                yield Pair(f"{name}, {column.text}", score, scores[0], scores[1])


def _is_other(row: RowDefinition, other: RowDefinition, definition: TableDefinition) -> bool:
    trained = [(definition.model_of(each), each.recipe, each.settings) for each in (row, other)]
    return trained[0] == trained[1] and other.protocol is None and other.group == row.group


def _estimate(row: Row | None, column: int) -> Estimate | None:
    cell = row.cells[column] if row else None
    return cell.estimate if cell and cell.state == "measured" else None
