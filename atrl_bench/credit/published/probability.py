"""Rules by the probability p_t of a token where it was drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from atrl_bench.credit.config import CreditConfig
from atrl_bench.credit.rule import Credit, credit_of_rows, reads

if TYPE_CHECKING:
    from atrl_bench.credit.attention_rows import AttentionRows

MIN_ENTROPY = 1e-8


@reads("logprob")
def probability_weighting(
    attention: AttentionRows, config: CreditConfig, seed: int, *, strength: float = 0.2
) -> Credit:
    """Returns 0.2 p_t + 0.8: less credit for improbable tokens, whose gradients are large.

    Yang et al. 2025, arXiv 2505.12929, "Do Not Let Low-Probability Tokens Over-Dominate": Advantage Reweighting,
    alpha p_t + (1 - alpha), with the alpha of their logic puzzles. Their second method, separate updates, is none.
    """
    assert attention.logprob_T is not None
    weight_T = strength * np.exp(attention.logprob_T.double().numpy()) + 1 - strength
    return credit_of_rows(weight_T, attention, config)


@reads("entropy", "logprob")
def relative_surprisal(
    attention: AttentionRows, config: CreditConfig, seed: int, *, lowest: float = 0.1, largest: float = 3.0
) -> Credit:
    """Returns credit for tokens whose surprisal over entropy, -log p_t / H_t, is from 0.1 to 3, the same for each.

    Lv et al. 2026, arXiv 2606.31575, "Which Tokens Matter?": selection by the Relative Surprisal Index. The two ends
    are those of a re-implementation; their own choice of them we have not read. All tokens count where none is inside.
    """
    assert attention.entropy_T is not None
    assert attention.logprob_T is not None
    entropy_T = np.maximum(attention.entropy_T.double().numpy(), MIN_ENTROPY)
    index_T = -attention.logprob_T.double().numpy() / entropy_T
    is_inside_T = (index_T >= lowest) & (index_T <= largest)
    weight_T = is_inside_T.astype(float) if is_inside_T.any() else np.ones(len(index_T))
    return credit_of_rows(weight_T, attention, config)
