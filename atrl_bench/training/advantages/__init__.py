"""How good each response, or each of its tokens, was: what a recipe may choose as its advantages.

Shapes: P problems, G responses to each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from atrl_bench.training import own_code

if TYPE_CHECKING:
    from atrl_bench.training.rollout import Rollout, RolloutTools, SampledResponse


def group_relative(reward_PG: Tensor) -> Tensor:
    """GRPO (arXiv 2402.03300, section 4.1): (R - mean) / (std + 1e-4) over the responses to the same problem.

    The deviation is that of a sample, divided by G - 1. What no reward could grade, NaN, has none and counts in none;
    equal rewards have none either, whose mean may round to another number.
    """
    centred_PG = reward_PG - reward_PG.nanmean(1, keepdim=True)
    count_P1 = (~reward_PG.isnan()).sum(1, keepdim=True)
    variance_P1 = centred_PG.square().nanmean(1, keepdim=True) * count_P1 / (count_P1 - 1)
    return torch.nan_to_num(centred_PG / (variance_P1.sqrt() + 1e-4), nan=0.0) * are_mixed(reward_PG)


def are_mixed(reward_PG: Tensor) -> Tensor:
    """Whether a group has two rewards that differ, (P, 1)."""
    least_P1, most_P1 = reward_PG.nan_to_num(math.inf).amin(1, True), reward_PG.nan_to_num(-math.inf).amax(1, True)
    return least_P1 < most_P1


class GroupRelative:
    """The advantages of responses relative to their group's.

    Another estimator begins with these and answers otherwise: (B,) of responses or (B, T) of tokens, before any token
    weight.
    """

    every_group = False  # whether a group of equal rewards has advantages too
    kl_in_reward = False  # whether the rewards have paid for the KL divergence, so that the loss does not

    def __call__(self, rollout: Rollout, responses: Sequence[SampledResponse], tools: RolloutTools) -> Tensor:
        return rollout.advantages

    def save(self, folder: Path) -> None:
        """Write into a resume checkpoint what the estimator has learned: nothing, unless it learns."""

    def load(self, folder: Path) -> None:
        """Read it."""


class OwnAdvantages(GroupRelative):
    """Those of a function of the user's own, which finds the group's in `rollout.advantages`."""

    every_group = True  # who knows

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name, self._function = name, function

    def __call__(self, rollout: Rollout, responses: Sequence[SampledResponse], tools: RolloutTools) -> Tensor:
        with own_code.telling("advantages", self._name):
            advantages = torch.as_tensor(self._function(rollout, responses, tools)).to(rollout.advantages)
            if advantages.shape not in (shape := rollout.mask_BT.shape, shape[:1]):
                raise ValueError(f"It returned {tuple(advantages.shape)} where tokens are {tuple(shape)}.")
        return advantages


def own_advantages(name: str, settings: Mapping[str, Any]) -> GroupRelative:
    made = own_code.make("advantages", name, settings)
    return made if isinstance(made, GroupRelative) else OwnAdvantages(name, made)
