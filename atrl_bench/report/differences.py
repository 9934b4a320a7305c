"""Differences between the rows of a table: against the baseline, of the best from the others, and by credit alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cached_property

from atrl_bench.experiments.definition import AVERAGE
from atrl_bench.report.cells import (
    CellAt,
    MeasuredCells,
    Scores,
    TableSource,
    average_by_seed,
    mean,
    named,
    shared_groups,
    spread_of,
)
from atrl_bench.report.notes import row_label
from atrl_bench.report.table_model import SIGNIFICANCE, Comparison, TableCell, Tie
from atrl_bench.results.statistics import Difference, Estimate, average_of, benjamini_hochberg
from atrl_bench.results.store import Run

Between = tuple[str, str, str]  # row, the row it is compared with, column


class Differences:
    """The differences between any two rows, each computed once."""

    def __init__(self, scores: Mapping[CellAt, Scores], source: TableSource) -> None:
        self._scores, self._source = scores, source
        self._computed: dict[Between, Difference | None] = {}

    def between(self, row: str, other: str, column: str) -> Difference | None:
        """Return row minus other in one column, or in the average of all; None where one of them has no scores."""
        at = row, other, column
        if at not in self._computed:
            self._computed[at] = self._average(row, other) if column == AVERAGE else self._paired(*at)
        return self._computed[at]

    def _average(self, row: str, other: str) -> Difference | None:
        columns = self._source.columns_of(row, other)
        differences = [self.between(row, other, column) for column in columns]
        estimates = [difference.estimate for difference in differences if difference is not None]
        if len(estimates) < len(differences):
            return None
        estimate = average_of(estimates, self._residuals(row, other, dict(zip(columns, estimates, strict=True))))
        return Difference(estimate, estimate.p_value(), "paired t, clustered, average of the columns")

    def _residuals(self, row: str, other: str, estimates: Mapping[str, Estimate]) -> list[dict[str, float]]:
        """Return what the groups that columns share add to the error of each column's difference."""
        names = self._shared
        if not names:
            return []
        return [
            named(self._scores[row, column].residuals(each.stderr, self._scores[other, column]), column, names)
            for column, each in estimates.items()
        ]

    @cached_property
    def _shared(self) -> dict[tuple[str, str], str]:
        return shared_groups({column: scores for (_, column), scores in self._scores.items()})

    def _paired(self, row: str, other: str, column: str) -> Difference | None:
        ours, theirs = self._scores.get((row, column)), self._scores.get((other, column))
        return None if ours is None or theirs is None else ours.minus(theirs)


def with_differences(
    cells: Mapping[CellAt, TableCell], baselines: Mapping[str, str], differences: Differences
) -> dict[CellAt, TableCell]:
    """Return the cells with their differences from the baselines, p-values corrected over the whole table."""
    from_baseline = {
        (row, baselines[row], column): difference
        for (row, column), cell in cells.items()
        if row != baselines[row] and cell.estimate and (difference := differences.between(row, baselines[row], column))
    }
    q_values = _q_values(from_baseline, cells)
    compared = {
        (at[0], at[2]): replace(cells[at[0], at[2]], difference=difference, q_value=q_values.get(at))
        for at, difference in from_baseline.items()
    }
    return {**cells, **compared}


def _q_values(differences: Mapping[Between, Difference], cells: Mapping[CellAt, TableCell]) -> dict[Between, float]:
    """Return the adjusted p-values of the differences between finished cells.

    A cell that still grows is not tested: looking at a number until it pleases, and stopping there, is no test.
    """
    tested = [at for at in differences if _is_final(cells, at[0], at[2]) and _is_final(cells, at[1], at[2])]
    return dict(zip(tested, _adjusted([differences[at].p_value for at in tested]), strict=True))


def _is_final(cells: Mapping[CellAt, TableCell], row: str, column: str) -> bool:
    return (row, column) in cells and cells[row, column].is_final


def _adjusted(p_values: Sequence[float]) -> list[float]:
    """Return the q-values; a p-value that cannot be computed (one group) never counts as significant."""
    return benjamini_hochberg([1.0 if math.isnan(p) else p for p in p_values])


# The best of a column ---------------------------------------------------------------------------------------------


def with_best(
    cells: Mapping[CellAt, TableCell], source: TableSource, differences: Differences
) -> tuple[dict[CellAt, TableCell], list[Tie]]:
    """Return the cells, the best of each column marked where it differs from every other, and where it does not.

    Rows compete with those that have the same baseline.
    """
    marked, ties = dict(cells), []
    for column in source.all_columns:
        for baseline in dict.fromkeys(source.baselines.values()):
            rows = [row for row, of in source.baselines.items() if of == baseline and _is_final(cells, row, column)]
            if len(rows) < 2:
                continue
            means = {row: estimate.mean for row in rows if (estimate := cells[row, column].estimate)}
            best = max(means, key=means.__getitem__)
            num_tied = _num_tied(best, [row for row in rows if row != best], column, differences)
            if num_tied:
                ties.append(Tie(column, best, num_tied, len(rows) - 1))
            else:
                marked[best, column] = replace(cells[best, column], is_best=True)
    return marked, ties


def _num_tied(best: str, others: Sequence[str], column: str, differences: Differences) -> int:
    between = [differences.between(best, row, column) for row in others]
    q_values = _adjusted([1.0 if difference is None else difference.p_value for difference in between])
    return sum(not q < SIGNIFICANCE for q in q_values)


# Rows that differ in their credit alone ---------------------------------------------------------------------------


def comparisons(
    source: TableSource, measured: MeasuredCells, claims: Mapping[tuple[str, str], Decimal]
) -> Iterable[Comparison]:
    """Yield each row against the one with another credit, over all repeats: here the noise matters most.

    `claims` is what the paper prints of the same pairs.
    """
    differences = Differences(measured.all_repeats, source)
    pairs = source.definition.credit_pairs
    overall = {(row, other): _overall(source, row, other) for row, other in pairs}
    by_key = {
        (row, other, column): difference
        for row, other in pairs
        for column in dict.fromkeys([*source.all_columns, overall[row, other]])
        if (difference := differences.between(row, other, column))
    }
    q_values = _q_values(by_key, {**measured.cells, **_means(source, measured)})
    accuracy = {row.id: _training_accuracy(source.runs.get(row.id, ())) for row in source.definition.rows}
    for row, other in pairs:
        keys = [(row, other, column) for column in source.all_columns]
        if any(at in by_key for at in keys):
            by_seed = _by_seed(source, measured, row, other)
            yield Comparison(
                row=row_label(source.definition, row),
                other=row_label(source.definition, other, beside=row),
                differences=tuple(by_key.get(at) for at in keys),
                q_values=tuple(q_values.get(at) for at in keys),
                seeds=spread_of(by_seed),
                training=spread_of(_seed_by_seed(accuracy.get(row, {}), accuracy.get(other, {}))),
                row_id=row,
                overall=by_key.get((row, other, overall[row, other])),
                overall_q=q_values.get((row, other, overall[row, other])),
                scores=_means_of(source, measured, row, other),
                by_seed=tuple(by_seed),
                claim=claims.get((row, other)),
            )


def _overall(source: TableSource, row: str, other: str) -> str:
    """Return the column that a comparison is about: the mean of all, also where the table prints no average."""
    columns = source.columns_of(row, other)
    return columns[0] if len(columns) == 1 and not source.definition.average else AVERAGE


def _means(source: TableSource, measured: MeasuredCells) -> dict[CellAt, TableCell]:
    """Return a cell for the mean of all columns of each row that has them all, final where they all are."""
    of_row = {
        row.id: [measured.cells[row.id, column] for column in source.columns_of(row.id)]
        for row in source.definition.rows
    }
    return {
        (row, AVERAGE): TableCell("measured", estimate=average_of([cell.estimate for cell in cells if cell.estimate]))
        for row, cells in of_row.items()
        if all(cell.is_final for cell in cells)
    }


def _means_of(source: TableSource, measured: MeasuredCells, *rows: str) -> tuple[float, float] | None:
    estimates = [[measured.cells[row, column].all_repeats for column in source.columns_of(*rows)] for row in rows]
    ours, theirs = (
        mean(estimate.mean for estimate in of_row if estimate) if all(of_row) else math.nan for of_row in estimates
    )
    return None if math.isnan(ours) or math.isnan(theirs) else (ours, theirs)


def _by_seed(source: TableSource, measured: MeasuredCells, row: str, other: str) -> list[float]:
    columns = source.columns_of(row, other)
    if any((name, column) not in measured.all_repeats for name in (row, other) for column in columns):
        return []
    ours, theirs = (
        average_by_seed([measured.all_repeats[name, column] for column in columns]) for name in (row, other)
    )
    return _seed_by_seed(ours, theirs)


def _seed_by_seed(ours: Mapping[int, float], theirs: Mapping[int, float]) -> list[float]:
    """Return the differences over the seeds that both have."""
    return [ours[seed] - theirs[seed] for seed in sorted(ours) if seed in theirs]


def _training_accuracy(runs: Iterable[Run]) -> dict[int, float]:
    """Return the accuracy over the whole training by seed: who learns faster is ahead there at any end."""
    return {run.spec.get("seed", 0): run.summary["accuracy"] for run in runs if "accuracy" in run.summary}
