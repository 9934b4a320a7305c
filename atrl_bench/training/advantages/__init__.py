"""How good each response, or each of its tokens, was: what a recipe may choose as its advantages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from atrl_bench.training.rollout_state import RolloutTrainer, SampledResponse


class GroupRelative:
    """TRL's own advantages: (R - mean) / (std + 1e-4) over the responses to the same problem.

    Another estimator begins with this one and answers otherwise: (B,) of responses or (B, T) of tokens, before any
    token weight.
    """

    every_group = False  # whether a group of equal rewards has advantages too
    kl_in_reward = False  # whether the rewards have paid for the KL divergence, so that the loss does not

    def __call__(
        self, batch: Mapping[str, Any], responses: Sequence[SampledResponse], trainer: RolloutTrainer
    ) -> Tensor:
        advantages_B: Tensor = batch["advantages"]
        return advantages_B

    def save(self, folder: Path) -> None:
        """Write into a resume checkpoint what the estimator has learned: nothing, unless it learns."""

    def load(self, folder: Path) -> None:
        """Read it."""
