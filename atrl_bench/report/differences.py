"""Differences between the rows of a table: against the baseline, of the best from the others, and by credit alone.

What the last say together is the answer of the table: a badge and a sentence. And its headroom is what the rule adds
that knows where credit belongs: what is shown to be there, and no bound, for another rule may add more. Where it is not
clearly above zero, it is not shown that the place of credit matters: the world ranks no rule, and no difference of its
rows is called clear.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Literal

from atrl_bench.experiments.definition import AVERAGE, TableDefinition
from atrl_bench.report.cells import (
    CellAt,
    MeasuredCells,
    Scores,
    TableSource,
    average_by_seed,
    mean,
    shared_groups,
    shared_residuals,
    spread_of,
)
from atrl_bench.report.page import lines_of
from atrl_bench.report.table_model import SIGNIFICANCE, Comparison, Row, Table, TableCell
from atrl_bench.results.statistics.means import Difference, average_of, benjamini_hochberg, over_seeds_too
from atrl_bench.results.store import Run

Between = tuple[str, str, str]  # row, the row it is compared with, column


class Differences:
    """The differences between any two rows, over problems (each computed once) and over training seeds."""

    def __init__(self, scores: Mapping[CellAt, Scores], source: TableSource) -> None:
        self._scores, self._source = scores, source
        self._computed: dict[Between, Difference | None] = {}
        self._of_seeds: dict[int, Differences] = {}

    def between(self, row: str, other: str, column: str) -> Difference | None:
        """Row minus other in one column, or in the average of all; None where one of them has no scores."""
        difference, by_seed = self.over_problems(row, other, column), self.by_seed(row, other, column)
        if difference is None or len(by_seed) < 2:
            return difference
        alone = [self._of_seed(seed).over_problems(row, other, column) for seed in by_seed]
        of_one_seed = [one.estimate for one in alone if one is not None]
        estimate = over_seeds_too(difference.estimate, list(by_seed.values()), of_one_seed)
        return Difference.tested(estimate, "paired t, over problems and training seeds")

    def by_seed(self, row: str, other: str, column: str) -> dict[int, float]:
        """Row minus other of each training seed that both have in all columns; a model that is not trained has any."""
        columns = self._source.columns_of(row, other) if column == AVERAGE else [column]
        scores = {name: [self._scores.get((name, one)) for one in columns] for name in (row, other)}
        numbers = {name: average_by_seed([one for one in of if one]) for name, of in scores.items() if all(of)}
        if len(numbers) < 2:
            return {}
        of_trained = [of for name, of in numbers.items() if name in self._trained]
        seeds = sorted(set.intersection(*map(set, of_trained or numbers.values())))
        ours, theirs = ([of.get(seed, mean(of.values())) for seed in seeds] for of in numbers.values())
        return {seed: a - b for seed, a, b in zip(seeds, ours, theirs, strict=True)}

    def over_problems(self, row: str, other: str, column: str) -> Difference | None:
        """The same with the error over problems alone: for these checkpoints."""
        at = row, other, column
        if at not in self._computed:
            self._computed[at] = self._average(row, other) if column == AVERAGE else self._paired(*at)
        return self._computed[at]

    def _average(self, row: str, other: str) -> Difference | None:
        columns = self._source.columns_of(row, other)
        differences = [self.over_problems(row, other, column) for column in columns]
        estimates = [difference.estimate for difference in differences if difference is not None]
        if len(estimates) < len(differences):
            return None
        ours, theirs = ({column: self._scores[name, column] for column in columns} for name in (row, other))
        estimate = average_of(estimates, shared_residuals(self._shared, estimates, ours, theirs))
        return Difference.tested(estimate, "paired t, clustered, average of the columns")

    def _paired(self, row: str, other: str, column: str) -> Difference | None:
        ours, theirs = self._scores.get((row, column)), self._scores.get((other, column))
        return None if ours is None or theirs is None else ours.minus(theirs)

    def _of_seed(self, seed: int) -> Differences:
        """Those of one training seed alone."""
        if seed not in self._of_seeds:
            scores = {at: of.of_seeds.get(seed) if at[0] in self._trained else of for at, of in self._scores.items()}
            self._of_seeds[seed] = Differences({at: of for at, of in scores.items() if of}, self._source)
        return self._of_seeds[seed]

    @cached_property
    def _trained(self) -> set[str]:
        return {row.id for row in self._source.definition.rows if row.recipe}

    @cached_property
    def _shared(self) -> dict[tuple[str, str], str]:
        return shared_groups({column: scores for (_, column), scores in self._scores.items()})


def with_differences(
    cells: Mapping[CellAt, TableCell], baselines: Mapping[str, str], differences: Differences
) -> dict[CellAt, TableCell]:
    from_baseline = {
        (row, baselines[row], column): difference
        for (row, column), cell in cells.items()
        if row != baselines[row] and cell.estimate and _may_stand(cells, baselines[row], column)
        if (difference := differences.between(row, baselines[row], column))
    }
    q_values = _q_values(from_baseline, cells)
    compared = {
        (at[0], at[2]): replace(cells[at[0], at[2]], difference=difference, q_value=q_values.get(at))
        for at, difference in from_baseline.items()
    }
    return {**cells, **compared}


def _q_values(differences: Mapping[Between, Difference], cells: Mapping[CellAt, TableCell]) -> dict[Between, float]:
    """The adjusted p-values of the differences between finished cells.

    A cell that still grows is not tested: looking at a number until it pleases, and stopping there, is no test.
    """
    tested = [at for at in differences if _is_final(cells, at[0], at[2]) and _is_final(cells, at[1], at[2])]
    return dict(zip(tested, _adjusted([differences[at].p_value for at in tested]), strict=True))


def _may_stand(cells: Mapping[CellAt, TableCell], row: str, column: str) -> bool:
    """Whether no failing judge has left bounds in place of the number: an average may have them, its columns not."""
    return (row, column) not in cells or cells[row, column].between is None


def _is_final(cells: Mapping[CellAt, TableCell], row: str, column: str) -> bool:
    return (row, column) in cells and cells[row, column].is_final


def _adjusted(p_values: Sequence[float]) -> list[float]:
    """The q-values; a p-value that cannot be computed (one group) never counts as significant."""
    return benjamini_hochberg([1.0 if math.isnan(p) else p for p in p_values])


# The best of a column ---------------------------------------------------------------------------------------------


def with_best(
    cells: Mapping[CellAt, TableCell], source: TableSource, differences: Differences
) -> tuple[dict[CellAt, TableCell], list[str]]:
    """The cells, the best of each column marked where it differs from every other, and the columns where it does not.

    Rows compete with those that have the same baseline.
    """
    marked, tied = dict(cells), []
    for column in source.all_columns:
        for baseline in dict.fromkeys(source.baselines.values()):
            rows = [row for row, of in source.baselines.items() if of == baseline and _is_final(cells, row, column)]
            if len(rows) < 2:
                continue
            means = {row: estimate.mean for row in rows if (estimate := cells[row, column].estimate)}
            best = max(means, key=means.__getitem__)
            if _is_tied(best, [row for row in rows if row != best], column, differences):
                tied.append(column)
            else:
                marked[best, column] = replace(cells[best, column], is_best=True)
    return marked, tied


def _is_tied(best: str, others: Sequence[str], column: str, differences: Differences) -> bool:
    between = [differences.between(best, row, column) for row in others]
    q_values = _adjusted([1.0 if difference is None else difference.p_value for difference in between])
    return not all(q < SIGNIFICANCE for q in q_values)


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
        if _may_stand(measured.cells, row, column) and _may_stand(measured.cells, other, column)
        if (difference := differences.between(row, other, column))
    }
    q_values = _q_values(by_key, {**measured.cells, **_means(source, measured)})
    accuracy = {row.id: _training_accuracy(source.runs.get(row.id, ())) for row in source.definition.rows}
    for row, other in pairs:
        keys = [(row, other, column) for column in source.all_columns]
        if any(at in by_key for at in keys):
            by_seed = differences.by_seed(row, other, AVERAGE).values()
            ours, theirs = accuracy.get(row, {}), accuracy.get(other, {})
            over_problems = differences.over_problems(row, other, overall[row, other])
            yield Comparison(
                row=source.definition.row_label(row),
                other=source.definition.row_label(other, beside=row),
                differences=tuple(by_key.get(at) for at in keys),
                q_values=tuple(q_values.get(at) for at in keys),
                seeds=spread_of(by_seed),
                training=spread_of(ours[seed] - theirs[seed] for seed in sorted(ours) if seed in theirs),
                row_id=row,
                overall=by_key.get((row, other, overall[row, other])),
                over_problems=over_problems.estimate if over_problems else None,
                overall_q=q_values.get((row, other, overall[row, other])),
                scores=_means_of(source, measured, row, other),
                by_seed=tuple(by_seed),
                claim=claims.get((row, other)),
            )


def _overall(source: TableSource, row: str, other: str) -> str:
    """The column that a comparison is about: the mean of all, also where the table prints no average."""
    columns = source.columns_of(row, other)
    return columns[0] if len(columns) == 1 and not source.definition.average else AVERAGE


def _means(source: TableSource, measured: MeasuredCells) -> dict[CellAt, TableCell]:
    """A cell for the mean of all columns of each row that has them all, final where they all are."""
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


def _training_accuracy(runs: Iterable[Run]) -> dict[int, float]:
    """The accuracy over the whole training by seed: it measures learning speed, not the final score."""
    return {run.spec.get("seed", 0): run.summary["accuracy"] for run in runs if "accuracy" in run.summary}


# What these comparisons say together ----------------------------------------------------------------------------------

# Rules whose credit is not on anchors.
ELSEWHERE = ("uniform", "random", "reverse", "bottom_truncation", "latest_truncation", "entropy_truncation")


@dataclass(frozen=True)
class Answer:
    """What all comparisons of a table say together: a badge of a few words, and one sentence."""

    kind: Literal["gain", "loss", "mixed", "none", "open"]
    badge: str
    sentence: str


def contrasts(table: Table) -> list[Comparison]:
    return [item for item in table.comparisons if item.has_numbers]


def anchor_contrasts(table: Table) -> list[Comparison]:
    """Those of rows whose credit is on the tokens that look at the image."""
    credit = {row.id: row.credit for row in table.rows}
    return [item for item in contrasts(table) if not credit.get(item.row_id, "").startswith(ELSEWHERE)]


def answer_of(items: Sequence[Comparison]) -> Answer | None:
    """What comparisons with numbers say together, None where there are none.

    The sentence is the one that a hurried reader takes away, so it is as strong as the weakest of its numbers.
    """
    if not items:
        return None
    outcomes = [item.outcome for item in items]
    gains, losses = (outcomes.count(outcome) for outcome in ("gain", "loss"))
    detectable = [item.detectable for item in items if item.detectable is not None]
    badge, sentence = lines_of(
        "answer.txt.j2",
        contrasts=items,
        outcomes=outcomes,
        gains=gains,
        losses=losses,
        clear=[item for item in items if item.is_clear],
        num_seeds=max(item.seeds.num_seeds for item in items if item.seeds),
        detectable=statistics.median(detectable) if detectable else None,
    )
    if "unfinished" in outcomes or outcomes.count("one seed") == len(items):
        return Answer("open", badge, sentence)
    kind: Literal["gain", "loss", "mixed", "none"] = "none"
    if gains or losses:
        kind = "mixed" if gains and losses else "gain" if gains else "loss"
    return Answer(kind, badge, sentence)


def in_words(items: Sequence[Comparison]) -> str:
    lines = lines_of("differences_in_words.txt.j2", answer=answer_of(items), contrasts=items)
    return " ".join(lines)


def counted(table: Table) -> str:
    """Why the scores of the table do not subtract to these differences, "" where they do."""
    for row in table.rows:
        for cell in row.cells:
            if cell.estimate and cell.all_repeats and cell.num_repeats > 1 and cell.all_repeats != cell.estimate:
                return (
                    f"Differences are taken over all {cell.num_repeats} answers to each problem. The table counts the "
                    "first answer only, so its scores subtract to slightly other numbers."
                )
    return ""


# Headroom -------------------------------------------------------------------------------------------------------------


LITTLE = 0.03  # a gain of at most this is none to speak of


def with_headroom(table: Table, definition: TableDefinition) -> Table:
    chosen = {row.group for row in definition.rows}
    groups = [group for group in definition.groups if group.oracle is not None and group.id in chosen]
    if not groups:
        return table
    best, equal = _by_row(table.comparisons), _by_row(table.equal_rate)
    sentences, unranked = list[str](), set[str]()
    for group in groups:
        contrast = best.get(group.oracle or "")
        about = {"group": group.label, "contrast": contrast, "equal": equal.get(group.oracle or ""), "little": LITTLE}
        sentences += lines_of("headroom.txt.j2", **about)
        if contrast is None or contrast.outcome != "gain":
            unranked |= {row.id for row in definition.rows if row.group == group.id}
    others = unranked.difference(group.oracle for group in groups if group.oracle)
    return replace(
        table,
        headroom=tuple(sentences),
        rows=tuple(_unranked_row(row) if row.id in unranked else row for row in table.rows),
        comparisons=_unranked(table.comparisons, others),
        equal_rate=_unranked(table.equal_rate, others),
    )


def _by_row(comparisons: tuple[Comparison, ...]) -> Mapping[str, Comparison]:
    # A row may be compared with several; the first is the one that its definition names.
    return {item.row_id: item for item in reversed(comparisons) if item.has_numbers}


def _unranked_row(row: Row) -> Row:
    return replace(row, is_best=False, cells=tuple(replace(cell, is_best=False, q_value=None) for cell in row.cells))


def _unranked(items: Iterable[Comparison], rows: set[str]) -> tuple[Comparison, ...]:
    return tuple(
        replace(item, is_ranked=False, q_values=(None,) * len(item.q_values)) if item.row_id in rows else item
        for item in items
    )
