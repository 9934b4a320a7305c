"""What a run folder answers, in words and from its own numbers: the sentences at the top of its front page.

They are made of the comparisons of credit in its tables and of the scores behind its figure on anchors.

The accuracy while training has intervals over seeds alone, corrected for the number of comparisons.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from atrl_bench.analysis.anchors import CREDIT, LAST, AnchorScore
from atrl_bench.report.differences import Answer, anchor_contrasts, answer_of, contrasts, counted, in_words
from atrl_bench.report.page import lines_of
from atrl_bench.report.table_model import SIGNIFICANCE, Comparison, Table
from atrl_bench.results.statistics import benjamini_hochberg

HELPS = "Does AT-RL's credit help the methods that it is added to?"
PLACEMENT = "Does credit on the tokens that look at the image beat credit anywhere else?"
READINGS = "Which reading of the paper finds the tokens that are read from the image?"


@dataclass(frozen=True)
class Finding:
    """A question, what this folder says to it, the numbers behind that, and where to look; `command` where it is open.

    `answer` is the badge and the sentence, and `seen` what their figure shows in words, where the question is one about
    differences; `counted` says why the scores of the table do not subtract to these.

    An answer is the sentence that a hurried reader takes away, so it is as strong as the weakest of its numbers.
    """

    question: str
    text: str
    because: tuple[str, ...] = ()
    page: str = ""
    command: str = ""
    answer: Answer | None = None
    seen: str = ""
    counted: str = ""
    figure: str = ""  # the name of its file


def findings(tables: Mapping[str, Table], anchors: Sequence[AnchorScore], profile: str) -> list[Finding]:
    compared = [
        _compared(HELPS, "main_7b", tables.get("main_7b"), profile),
        _compared(PLACEMENT, "credit_placement", tables.get("credit_placement"), profile),
    ]
    readings = _readings(anchors)
    return compared if readings is None else [*compared, readings]


# Does it help? ----------------------------------------------------------------------------------------------------


def _compared(question: str, name: str, table: Table | None, profile: str) -> Finding:
    of_anchors = anchor_contrasts(table) if table else []
    answer = answer_of(of_anchors)
    if answer is None:
        return Finding(question, "Not answered yet.", command=f"atrl-bench run-table {name} --profile {profile}")
    learning = _learning(of_anchors)
    because = lines_of(
        "contrasts.txt.j2",
        contrasts=of_anchors,
        num_learning=len(learning),
        learned=[pair for pair, q_value in learning if q_value < SIGNIFICANCE],
    )
    assert table is not None
    end = "" if len(of_anchors) == len(contrasts(table)) else "_anchors"
    words = {"seen": in_words(of_anchors), "counted": counted(table), "figure": f"{name}{end}.svg"}
    return Finding(question, answer.sentence, tuple(because), f"{name}.html#credit", answer=answer, **words)


def _learning(contrasts: Sequence[Comparison]) -> list[tuple[tuple[Comparison, float], float]]:
    """The differences in the accuracy while training, each with a p-value corrected for their number."""
    over_seeds = [(contrast, contrast.training.estimate()) for contrast in contrasts if contrast.training is not None]
    tested = [(contrast, estimate) for contrast, estimate in over_seeds if estimate is not None]
    q_values = benjamini_hochberg([estimate.p_value() for _, estimate in tested])
    return [((contrast, estimate.mean), q) for (contrast, estimate), q in zip(tested, q_values, strict=True)]


# Which reading? ---------------------------------------------------------------------------------------------------


def _readings(scores: Sequence[AnchorScore]) -> Finding | None:
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
    """How one stands to another, whose errors are taken as independent: wider than a paired interval."""
    half_width = 1.96 * math.hypot(score.standard_error, other.standard_error)
    difference = score.mean - other.mean
    clear = "clear" if abs(difference) > half_width else "within noise"
    return f"{'+' if difference >= 0 else '−'}{abs(difference):.2f}, {clear}"
