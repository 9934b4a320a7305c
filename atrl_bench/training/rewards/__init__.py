"""What a response is worth: the rewards that a recipe may combine.

The first reward of every recipe is the accuracy. A reward of one response is a function in TRL's form; one that depends
on the other responses to its problem, or on further ones, is a `GroupReward`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from atrl_bench.training.rollout import Group, RolloutTools

Reward = Callable[..., list[float]]


class GroupReward:
    """A reward that is known when all groups are: until then it is zero."""

    __name__: str  # its metrics are named after this

    def __call__(self, /, completions: Sequence[Any], **_: Any) -> list[float]:
        return [0.0] * len(completions)

    def of_groups(self, groups: Sequence[Group], tools: RolloutTools) -> list[Tensor]:
        """rewards_G of each group."""
        raise NotImplementedError
