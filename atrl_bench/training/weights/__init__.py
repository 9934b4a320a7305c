"""Factors of each token's advantage; those that a recipe chooses multiply.

A credit (`credit.py`) is made of attention rows, which a pass that happens anyway records. Any other weighting is asked
once for each rollout, when its advantages are known, and may ask for further passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from atrl_bench.training.rollout import Rollout, RolloutTools, SampledResponse


class TokenWeighting(Protocol):
    """From a scored rollout to a weight for each response token."""

    def __call__(self, rollout: Rollout, responses: Sequence[SampledResponse], tools: RolloutTools) -> Tensor:
        """weights_BT, by which the advantages are multiplied."""
