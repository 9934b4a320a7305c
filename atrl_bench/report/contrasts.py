"""The question of a table: what changes between two rows that differ in their credit alone, and how certain that is.

A difference is called clear when zero lies outside both of its 95 % intervals: over problems, corrected for the number
of the table's comparisons, and over training seeds. With one seed there is no second interval, and nothing is clear.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from atrl_bench.report.table_model import SIGNIFICANCE, Comparison, Table
from atrl_bench.report.templates import lines_of
from atrl_bench.results.statistics import Estimate, SeedSpread

Outcome = Literal["gain", "loss", "unclear", "one seed", "unfinished"]
Kind = Literal["gain", "loss", "mixed", "none", "open"]


@dataclass(frozen=True)
class Contrast:
    """One row against another that differs in its credit alone, on the mean of the table's columns.

    `scores` are the two means, `claim` is what the paper prints for the same difference, in points.
    """

    row: str
    other: str
    credit: str
    estimate: Estimate
    q_value: float | None
    seeds: SeedSpread
    by_seed: tuple[float, ...]
    training: SeedSpread | None
    scores: tuple[float, float] | None
    claim: Decimal | None
    is_ranked: bool
    detectable: float | None
    """The difference that would have been seen four times in five; None with one seed, or one group of problems."""

    @property
    def outcome(self) -> Outcome:
        """What can be said of it."""
        if self.q_value is None:
            return "unfinished"
        over_seeds = self.seeds.half_width()
        if over_seeds is None:
            return "one seed"
        if not self.is_ranked or not self.q_value < SIGNIFICANCE or abs(self.estimate.mean) <= over_seeds:
            return "unclear"
        return "gain" if self.estimate.mean > 0 else "loss"

    @property
    def is_clear(self) -> bool:
        """Whether it can be told from zero."""
        return self.outcome in ("gain", "loss")

    @property
    def interval(self) -> tuple[float, float]:
        """The wider of the two 95 % intervals, cut off where no difference of scores can be; NaN with one group."""
        half = self.estimate.half_width()
        if math.isnan(half):
            return math.nan, math.nan
        half = max(half, self.seeds.half_width() or 0.0)
        return max(self.estimate.mean - half, -1.0), min(self.estimate.mean + half, 1.0)


@dataclass(frozen=True)
class Answer:
    """What all contrasts of a table say together: a badge of a few words, and one sentence."""

    kind: Kind
    badge: str
    sentence: str


def contrasts(table: Table) -> list[Contrast]:
    """Return the table's comparisons that have numbers, in their order."""
    credit = {row.id: row.credit for row in table.rows}
    return [contrast for item in table.comparisons if (contrast := contrast_of(item, credit.get(item.row_id, "")))]


def contrast_of(item: Comparison, credit: str = "") -> Contrast | None:
    """Return what a comparison says, None where it has no numbers."""
    if item.overall is None or item.seeds is None:
        return None
    return Contrast(
        item.row,
        item.other,
        credit,
        item.overall.estimate,
        item.overall_q,
        item.seeds,
        item.by_seed,
        item.training,
        item.scores,
        item.claim,
        item.is_ranked,
        item.detectable,
    )


def answer_of(items: Sequence[Contrast]) -> Answer | None:
    """Return what the contrasts say together, None where there are none.

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
        num_seeds=max(item.seeds.num_seeds for item in items),
        detectable=statistics.median(detectable) if detectable else None,
    )
    if "unfinished" in outcomes or outcomes.count("one seed") == len(items):
        return Answer("open", badge, sentence)
    kind: Kind = "mixed" if gains and losses else "gain" if gains else "loss" if losses else "none"
    return Answer(kind, badge, sentence)
