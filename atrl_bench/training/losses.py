"""The losses, one function a method: what each token costs, and what it counts.

`policy_loss` is what a token costs by a recipe's objective; `mean_of_means`, `token_mean` and `mean_of_sums` say what
it counts. The loss of an update is the sum of their products over all its tokens, wherever those are: micro-batches and
processes only ever add. Credit is in the advantage, A_i c_it, and no loss knows of it. `LossTerms` are the user's own.

Shapes: B responses, T response tokens. `mask_BT` is one at tokens and zero at padding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from atrl_bench.training import own_code
from atrl_bench.training.recipe import RolloutRecipe
from atrl_bench.training.rollout import Rollout, RolloutTools, SampledResponse, ScoredTokens

# What a token costs ---------------------------------------------------------------------------------------------------


def importance_ratio(recipe: RolloutRecipe, logprob_BT: Tensor, old_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """r = pi(y_t) / pi_old(y_t) of each token; of GSPO without token weights, that of each response as a column."""
    if recipe.objective == "gspo":
        return (gspo_token_ratio if recipe.weighs_tokens else gspo_ratio)(logprob_BT, old_BT, mask_BT)
    return (logprob_BT - old_BT).exp()


def gspo_ratio(logprob_BT: Tensor, old_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """GSPO (arXiv 2507.18071, section 4.1): s = exp(mean_t log r_t)."""
    return mean_of_tokens(logprob_BT - old_BT, mask_BT).exp()


def gspo_token_ratio(logprob_BT: Tensor, old_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """GSPO-token (arXiv 2507.18071, section 4.3): s_t = sg[s] pi(y_t) / sg[pi(y_t)].

    The value of the response's ratio, with a gradient for every token of its own: what token credit needs.
    """
    fixed_BT = logprob_BT.detach()
    return (logprob_BT - (fixed_BT - mean_of_tokens(fixed_BT - old_BT, mask_BT))).exp()


def policy_loss(recipe: RolloutRecipe, ratio_BT: Tensor, advantage_BT: Tensor) -> Tensor:
    """The loss of each token by the recipe's objective; an advantage of responses alone is a column."""
    if recipe.objective == "reinforce":
        return reinforce(ratio_BT, advantage_BT)
    if recipe.objective == "sapo":
        return sapo(ratio_BT, advantage_BT, *recipe.gate_temperatures)
    assert recipe.clip_low is not None
    assert recipe.clip_high is not None
    return clipped(ratio_BT, advantage_BT, recipe.clip_low, recipe.clip_high)


def clipped(ratio_BT: Tensor, advantage_BT: Tensor, low: float, high: float) -> Tensor:
    """GRPO, DAPO, GSPO: -min(r A, clip(r, 1 - low, 1 + high) A).

    GRPO (arXiv 2402.03300, section 4.1) has low = high; DAPO (arXiv 2503.14476, section 3.1) has high > low.
    """
    return -torch.min(ratio_BT * advantage_BT, ratio_BT.clamp(1 - low, 1 + high) * advantage_BT)


def sapo(ratio_BT: Tensor, advantage_BT: Tensor, temperature_positive: float, temperature_negative: float) -> Tensor:
    """SAPO (arXiv 2511.20347): -A sigmoid(tau (r - 1)) 4 / tau, with tau by the sign of the advantage."""
    tau_BT = torch.where(advantage_BT > 0, temperature_positive, temperature_negative)
    return -(torch.sigmoid(tau_BT * (ratio_BT - 1)) * 4 / tau_BT) * advantage_BT


def reinforce(ratio_BT: Tensor, advantage_BT: Tensor) -> Tensor:
    """REINFORCE (Williams, 1992): -A r, whose gradient is that of -A log pi(y_t) at the policy that sampled."""
    return -ratio_BT * advantage_BT


def k3(logprob_BT: Tensor, reference_BT: Tensor) -> Tensor:
    """The k3 estimate of KL(pi || pi_ref) (Schulman, 2020): q - log q - 1 with q = pi_ref(y_t) / pi(y_t)."""
    log_q_BT = reference_BT - logprob_BT
    return log_q_BT.exp() - log_q_BT - 1


# What a token counts --------------------------------------------------------------------------------------------------


def mean_of_means(mask_BT: Tensor, num_responses: int) -> Tensor:
    """GRPO, GSPO, SAPO: 1 / (N |y_i|), the mean over the N responses of an update of the mean over their tokens."""
    return mask_BT / mask_BT.sum(-1, keepdim=True).clamp(min=1.0) / num_responses


def token_mean(mask_BT: Tensor, num_tokens: Tensor | float) -> Tensor:
    """DAPO (arXiv 2503.14476, section 3.3): 1 / sum_i |y_i|, over a rollout's tokens divided by its updates.

    FT-RL (arXiv 2506.01939) is given the tokens that it selects, and how many those of the update are.
    """
    return mask_BT / num_tokens


def mean_of_sums(mask_BT: Tensor, num_responses: int) -> Tensor:
    """REINFORCE: 1 / N, the mean over responses of the sum over their tokens."""
    return mask_BT / num_responses


def mean_of_tokens(value_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """The mean over the tokens of each response, as a column."""
    return ((value_BT * mask_BT).sum(-1) / mask_BT.sum(-1).clamp(min=1.0)).unsqueeze(-1)


def are_clipped(ratio_BT: Tensor, advantage_BT: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """Whose gradient the clip takes away: below, and above."""
    return (ratio_BT < 1 - low) & (advantage_BT < 0), (ratio_BT > 1 + high) & (advantage_BT > 0)


def entropy_threshold(entropy_N: Tensor, fraction: float) -> Tensor:
    """FT-RL (arXiv 2506.01939, section 5.1): the entropy that this fraction of an update's N tokens reaches."""
    return torch.quantile(entropy_N.float(), 1 - fraction)


# What another sampler makes of it -------------------------------------------------------------------------------------


def sampler_correction(old_BT: Tensor, sampled_BT: Tensor, mask_BT: Tensor, kind: str, most: float = 3.0) -> Tensor:
    """pi_old(y) / pi_sampler(y), of tokens or of responses, (B, 1); beyond `most` truncated to it or masked by zero.

    `kind` is token_truncate, token_mask, sequence_truncate or sequence_mask.
    """
    log_ratio_BT = (old_BT - sampled_BT) * mask_BT
    level, _, beyond = kind.partition("_")
    ratio = (log_ratio_BT.sum(-1, keepdim=True) if level == "sequence" else log_ratio_BT).exp()
    return ratio.clamp(max=most) if beyond == "truncate" else ratio.masked_fill(ratio > most, 0.0)


# Terms of the user's own ----------------------------------------------------------------------------------------------


class LossTerms:
    """Those that a recipe adds to its objective's, by name.

    One is a function of a micro-batch and what the policy says of it, to loss_BT, which is added before tokens are
    reduced; padding counts nothing. An object may also `prepare(rollout, responses, tools)` once, before the updates on
    a rollout: what micro-batches then have in `extra`, a row a response. Further passes are asked for there.
    """

    def __init__(self, losses: Mapping[str, Mapping[str, Any]]) -> None:
        self._terms = {name: own_code.make("losses", name, settings) for name, settings in losses.items()}
        self._short = own_code.numbered(name.rpartition(":")[2] for name in losses)

    def prepare(self, rollout: Rollout, responses: Sequence[SampledResponse], tools: RolloutTools) -> dict[str, Tensor]:
        extra: dict[str, Tensor] = {}
        for name, term in self._terms.items():
            if not hasattr(term, "prepare"):
                continue
            with own_code.telling("losses", name):
                for key, value in term.prepare(rollout, responses, tools).items():
                    if len(value) != len(rollout) or key in extra:
                        raise ValueError(f"What it keeps as {key!r} has no row for each response, or is kept already.")
                    extra[key] = value
        return extra

    def of(self, batch: Rollout, scored: ScoredTokens) -> Iterator[tuple[str, Tensor]]:
        """The short name of each, and its loss_BT."""
        for short, (name, term) in zip(self._short, self._terms.items(), strict=True):
            with own_code.telling("losses", name):
                loss_BT = term(batch, scored)
                if not isinstance(loss_BT, Tensor):
                    raise TypeError(f"It returned a {type(loss_BT).__name__}, which is no tensor.")
                if loss_BT.shape != batch.mask_BT.shape:
                    raise ValueError(f"It returned {tuple(loss_BT.shape)}, not one for each token.")
            yield short, loss_BT
