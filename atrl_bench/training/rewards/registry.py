"""The rewards for an answer, by the names that a recipe's `rewards` may have: the first reward of each run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from atrl_bench.training.rewards import Reward
from atrl_bench.training.rewards.accuracy import AccuracyReward

if TYPE_CHECKING:
    from atrl_bench.grading.grade import GradingPool


@dataclass(frozen=True)
class AnswerReward:
    """A reward that is 1 for a right answer, made with the grader of the run."""

    make: Callable[[GradingPool], Reward]
    lowest: float  # what a wrong answer gets
    description: str


def _typed(pool: GradingPool) -> Reward:
    from atrl_bench.training.rewards.video_r1 import TypedReward  # a recipe is read without what compares texts

    return TypedReward(pool)


ANSWER_REWARDS: Mapping[str, AnswerReward] = {
    "accuracy": AnswerReward(AccuracyReward, -1.0, "+1 correct, -1 otherwise, by the grader of the evaluation"),
    "typed": AnswerReward(_typed, 0.0, "0 to 1 by the sort of answer: choice, numerical, OCR, free-form or regression"),
}
