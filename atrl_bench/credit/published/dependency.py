"""Rules by what the image does to a token: its log-probability against that with part of the image black.

All three share the second forward pass of VPPO, in which each patch is black with the chance `black_probability`. Two
of them remove the image instead, to which `black_probability` 1 comes closest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from atrl_bench.credit.config import CreditConfig
from atrl_bench.credit.rule import Credit, credit_of_rows, highest, reads

if TYPE_CHECKING:
    from atrl_bench.credit.attention_rows import AttentionRows


@reads("logprob", "blackened_logprob")
def visual_dependency(attention: AttentionRows, config: CreditConfig, seed: int, *, fraction: float = 0.4) -> Credit:
    """Returns credit for the 40 % of tokens that depend most on the image, the same for each (VPPO's token filter).

    Huang et al. 2025, arXiv 2510.09285: S_t = exp(d) - d - 1, d the log-probability with a black half minus that
    without. Their scale of whole responses and their entropy penalty are no part of it; the recipe `vppo` has both.
    """
    weight_T = highest(_dependency(attention), fraction).astype(float)
    return credit_of_rows(weight_T, attention, config)


@reads("logprob", "blackened_logprob")
def perception_grounded(
    attention: AttentionRows, config: CreditConfig, seed: int, *, threshold: float = 0.4, boost: float = 2.0
) -> Credit:
    """Returns I_t / 0.4 below 0.4 and 1 + 2 (I_t - 0.4) / 0.6 above, I_t from 0 to 1 in the order of dependency.

    Ye et al. 2026, arXiv 2604.01840 (PGPO): I is log(1 + S), scaled to [0, 1] within the response, and the weights
    keep their sum. They hide the image from the attention for S. The two numbers are those of a re-implementation.
    """
    information_T = np.log1p(_dependency(attention))
    spread = information_T.max() - information_T.min()
    if not spread:  # nothing tells the tokens apart
        return credit_of_rows(np.ones(len(information_T)), attention, config)
    scaled_T = (information_T - information_T.min()) / spread
    above_T = 1 + boost * (scaled_T - threshold) / (1 - threshold)
    weight_T = np.where(scaled_T < threshold, scaled_T / threshold, above_T)
    return credit_of_rows(weight_T, attention, config)


@reads("entropy", "logprob", "blackened_logprob")
def token_reweighting(
    attention: AttentionRows,
    config: CreditConfig,
    seed: int,
    *,
    fraction: float = 0.3,
    of_reasoning: float = 1.0,
    of_perception: float = 0.5,
) -> Credit:
    """Returns 1 for the 30 % with the highest entropy, 1/2 for the 30 % that the image moves most, else nothing.

    Lu et al. 2026, arXiv 2603.25077 (ToR): |log p_t - log p_t without the image| ranks the second kind; a token of
    both kinds gets 1. They select among the tokens of a batch and take the entropy of the likeliest 95 %. The numbers
    are those of a re-implementation.
    """
    assert attention.entropy_T is not None
    is_reasoning_T = highest(attention.entropy_T.double().numpy(), fraction)
    is_perception_T = highest(np.abs(_difference(attention)), fraction)
    weight_T = np.where(is_reasoning_T, of_reasoning, np.where(is_perception_T, of_perception, 0.0))
    return credit_of_rows(weight_T, attention, config)


def _difference(attention: AttentionRows) -> NDArray[np.float64]:
    assert attention.logprob_T is not None
    assert attention.blackened_logprob_T is not None
    return (attention.blackened_logprob_T.double() - attention.logprob_T.double()).numpy()


def _dependency(attention: AttentionRows) -> NDArray[np.float64]:
    from atrl_bench.credit.blackening import token_dependency

    assert attention.logprob_T is not None
    assert attention.blackened_logprob_T is not None
    return token_dependency(attention.blackened_logprob_T, attention.logprob_T).double().numpy()
