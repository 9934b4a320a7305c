"""The rewards for an answer, by the names that a recipe's `rewards` may have: the first reward of each run.

Beside the shipped ones: code of the user's own (own_code.py). A plus adds several: `accuracy + mine.py:brief`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from atrl_bench.training import own_code
from atrl_bench.training.own_code import names
from atrl_bench.training.rewards import GroupReward, Reward

if TYPE_CHECKING:
    from atrl_bench.grading.grade import GradingPool


@dataclass(frozen=True)
class AnswerReward:
    """A reward that is 1 for a right answer, made with the grader of the run."""

    make: Callable[[GradingPool], Reward]
    lowest: float  # what a wrong answer gets
    description: str


def _accuracy(pool: GradingPool) -> Reward:
    from atrl_bench.training.rewards.combined import AccuracyReward  # torch: a recipe is read without

    return AccuracyReward(pool)


def _typed(pool: GradingPool) -> Reward:
    from atrl_bench.training.rewards.video_r1 import TypedReward  # what compares texts, too

    return TypedReward(pool)


ANSWER_REWARDS: Mapping[str, AnswerReward] = {
    "accuracy": AnswerReward(_accuracy, -1.0, "+1 correct, -1 otherwise, by the grader of the evaluation"),
    "typed": AnswerReward(_typed, 0.0, "0 to 1 by the sort of answer: choice, numerical, OCR, free-form or regression"),
}


def answer_reward(rewards: str) -> AnswerReward:
    """The first of a recipe's rewards, which says how right an answer is."""
    return find_reward(names(rewards)[0])


def find_reward(name: str) -> AnswerReward:
    """A shipped reward, another package's or the user's own; nothing of the latter is run before it is made."""
    own_code.require("rewards", name, ANSWER_REWARDS)
    own = AnswerReward(lambda _: _own(name), 0.0, f"by {own_code.short(name)}, from 0 to 1")
    return ANSWER_REWARDS.get(name, own)


def _own(name: str) -> Reward:
    from atrl_bench.training.rewards.combined import OwnReward

    made = own_code.make("rewards", name, {})
    return made if isinstance(made, GroupReward) else OwnReward(name, made)


def own_rewards(rewards: str) -> list[str]:
    return [name for name in names(rewards) if name not in ANSWER_REWARDS]


def resolved(rewards: str) -> str:
    """The names with paths written out, so that they mean the same from any folder."""
    return " + ".join(map(own_code.resolved, names(rewards)))


def short_names(rewards: str) -> str:
    """The names without the folders of their files."""
    return " + ".join(map(own_code.short, names(rewards)))
