"""How good each response, or each of its tokens, was: what a recipe may choose as its advantages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from atrl_bench.training.advantages.gae import Critic
    from atrl_bench.training.rollout_state import SampledResponse
    from atrl_bench.training.trainer import CreditTrainer


class AdvantageEstimator:
    """From the scored batch of a rollout to its advantages, before any token weight."""

    critic: Critic | None = None  # what it learns with, which resume checkpoints hold
    every_group = False  # whether a group of equal rewards has advantages too
    kl_in_reward = False  # whether the rewards have paid for the KL divergence, so that the loss does not

    def __call__(
        self, batch: Mapping[str, Any], responses: Sequence[SampledResponse], trainer: CreditTrainer
    ) -> Tensor:
        """Return the advantages, (B,) of responses or (B, T) of tokens."""
        raise NotImplementedError


class GroupRelative(AdvantageEstimator):
    """TRL's own advantages: (R - mean) / (std + 1e-4) over the responses to the same problem."""

    def __call__(
        self, batch: Mapping[str, Any], responses: Sequence[SampledResponse], trainer: CreditTrainer
    ) -> Tensor:
        """Return advantages_B."""
        advantages_B: Tensor = batch["advantages"]
        return advantages_B
