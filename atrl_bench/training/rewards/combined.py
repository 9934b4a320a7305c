"""The rewards of a recipe: the accuracy, and all together, what each says of some responses and their weighted sum.

Shapes: P problems, G responses to each, R of them together; F rewards.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from atrl_bench.errors import AtrlBenchError
from atrl_bench.results.records import Gold
from atrl_bench.training import own_code
from atrl_bench.training.advantages import are_mixed
from atrl_bench.training.own_code import numbered
from atrl_bench.training.rewards import GroupReward, Reward

if TYPE_CHECKING:
    from atrl_bench.grading.grade import GradingPool
    from atrl_bench.training.rollout import Group, RolloutTools


class AccuracyReward:
    """+1 for a response graded correct and -1 for any other (section 5 of the paper).

    An answer that is unparseable or took too long to grade is not correct; how many there were is logged, since a rule
    that cannot read a correct answer would train against it.
    """

    __name__ = "accuracy"  # TRL names the reward's column and metrics after this

    def __init__(self, pool: GradingPool) -> None:
        self._pool = pool

    def __call__(
        self,
        /,
        completions: Sequence[list[dict[str, str]]],
        graded_as: Sequence[Gold],
        log_metric: Callable[[str, float], None] | None = None,
        **_: Any,
    ) -> list[float]:
        responses = [completion[0]["content"] for completion in completions]
        verdicts = self._pool.grade_many(list(zip(responses, graded_as, strict=True)))
        if log_metric is not None:
            states = Counter(verdict.state for verdict in verdicts)
            for state in ("unparseable", "timed out"):
                log_metric(f"grading/{state}", states[state] / len(verdicts))
        return [1.0 if verdict.state == "correct" else -1.0 for verdict in verdicts]


class OwnReward:
    """A user's own reward, whose mistakes are told with its name."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.__name__ = name.rpartition(":")[2]
        self._name, self._function = name, function

    def __call__(self, /, completions: Sequence[Any], **columns: Any) -> list[float]:
        with own_code.telling("rewards", self._name):
            found = self._function(completions=completions, **columns)
            found = asyncio.run(found) if inspect.iscoroutine(found) else found
            rewards = [math.nan if reward is None else float(reward) for reward in found]
            if len(rewards) != len(completions):
                raise ValueError(f"It returned {len(rewards)} rewards for {len(completions)} responses.")
        return rewards


class Rewards:
    """Rewards in TRL's form, the accuracy first, and what each of them counts."""

    def __init__(self, functions: Sequence[Reward], weights: Sequence[float] | None = None) -> None:
        """Each counts one where no `weights` are given."""
        self.functions = list(functions)
        self.names = numbered(getattr(function, "__name__", type(function).__name__) for function in self.functions)
        self._silent: set[str] = set()  # those that the user has been told of
        self.weights = torch.tensor([1.0] * len(self.functions) if weights is None else list(weights))

    def of_responses(
        self,
        examples_P: Sequence[dict[str, Any]],
        messages_P: Sequence[Any],
        token_ids: Sequence[list[int]],
        completions: Sequence[Any],
        log_metric: Callable[..., None],
    ) -> Tensor:
        """rewards_RF; NaN where one has nothing to say. Each is given the columns of the examples as keywords.

        What it logs is a mean over all these responses, or over `count=` of them.
        """
        if not examples_P:
            return torch.zeros(0, len(self.functions))
        size = len(completions) // len(examples_P)
        repeated = [example for example in examples_P for _ in range(size)]
        names = dict.fromkeys(name for example in examples_P for name in example if name != "prompt")
        columns = {name: [example.get(name) for example in repeated] for name in names}
        columns["prompts"] = [messages for messages in messages_P for _ in range(size)]
        given: dict[str, Any] = {"completions": completions, "completion_ids": token_ids, "log_metric": log_metric}
        rewards = [function(**columns | given) for function in self.functions]
        return torch.tensor(rewards, dtype=torch.float32).T.contiguous()

    def add_those_of_groups(self, groups: Sequence[Group], tools: RolloutTools) -> None:
        """Write in what a `GroupReward` says, which is known when all of these groups are."""
        for column, function in enumerate(self.functions):
            if isinstance(function, GroupReward):
                for group, rewards_G in zip(groups, function.of_groups(groups, tools), strict=True):
                    group.rewards_GF[:, column] = rewards_G
        if groups:
            self._check(torch.cat([group.rewards_GF for group in groups]))

    def _check(self, rewards_RF: Tensor) -> None:
        """Raise if a reward is infinite; warn once of each that says nothing of any of these responses."""
        for name, reward_R in zip(self.names, rewards_RF.unbind(1), strict=True):
            if reward_R.isinf().any():
                raise AtrlBenchError(
                    f"Reward {name} is infinite for a response.",
                    why="Nothing can be compared with that: the responses to its problem would teach nothing.",
                    next_step="return a finite number, or None for no say; then give the same command again",
                )
            if reward_R.isnan().all() and name not in self._silent:
                self._silent.add(name)
                why = "it returned None or NaN for every response of a rollout"
                warnings.warn(f"Reward {name} teaches nothing there: {why}.", stacklevel=2)

    def total(self, group: Group) -> Tensor:
        """reward_G: the weighted sum of the rewards of each response; NaN where none has anything to say."""
        total_G = (group.rewards_GF * self.weights).nansum(1)
        return total_G.masked_fill(group.rewards_GF.isnan().all(1), math.nan)

    def metrics(self, groups: Sequence[Group], reward_PG: Tensor) -> dict[str, float]:
        """Of each reward, of their weighted sum, the share of groups without an advantage, of responses without any."""
        found = {}
        for name, reward_R in zip(self.names, torch.cat([group.rewards_GF for group in groups]).unbind(1), strict=True):
            found[f"rewards/{name}/mean"], found[f"rewards/{name}/std"] = _moments(reward_R)
        found["reward"], found["reward_std"] = _moments(reward_PG)
        found["frac_reward_zero_std"] = (~are_mixed(reward_PG)).float().mean().item()
        if ungraded := reward_PG.isnan().float().mean().item():
            found["frac_ungraded"] = ungraded
        return found


def _moments(reward: Tensor) -> tuple[float, float]:
    """Mean and deviation of what is known, NaN where too little is."""
    known = reward[~reward.isnan()]
    return known.mean().item(), known.std().item() if len(known) > 1 else math.nan
