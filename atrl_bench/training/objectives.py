"""What the objectives need beyond TRL's loss: values that it reads, and one term that is added to it.

TRL's loss takes its inputs after the forward pass, so a reference point or a normaliser set there changes the
objective without a copy of it.

Shapes: B responses, T response tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor


def gspo_token_reference(logprobs_BT: Tensor, old_logprobs_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Old log-probabilities against which the token ratio is GSPO-token's ratio.

    GSPO-token (arXiv 2507.18071, section 4.3) has s_t = sg[s] pi(y_t) / sg[pi(y_t)] with the response's ratio
    s = exp(mean_t log r_t): the value of the sequence ratio, and a gradient for every token of its own. With
    old = sg[log pi] - sg[log s] the ordinary token ratio exp(log pi - old) is exactly that.
    """
    logprobs_BT = logprobs_BT.detach()
    log_ratio_BT = (logprobs_BT - old_logprobs_BT) * mask_BT
    log_sequence_ratio_B1 = log_ratio_BT.sum(-1, keepdim=True) / mask_BT.sum(-1, keepdim=True).clamp(min=1.0)
    return logprobs_BT - log_sequence_ratio_B1


def items_for_selected_mean(num_selected: Tensor, steps_per_generation: int) -> Tensor:
    """The token count that makes TRL's `dapo` loss a mean over the selected tokens of this forward pass.

    TRL divides by num_items / num_processes * accumulation_steps / steps_per_generation, where num_items counts the
    tokens of a whole rollout. FT-RL's own code divides by the selected tokens of the micro-batch, here those of all
    processes together.
    """
    return num_selected * steps_per_generation


def items_for_token_sums(num_responses: int, steps_per_generation: int) -> Tensor:
    """The token count that makes TRL's `dapo` loss a mean over the responses of their token sums.

    Where every ratio is one, that is REINFORCE: 1/B sum_i sum_t A_it grad log pi(y_it), without 1/T. `num_responses`
    are those of this forward pass on all processes.
    """
    return torch.tensor(float(num_responses * steps_per_generation))


def entropy_penalty(logprobs_BT: Tensor, mask_BT: Tensor, num_tokens: Tensor, weight: float) -> Tensor:
    """The weighted mean of -log pi over the sampled tokens, of which an update has `num_tokens` (VPPO)."""
    return weight * -(logprobs_BT * mask_BT).sum() / num_tokens
