"""WeMath testmini.

Qiao et al., "We-Math: Does Your Large Multimodal Model Achieve Human-like Mathematical Reasoning?", ACL 2025. 1,740
rows: 525 composite problems with all their sub-steps; every row has lettered options.

An example, a first step: "As shown in the diagram, there is a circle made of wire. What is the circumference of this
circle?", options "A. 15π;B. 10π;C. 5π; D. No correct answer". Gold: `B`.

"Overall accuracy" (the paper) is the mean over the 1,740 rows, the number computed here; the benchmark's own Score and
its four dimensions stand beside it (`STATISTICS`). `ID` names the composite, not the row: it is the cluster of the
standard error, and `key` makes it unique. The options are one string with uneven separators.

A composite whose last question (`..._multi`) is wrong shows insufficient knowledge if a step is wrong, and inadequate
generalisation if all steps are right. If it is right, it is complete mastery with all steps right (loosely: with at
least one), and rote memorisation otherwise. With n composites

    Score = (n - 0.5 IG - RM - IK) / n,    RM rate = RM / (CM + RM),    the other rates: their count / n
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from atrl_bench.evaluation.hooks import Gold, Row, choice_gold, column, hooks, picture, prepare
from atrl_bench.models.templates import split_options, with_choices
from atrl_bench.results.records import Problem
from atrl_bench.results.statistics import Maker, Statistic

COLUMNS = ("ID", "key", "question number", "question", "option", "answer", "image_path")
KEPT = ("key", "knowledge concept")
BREAKDOWN = "key"
process_docs = prepare


def problem_id(row: Row) -> str:
    """Composite, step and question number: `ID` alone is shared by a composite and its steps."""
    return f"{row['ID']}/{row['key']}/{row['question number']}"


group = column("ID")  # the composite, whose steps share their figure
images = picture("image_path")  # the one image; the column is called `image_path`, and holds it


def question(row: Row) -> str:
    return with_choices(row["question"], split_options(row["option"]))


def gold(row: Row) -> Gold:
    return choice_gold(row["answer"], split_options(row["option"]))


doc_to_text, doc_to_visual, doc_to_target, process_results = hooks(problem_id, group, question, gold, images)


# The four dimensions ----------------------------------------------------------------------------------------------


class Dimensions(NamedTuple):
    """How many composites fall into each dimension, by weight."""

    insufficient_knowledge: float
    inadequate_generalisation: float
    complete_mastery: float
    rote_memorisation: float

    @property
    def score(self) -> float:
        """The benchmark's Score; NaN without a composite."""
        return self.rate(0.5 * self.inadequate_generalisation + self.complete_mastery)

    @property
    def rote_rate(self) -> float:
        """The share of rote memorisation in what is right: nothing where nothing is."""
        right = self.complete_mastery + self.rote_memorisation
        return self.rote_memorisation / right if right > 0 else 0.0

    def rate(self, count: float) -> float:
        """A count as a share of all composites."""
        return count / sum(self) if sum(self) > 0 else float("nan")


def of_composites(number: Callable[[Dimensions], float], *, strict: bool = True) -> Maker:
    """The maker of a number over the four dimensions.

    The scores are those of one repeat, 1 or 0: over several repeats each has its own dimensions, and their numbers are
    averaged. A composite of which a part is missing or has no verdict is left out.
    """

    def make(problems: Sequence[Problem]) -> Statistic:
        names = {name: code for code, name in enumerate(dict.fromkeys(problem.group for problem in problems))}
        codes_P = np.array([names[problem.group] for problem in problems], dtype=np.intp)
        keys = [str(problem.meta["key"]) for problem in problems]
        last_P = np.array([key.endswith("_multi") for key in keys], dtype=bool)
        num_steps_C = np.bincount(codes_P, ~last_P, len(names))
        promised_C = np.zeros(len(names))  # "3steps_multi" is the last of a composite with three steps
        promised_C[codes_P] = [int(key.split("steps")[0]) for key in keys]
        whole_C = (num_steps_C == promised_C) & (np.bincount(codes_P, last_P, len(names)) == 1)

        def statistic(scores_P: np.ndarray, weights_P: np.ndarray) -> float:
            weight_C = np.full(len(names), np.inf)
            np.minimum.at(weight_C, codes_P, weights_P)
            weight_C = np.where(whole_C, weight_C, 0)
            right_P = scores_P >= 1
            right_C = np.bincount(codes_P, right_P & last_P, len(names)) > 0
            steps_C = np.bincount(codes_P, right_P & ~last_P, len(names))
            all_C = steps_C == num_steps_C
            mastered_C = right_C & (all_C if strict else steps_C > 0)
            parts = (~right_C & ~all_C, ~right_C & all_C, mastered_C, right_C & ~mastered_C)
            return number(Dimensions(*(float(weight_C @ part) for part in parts)))

        return statistic

    return make


STATISTICS = {
    "score_strict": of_composites(lambda counts: counts.score),
    "score_loose": of_composites(lambda counts: counts.score, strict=False),
    "insufficient_knowledge": of_composites(lambda counts: counts.rate(counts.insufficient_knowledge)),
    "inadequate_generalisation": of_composites(lambda counts: counts.rate(counts.inadequate_generalisation)),
    "complete_mastery_strict": of_composites(lambda counts: counts.rate(counts.complete_mastery)),
    "complete_mastery_loose": of_composites(lambda counts: counts.rate(counts.complete_mastery), strict=False),
    "rote_memorisation_strict": of_composites(lambda counts: counts.rote_rate),
    "rote_memorisation_loose": of_composites(lambda counts: counts.rote_rate, strict=False),
}
