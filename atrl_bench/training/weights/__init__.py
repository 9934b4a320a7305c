"""Factors of each token's advantage; those that a recipe chooses multiply.

A credit (`credit.py`) is made of attention rows, which a pass that happens anyway records. Any other weighting is asked
once for each rollout, when its advantages are known, and may ask the trainer for further passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from atrl_bench.training.rollout_state import RolloutTrainer, SampledResponse


class TokenWeighting(Protocol):
    """From the scored batch of a rollout to a weight for each response token."""

    def __call__(
        self, batch: Mapping[str, Any], responses: Sequence[SampledResponse], trainer: RolloutTrainer
    ) -> Tensor:
        """weights_BT, by which the advantages are multiplied."""
