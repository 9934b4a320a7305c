"""The rewards for an answer, by the names that a recipe's `rewards` may have: the first reward of each run.

Beside the shipped ones: `package.module:function`, `file.py:function`, or a name that an installed package gives in its
entry points `atrl_bench.rewards`. Several are added with a plus: `accuracy + mine.py:brief`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atrl_bench.digests import file_digest
from atrl_bench.errors import AtrlBenchError, InvalidFileError, UnknownNameError, reason_of
from atrl_bench.plugins import code_of, load_plugin, plugins
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


def answer_reward(rewards: str) -> AnswerReward:
    """The first of a recipe's rewards, which says how right an answer is."""
    return find_reward(names(rewards)[0])


def names(rewards: str) -> list[str]:
    return [name.strip() for name in rewards.split(" + ")]


def find_reward(name: str) -> AnswerReward:
    """A shipped reward, another package's or the user's own; nothing of the latter is run before it is made."""
    if name in ANSWER_REWARDS:
        return ANSWER_REWARDS[name]
    if name in plugins("rewards"):
        return AnswerReward(lambda _: Checked(name, load_plugin("rewards", name)), 0.0, f"by {name}")
    if ":" not in name:
        raise UnknownNameError(
            "reward", name, [*ANSWER_REWARDS, *plugins("rewards")], next_step="or write file.py:function"
        )
    _source(name)  # says what is not there
    return AnswerReward(lambda _: Checked(name, _loaded(name)), 0.0, f"by {short_names(name)}, from 0 to 1")


class Checked:
    """A user's own reward, whose mistakes are told with its name."""

    def __init__(self, name: str, function: Reward) -> None:
        self.__name__ = name.rpartition(":")[2]
        self._name, self._function = name, function

    def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float]:
        try:
            rewards = list(self._function(completions=completions, **columns))
        except Exception as error:
            raise self._mistake(reason_of(error)) from error
        if len(rewards) != len(completions):
            raise self._mistake(f"It returned {len(rewards)} rewards for {len(completions)} responses.")
        return rewards

    def _mistake(self, why: str) -> AtrlBenchError:
        return AtrlBenchError(
            f"Reward {self._name} failed.",
            why=why,
            next_step="it is called as TRL calls one: reward(completions, **columns) -> list of numbers; mend it, and "
            "give the same command again",
        )


def code_of_rewards(rewards: str) -> str | None:
    """The hash of the code of those rewards that are not shipped; None where all are."""
    own = [name for name in names(rewards) if name not in ANSWER_REWARDS]
    codes = [code_of("rewards", name) or file_digest([_source(name)]) for name in own]
    return "+".join(codes) or None


def resolved(rewards: str) -> str:
    """The names with paths written out, so that they mean the same from any folder."""
    return _with_paths(rewards, lambda path: str(path.expanduser().resolve()))


def short_names(rewards: str) -> str:
    """The names without the folders of their files."""
    return _with_paths(rewards, lambda path: path.name)


def _with_paths(rewards: str, written: Callable[[Path], str]) -> str:
    parts = [name.rpartition(":") for name in names(rewards)]
    return " + ".join(
        (written(Path(path)) if path.endswith(".py") else path) + mark + function for path, mark, function in parts
    )


def _source(name: str) -> Path:
    """The file of a reward that is named by its module or its path."""
    module = name.rpartition(":")[0]
    if module.endswith(".py"):
        path = Path(module).expanduser()
    else:
        try:
            spec = importlib.util.find_spec(module)
        except ImportError:
            spec = None
        path = Path(spec.origin) if spec is not None and spec.origin else Path(module)
    if not path.is_file():
        raise InvalidFileError(
            f"There is no reward {name}.",
            why=f"{path} is no file, and no module of this environment.",
            next_step="write rewards: file.py:function, or package.module:function",
        )
    return path


def _loaded(name: str) -> Reward:
    module_name, _, function = name.rpartition(":")
    try:
        if module_name.endswith(".py"):
            path = _source(name)
            spec = importlib.util.spec_from_file_location(f"own_reward_{path.stem}", path)
            assert spec is not None
            assert spec.loader is not None
            module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(module_name)
        reward: Reward = getattr(module, function)
    except Exception as error:
        raise InvalidFileError(
            f"Reward {name} cannot be loaded.", why=reason_of(error), next_step="mend its file"
        ) from error
    return reward
