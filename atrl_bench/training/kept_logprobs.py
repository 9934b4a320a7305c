"""Whether the log-probabilities that the local sampler left stand for a pass over what it has sampled.

It is the same model in the same process, so they differ from such a pass by rounding. That is measured once in a
process, on its first rollout. The sampler's are used in that rollout too: a resumed run, which measures once more, goes
on as it would have gone on without a break.

Shapes: B responses, T response tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from trl.trainer.utils import pad

from atrl_bench.training.sampler_check import differences

# Rounding in float32 stays below 1e-5, as the tests hold.
LARGEST_DIFFERENCE = 1e-4


def as_tensor(sampled_B: Sequence[Sequence[float]], num_tokens: int, device: torch.device) -> Tensor:
    """Return logprobs_BT, zero at padding, as a pass over the responses leaves them."""
    padded = pad([torch.tensor(logprobs) for logprobs in sampled_B], padding_value=0.0, padding_side="right")
    return torch.nn.functional.pad(padded, (0, num_tokens - padded.shape[1])).to(device)


def agree(sampled_BT: Tensor, scored_BT: Tensor, mask_BT: Tensor) -> bool:
    """Return whether the two differ by rounding; a NaN does not."""
    return differences(sampled_BT, scored_BT, mask_BT).largest <= LARGEST_DIFFERENCE
