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
from atrl_bench.results import numbers
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

    @property
    def text(self) -> str:
        """The difference with its intervals."""
        over_seeds = _around(self.seeds)
        text = f"{numbers.signed(self.estimate.mean)} points ±{numbers.half_width(self.estimate)} over problems"
        text += f", ±{over_seeds}" if over_seeds else ", one seed"
        if self.training is not None:
            around = _around(self.training)
            text += f"; while training {numbers.signed(self.training.mean)}" + (f" ±{around}" if around else "")
        ends = {"better": ": clear", "worse": ": clear", "unfinished": ": not finished"}
        return f"{text}{ends.get(self.outcome, '')}"


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
    return Finding(question, _verdict(contrasts), tuple(_sentences(contrasts)), f"{name}.html#credit")


def _contrasts(table: Table) -> Iterable[Contrast]:
    """Yield the comparisons of rows whose credit is meant to be on anchors."""
    credit = {row.label: row.credit for row in table.rows}
    for item in table.comparisons:
        difference = item.differences[-1]
        if difference is None or item.seeds is None or credit.get(item.row, "").startswith(ELSEWHERE):
            continue
        yield Contrast(item.row, item.other, difference.estimate, item.q_values[-1], item.seeds, item.training)


def _verdict(contrasts: Sequence[Contrast]) -> str:
    verdicts = [contrast.outcome for contrast in contrasts]
    if "unfinished" in verdicts:
        return f"Not finished: {verdicts.count('unfinished')} of {len(verdicts)} comparisons still grow."
    least = f"{numbers.percent(statistics.median(contrast.least for contrast in contrasts), 1)} points"
    if set(verdicts) == {"one seed"}:
        return (
            "One training seed cannot tell: another may move any row by more than what is seen here, and over problems "
            f"alone a difference shows from about {least} on."
        )
    return f"{_after_training(contrasts, least)} {_while_training(contrasts)}".strip()


def _after_training(contrasts: Sequence[Contrast], least: str) -> str:
    clear = [contrast for contrast in contrasts if contrast.outcome in ("better", "worse")]
    if not clear:
        num_seeds = max(contrast.seeds.num_seeds for contrast in contrasts)
        return (
            f"Not that {num_seeds} seeds could show: none of {len(contrasts)} differences is clear; one of about "
            f"{least} would have been."
        )
    num_better = sum(contrast.outcome == "better" for contrast in clear)
    start = "Yes" if num_better == len(contrasts) else "In part" if num_better else "No"
    rest = len(contrasts) - len(clear)
    unclear = (
        f" The other {rest} of {len(contrasts)} differences cannot be told from noise; one of about {least} would "
    )
    return f"{start}. Clear: {_named(clear, [c.estimate.mean for c in clear])}." + (
        unclear + "have been." if rest else ""
    )


def _while_training(contrasts: Sequence[Contrast]) -> str:
    """Return which rows learned faster or slower, over seeds and corrected for the number of comparisons."""
    over_seeds = [(contrast, contrast.training.estimate()) for contrast in contrasts if contrast.training is not None]
    tested = [(contrast, estimate) for contrast, estimate in over_seeds if estimate is not None]
    q_values = benjamini_hochberg([estimate.p_value() for _, estimate in tested])
    clear = [pair for pair, q_value in zip(tested, q_values, strict=True) if q_value < SIGNIFICANCE]
    if not tested:
        return ""
    if not clear:
        return "Nor is any clear in the accuracy while training."
    named = _named([contrast for contrast, _ in clear], [estimate.mean for _, estimate in clear])
    return f"In the accuracy while training, {len(clear)} of {len(tested)} are clear: {named}."


def _named(contrasts: Sequence[Contrast], means: Sequence[float]) -> str:
    return "; ".join(
        f"{contrast.row} against {contrast.other} {numbers.signed(mean, 1)} points"
        for contrast, mean in zip(contrasts, means, strict=True)
    )


def _sentences(contrasts: Sequence[Contrast]) -> Iterable[str]:
    for row in dict.fromkeys(contrast.row for contrast in contrasts):
        yield (
            f"{row}: "
            + "; ".join(f"against {contrast.other} {contrast.text}" for contrast in contrasts if contrast.row == row)
            + "."
        )


def _around(spread: SeedSpread) -> str:
    half_width = spread.half_width()
    return "" if half_width is None else f"{numbers.percent(half_width, 1)} over {spread.num_seeds} seeds"


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
