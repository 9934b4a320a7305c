"""Credit rules of other papers, one function each; what their authors claim is in docs/credit_rules.md.

A rule weighs the tokens of one response, by the numbers of its source. What a source does across responses, to the
objective or by the sign of the advantage is no part of it; each docstring says where that changes the method.

Shapes: T response tokens, S columns; a matrix TT has a row for each token and a column for each token it looks at.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from atrl_bench.credit.config import CreditConfig
from atrl_bench.credit.rule import Credit, TokenInput, credit_of_rows, highest, reads, reads_whole_rows

if TYPE_CHECKING:
    from atrl_bench.credit.attention_rows import AttentionRows

MIN_ATTENTION = 1e-12
MIN_ENTROPY = 1e-8


def _of_tokens(attention: AttentionRows, name: TokenInput) -> NDArray[np.float64]:
    value_T = getattr(attention, f"{name}_T")
    assert value_T is not None
    return value_T.double().numpy()


# By the attention that response tokens pay one another, rather than the image. The rows are those of every rule: the
# mean over all heads of the last layers. A row stands at the position of its query, which for the reading `predicting`
# is the one before the token.


@reads_whole_rows
def future_attention(
    attention: AttentionRows, config: CreditConfig, seed: int, *, nearest: int = 10, farthest: int = 50
) -> Credit:
    """Returns 1.5 for the 40 % of tokens that later ones look back at most, 10 to 50 positions on, else 1.

    Li et al. 2025, arXiv 2510.13554, "Attention Illuminates LLM Reasoning": Future Attention Influence and their credit
    of anchors. They average the 30 % of heads that look farthest, in middle layers, and amplify no negative advantage.
    """
    among_TT = _among_tokens(attention)
    distance_TT = _query_positions(attention, config)[:, None] - _token_positions(attention)[None, :]
    is_future_TT = (distance_TT >= nearest) & (distance_TT <= farthest)
    influence_T = (among_TT * is_future_TT).sum(0) / np.maximum(is_future_TT.sum(0), 1)
    return credit_of_rows(np.where(highest(influence_T, 0.4), 1.5, 1.0), attention, config)


@reads_whole_rows
def preplan_attention(attention: AttentionRows, config: CreditConfig, seed: int, *, window: int = 10) -> Credit:
    """Returns 1.5 for the 40 % of tokens after which the distance of attention changes most, else 1.

    Li et al. 2025, arXiv 2510.13554: their credit of preplan tokens, |WAAD_t - WAAD_t+1| with the Windowed Average
    Attention Distance, sum over columns s of A_ts min(t - s, 10), of the rows of tokens themselves; of the reading
    `predicting` these are a line later, and the last two tokens have no change. They average the 30 % of heads that
    look nearest, and amplify no negative advantage.
    """
    position_S = np.arange(attention.rows_TS.shape[1])
    distance_TS = _query_positions(attention, config)[:, None] - position_S[None, :]
    averaged_T = (attention.rows_TS.double().numpy() * np.clip(distance_TS, 0, window)).sum(1)
    own_T = averaged_T[1:] if config.reading == "predicting" else averaged_T
    change_T = np.zeros(len(averaged_T))
    change_T[: max(0, len(own_T) - 1)] = np.abs(np.diff(own_T))
    return credit_of_rows(np.where(highest(change_T, 0.4), 1.5, 1.0), attention, config)


@reads_whole_rows
def answer_attention(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns 1 for the answer and 1/2 + 1/2 sigmoid(z) before it, z the log of the attention the answer pays a token.

    A public repository, "Credit Where Credit Is Due: Attention-weighted Token-level Credit Assignment in Policy
    Gradient" (ATPO), without a paper: z has mean 0 and deviation 1 over the chain. It reads the last layer and knows
    the answer by the end of <think>; here the answer is the last 15 % of the tokens, rounded up.
    """
    among_TT = _among_tokens(attention)
    chain = len(among_TT) - math.ceil(0.15 * len(among_TT))
    weight_T = np.ones(len(among_TT))
    if chain:
        paid_C = np.log(np.maximum(among_TT[chain:, :chain].mean(0), MIN_ATTENTION))
        z_C = (paid_C - paid_C.mean()) / (paid_C.std() or 1.0)
        weight_T[:chain] = 0.5 + 0.5 / (1 + np.exp(-z_C))
    return credit_of_rows(weight_T, attention, config)


def _among_tokens(attention: AttentionRows) -> NDArray[np.float64]:
    """Returns the attention of each token to each response token, which are the last columns."""
    return attention.rows_TS[:, -len(attention.rows_TS) :].double().numpy()


def _token_positions(attention: AttentionRows) -> NDArray[np.int64]:
    num_tokens, num_columns = attention.rows_TS.shape
    return np.arange(num_columns - num_tokens, num_columns)


def _query_positions(attention: AttentionRows, config: CreditConfig) -> NDArray[np.int64]:
    return _token_positions(attention) - (config.reading == "predicting")


# By what the image does to a token: its log-probability against that with part of the image black. All three share the
# second forward pass of VPPO, in which each patch is black with the chance `black_probability`. Two of them remove the
# image instead, to which `black_probability` 1 comes closest.


@reads("logprob", "blackened_logprob")
def visual_dependency(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns credit for the 40 % of tokens that depend most on the image, the same for each (VPPO's token filter).

    Huang et al. 2025, arXiv 2510.09285: S_t = exp(d) - d - 1, d the log-probability with a black half minus that
    without. Their scale of whole responses and their entropy penalty are no part of it; the recipe `vppo` has both.
    """
    return credit_of_rows(highest(_dependency(attention), 0.4).astype(float), attention, config)


@reads("logprob", "blackened_logprob")
def perception_grounded(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns I_t / 0.4 below 0.4 and 1 + 2 (I_t - 0.4) / 0.6 above, I_t from 0 to 1 in the order of dependency.

    Ye et al. 2026, arXiv 2604.01840 (PGPO): I is log(1 + S), scaled to [0, 1] within the response, and the weights
    keep their sum. They hide the image from the attention for S. The two numbers are those of a re-implementation.
    """
    information_T = np.log1p(_dependency(attention))
    spread = information_T.max() - information_T.min()
    if not spread:  # nothing tells the tokens apart
        return credit_of_rows(np.ones(len(information_T)), attention, config)
    scaled_T = (information_T - information_T.min()) / spread
    above_T = 1 + 2 * (scaled_T - 0.4) / (1 - 0.4)
    return credit_of_rows(np.where(scaled_T < 0.4, scaled_T / 0.4, above_T), attention, config)


@reads("entropy", "logprob", "blackened_logprob")
def token_reweighting(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns 1 for the 30 % with the highest entropy, 1/2 for the 30 % that the image moves most, else nothing.

    Lu et al. 2026, arXiv 2603.25077 (ToR): |log p_t - log p_t without the image| ranks the second kind; a token of
    both kinds gets 1. They select among the tokens of a batch and take the entropy of the likeliest 95 %. The numbers
    are those of a re-implementation.
    """
    is_reasoning_T = highest(_of_tokens(attention, "entropy"), 0.3)
    difference_T = _of_tokens(attention, "blackened_logprob") - _of_tokens(attention, "logprob")
    is_perception_T = highest(np.abs(difference_T), 0.3)
    return credit_of_rows(np.where(is_reasoning_T, 1.0, np.where(is_perception_T, 0.5, 0.0)), attention, config)


def _dependency(attention: AttentionRows) -> NDArray[np.float64]:
    from atrl_bench.credit.blackening import token_dependency

    assert attention.logprob_T is not None
    assert attention.blackened_logprob_T is not None
    return token_dependency(attention.blackened_logprob_T, attention.logprob_T).double().numpy()


# By the entropy H_t of the distribution that a token was drawn from.


@reads("entropy")
def high_entropy(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns credit for the `entropy_fraction` of tokens with the highest entropy (FT-RL's selection).

    Wang et al. 2025, arXiv 2506.01939, "Beyond the 80/20 Rule". They select among the tokens of a batch, here of a
    response; the recipe `ft_rl` is the method itself.
    """
    is_high_T = highest(_of_tokens(attention, "entropy"), config.entropy_fraction)
    return credit_of_rows(is_high_T.astype(float), attention, config)


@reads("entropy")
def entropy_bonus(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns 1 + min(0.4 H_t, 1/2): somewhat more credit where the model hesitated.

    Cheng et al. 2025, arXiv 2506.14758, "Reasoning with Exploration": A + min(alpha H_t, |A| / kappa), alpha 0.4 and
    kappa 2. That is this factor of an advantage of one. Of a negative advantage theirs is 1 - min(...), which a credit,
    blind to the sign, is not.
    """
    return credit_of_rows(1 + np.minimum(0.4 * _of_tokens(attention, "entropy"), 0.5), attention, config)


# By the probability p_t of a token where it was drawn.


@reads("logprob")
def probability_weighting(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns 0.2 p_t + 0.8: less credit for improbable tokens, whose gradients are large.

    Yang et al. 2025, arXiv 2505.12929, "Do Not Let Low-Probability Tokens Over-Dominate": Advantage Reweighting,
    alpha p_t + (1 - alpha), with the alpha of their logic puzzles. Their second method, separate updates, is none.
    """
    return credit_of_rows(0.2 * np.exp(_of_tokens(attention, "logprob")) + 1 - 0.2, attention, config)


@reads("entropy", "logprob")
def relative_surprisal(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns credit for tokens whose surprisal over entropy, -log p_t / H_t, is from 0.1 to 3, the same for each.

    Lv et al. 2026, arXiv 2606.31575, "Which Tokens Matter?": selection by the Relative Surprisal Index. The two ends
    are those of a re-implementation; their own choice of them we have not read. All tokens count where none is inside.
    """
    entropy_T = np.maximum(_of_tokens(attention, "entropy"), MIN_ENTROPY)
    index_T = -_of_tokens(attention, "logprob") / entropy_T
    is_inside_T = (index_T >= 0.1) & (index_T <= 3)
    weight_T = is_inside_T.astype(float) if is_inside_T.any() else np.ones(len(index_T))
    return credit_of_rows(weight_T, attention, config)


# By the place of a token alone.


def position_ramp(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns credit that rises in a straight line from 0.5 at the first token to 1.5 at the last.

    Deng et al. 2025, arXiv 2508.02260, shape rewards by position because tokens at the end teach more. The straight
    line is ours: the formula of theirs we have not read. It is what any rule should beat that likes late tokens.
    """
    return credit_of_rows(np.linspace(0.5, 1.5, attention.num_tokens), attention, config)


PUBLISHED = (
    high_entropy,
    entropy_bonus,
    probability_weighting,
    relative_surprisal,
    visual_dependency,
    perception_grounded,
    token_reweighting,
    future_attention,
    preplan_attention,
    answer_attention,
    position_ramp,
)
