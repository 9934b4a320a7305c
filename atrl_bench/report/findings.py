"""What a run folder answers, in words and from its own numbers: the sentences at the top of its front page.

They are made of the comparisons of credit in its tables and of the scores behind its figure on anchors.

A difference is called clear when zero lies outside both of its 95 % intervals: over problems, corrected for the number
of the table's comparisons, and over training seeds. With one seed there is no second interval, and nothing is clear.
The accuracy while training has intervals over seeds alone, corrected likewise.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from atrl_bench.analysis.anchors import CREDIT, LAST, AnchorScore
from atrl_bench.report.table_model import SIGNIFICANCE, Table
from atrl_bench.report.templates import lines_of
from atrl_bench.results.statistics import Estimate, SeedSpread, benjamini_hochberg

HELPS = "Does AT-RL's credit help the methods that it is added to?"
PLACEMENT = "Does credit on the tokens that look at the image beat credit anywhere else?"
READINGS = "Which reading of the paper finds the tokens that are read from the image?"
ELSEWHERE = ("uniform", "random", "reverse", "bottom_truncation")  # rules whose credit is not on anchors


@dataclass(frozen=True)
class Finding:
    """A question, what this folder says to it, the numbers behind that, and where to look; `command` where it is open.

    An answer is the sentence that a hurried reader takes away, so it is as strong as the weakest of its numbers.
    """

    question: str
    answer: str
    because: tuple[str, ...] = ()
    page: str = ""
    command: str = ""


ContrastOutcome = Literal["better", "worse", "unclear", "one seed", "unfinished"]


@dataclass(frozen=True)
class Contrast:
    """One row against another that differs in its credit alone, on the average of the table's columns."""

    row: str
    other: str
    estimate: Estimate
    q_value: float | None
    seeds: SeedSpread
    training: SeedSpread | None

    @property
    def outcome(self) -> ContrastOutcome:
        """What can be said of it."""
        if self.q_value is None:
            return "unfinished"
        over_seeds = self.seeds.half_width()
        if over_seeds is None:
            return "one seed"
        if not self.q_value < SIGNIFICANCE or abs(self.seeds.mean) <= over_seeds:
            return "unclear"
        return "better" if self.estimate.mean > 0 else "worse"

    @property
    def least(self) -> float:
        """The difference from which on it would have been clear, about."""
        return max(self.estimate.half_width(), self.seeds.half_width() or 0.0)


def findings(tables: Mapping[str, Table], anchors: Sequence[AnchorScore], profile: str) -> list[Finding]:
    """Return what the folder of this profile answers; `anchors` are the scores behind its figure, none if not drawn."""
    compared = [
        _compared(HELPS, "main_7b", tables.get("main_7b"), profile),
        _compared(PLACEMENT, "credit_placement", tables.get("credit_placement"), profile),
    ]
    readings = _readings(anchors)
    return compared if readings is None else [*compared, readings]


# Does it help? ----------------------------------------------------------------------------------------------------


def _compared(question: str, name: str, table: Table | None, profile: str) -> Finding:
    contrasts = list(_contrasts(table)) if table else []
    if not contrasts:
        return Finding(question, "Not answered yet.", command=f"atrl-bench run-table {name} --profile {profile}")
    learning = _learning(contrasts)
    answer, *because = lines_of(
        "contrasts.txt.j2",
        contrasts=contrasts,
        outcomes=[contrast.outcome for contrast in contrasts],
        clear=[(item, item.estimate.mean) for item in contrasts if item.outcome in ("better", "worse")],
        least=statistics.median(contrast.least for contrast in contrasts),
        num_learning=len(learning),
        learned=[pair for pair, q_value in learning if q_value < SIGNIFICANCE],
    )
    return Finding(question, answer, tuple(because), f"{name}.html#credit")


def _contrasts(table: Table) -> Iterable[Contrast]:
    """Yield the comparisons of rows whose credit is meant to be on anchors."""
    credit = {row.label: row.credit for row in table.rows}
    for item in table.comparisons:
        difference = item.differences[-1]
        if difference is None or item.seeds is None or credit.get(item.row, "").startswith(ELSEWHERE):
            continue
        yield Contrast(item.row, item.other, difference.estimate, item.q_values[-1], item.seeds, item.training)


def _learning(contrasts: Sequence[Contrast]) -> list[tuple[tuple[Contrast, float], float]]:
    """Return the differences in the accuracy while training, each with a p-value corrected for their number."""
    over_seeds = [(contrast, contrast.training.estimate()) for contrast in contrasts if contrast.training is not None]
    tested = [(contrast, estimate) for contrast, estimate in over_seeds if estimate is not None]
    q_values = benjamini_hochberg([estimate.p_value() for _, estimate in tested])
    return [((contrast, estimate.mean), q) for (contrast, estimate), q in zip(tested, q_values, strict=True)]


# Which reading? ---------------------------------------------------------------------------------------------------


def _readings(scores: Sequence[AnchorScore]) -> Finding | None:
    """Return what the scores say, setting by setting; None without the settings that matter."""
    density = {(s.reading, s.corrected, s.setting): s for s in scores if s.part == LAST}
    credit = {(s.preset, s.setting): s for s in scores if s.part == CREDIT}
    if not density or ("default", "atrl") not in credit:
        return None
    best = max(density.values(), key=lambda score: score.mean)
    answer, *because = lines_of(
        "readings.txt.j2",
        best=best,
        best_rule=max(credit.values(), key=lambda score: score.mean),
        default=credit["default", "atrl"],
        other_row=density["predicting" if best.reading == "own" else "own", best.corrected, best.setting],
        debiased=density[best.reading, True, best.setting],
        plain=density[best.reading, False, best.setting],
        credit=credit,
        auc=_auc,
        against=_against,
    )
    return Finding(READINGS, answer, tuple(because), "figures/anchors.svg")


def _auc(score: AnchorScore) -> str:
    return f"{score.mean:.2f} ±{1.96 * score.standard_error:.2f}"


def _against(score: AnchorScore, other: AnchorScore) -> str:
    """Return how one stands to another, whose errors are taken as independent: wider than a paired interval."""
    half_width = 1.96 * math.hypot(score.standard_error, other.standard_error)
    difference = score.mean - other.mean
    clear = "clear" if abs(difference) > half_width else "within noise"
    return f"{'+' if difference >= 0 else '−'}{abs(difference):.2f}, {clear}"
