"""Factors of each token's advantage; those that a recipe chooses multiply.

A credit (`credit.py`) is made of attention rows, which a pass that happens anyway records. Any other weighting is asked
once for each rollout, when its advantages are known, and may ask the trainer for further passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

from atrl_bench.training.recipe import CreditChoice

if TYPE_CHECKING:
    from torch import Tensor

    from atrl_bench.training.rollout_state import RolloutTrainer, SampledResponse


class TokenWeighting(Protocol):
    """From the scored batch of a rollout to a weight for each response token."""

    def __call__(
        self, batch: Mapping[str, Any], responses: Sequence[SampledResponse], trainer: RolloutTrainer
    ) -> Tensor:
        """weights_BT, by which the advantages are multiplied."""


def describe_credit(choice: CreditChoice, **source: str) -> dict[str, Any]:
    """The rule and, where there is one, all its hyperparameters."""
    if choice.rule == "uniform":  # the credit rules import torch, which a plain recipe need not wait for
        return {"rule": choice.rule}
    from atrl_bench.training.weights.credit import credit_config

    return {"rule": choice.rule, **source, **asdict(credit_config(choice))}
