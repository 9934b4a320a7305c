"""Rules by the entropy H_t of the distribution that a token was drawn from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from atrl_bench.credit.config import CreditConfig
from atrl_bench.credit.rule import Credit, credit_of_rows, highest, reads

if TYPE_CHECKING:
    from atrl_bench.credit.attention_rows import AttentionRows


@reads("entropy")
def high_entropy(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns credit for the `entropy_fraction` of tokens with the highest entropy (FT-RL's selection).

    Wang et al. 2025, arXiv 2506.01939, "Beyond the 80/20 Rule". They select among the tokens of a batch, here of a
    response; the recipe `ft_rl` is the method itself.
    """
    assert attention.entropy_T is not None
    is_high_T = highest(attention.entropy_T.double().numpy(), config.entropy_fraction)
    return credit_of_rows(is_high_T.astype(float), attention, config)


@reads("entropy")
def entropy_bonus(
    attention: AttentionRows, config: CreditConfig, seed: int, *, bonus: float = 0.4, max_share: float = 0.5
) -> Credit:
    """Returns 1 + min(0.4 H_t, 1/2): somewhat more credit where the model hesitated.

    Cheng et al. 2025, arXiv 2506.14758, "Reasoning with Exploration": A + min(alpha H_t, |A| / kappa), alpha 0.4 and
    kappa 2. That is this factor of an advantage of one. Of a negative advantage theirs is 1 - min(...), which a credit,
    blind to the sign, is not.
    """
    assert attention.entropy_T is not None
    weight_T = 1 + np.minimum(bonus * attention.entropy_T.double().numpy(), max_share)
    return credit_of_rows(weight_T, attention, config)
