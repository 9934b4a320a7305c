"""Rules by the attention that response tokens pay one another, rather than the image.

The rows are those of every rule: the mean over all heads of the last layers. A row stands at the position of its
query, which for the reading `predicting` is the one before the token.

Shapes: T response tokens, S columns; a matrix TT has a row for each token and a column for each token it looks at.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from atrl_bench.credit.config import CreditConfig
from atrl_bench.credit.rule import Credit, credit_of_rows, highest

if TYPE_CHECKING:
    from atrl_bench.credit.attention_rows import AttentionRows

MIN_ATTENTION = 1e-12


def future_attention(
    attention: AttentionRows,
    config: CreditConfig,
    seed: int,
    *,
    nearest: int = 10,
    farthest: int = 50,
    fraction: float = 0.4,
    amplified: float = 1.5,
) -> Credit:
    """Returns 1.5 for the 40 % of tokens that later ones look back at most, 10 to 50 positions on, else 1.

    Li et al. 2025, arXiv 2510.13554, "Attention Illuminates LLM Reasoning": Future Attention Influence and their credit
    of anchors. They average the 30 % of heads that look farthest, in middle layers, and amplify no negative advantage.
    """
    among_TT = _among_tokens(attention)
    distance_TT = _query_positions(attention, config)[:, None] - _token_positions(attention)[None, :]
    is_future_TT = (distance_TT >= nearest) & (distance_TT <= farthest)
    influence_T = (among_TT * is_future_TT).sum(0) / np.maximum(is_future_TT.sum(0), 1)
    weight_T = np.where(highest(influence_T, fraction), amplified, 1.0)
    return credit_of_rows(weight_T, attention, config)


def preplan_attention(
    attention: AttentionRows,
    config: CreditConfig,
    seed: int,
    *,
    window: int = 10,
    fraction: float = 0.4,
    amplified: float = 1.5,
) -> Credit:
    """Returns 1.5 for the 40 % of tokens after which the distance of attention changes most, else 1.

    Li et al. 2025, arXiv 2510.13554: their credit of preplan tokens, |WAAD_t - WAAD_t+1| with the Windowed Average
    Attention Distance, sum over columns s of A_ts min(t - s, 10). They average the 30 % of heads that look nearest, and
    amplify no negative advantage.
    """
    position_S = np.arange(attention.rows_TS.shape[1])
    distance_TS = _query_positions(attention, config)[:, None] - position_S[None, :]
    averaged_T = (attention.rows_TS.double().numpy() * np.clip(distance_TS, 0, window)).sum(1)
    change_T = np.append(np.abs(np.diff(averaged_T)), 0.0)
    weight_T = np.where(highest(change_T, fraction), amplified, 1.0)
    return credit_of_rows(weight_T, attention, config)


def answer_attention(
    attention: AttentionRows, config: CreditConfig, seed: int, *, answer: float = 0.15, floor: float = 0.5
) -> Credit:
    """Returns 1 for the answer and 1/2 + 1/2 sigmoid(z) before it, z the log of the attention the answer pays a token.

    A public repository, "Credit Where Credit Is Due: Attention-weighted Token-level Credit Assignment in Policy
    Gradient" (ATPO), without a paper: z has mean 0 and deviation 1 over the chain. It reads the last layer and knows
    the answer by the end of <think>; here the answer is the last 15 % of the tokens, rounded up.
    """
    among_TT = _among_tokens(attention)
    chain = len(among_TT) - math.ceil(answer * len(among_TT))
    weight_T = np.ones(len(among_TT))
    if chain:
        paid_C = np.log(np.maximum(among_TT[chain:, :chain].mean(0), MIN_ATTENTION))
        z_C = (paid_C - paid_C.mean()) / (paid_C.std() or 1.0)
        weight_T[:chain] = floor + (1 - floor) / (1 + np.exp(-z_C))
    return credit_of_rows(weight_T, attention, config)


def _among_tokens(attention: AttentionRows) -> NDArray[np.float64]:
    """Returns the attention of each token to each response token, which are the last columns."""
    return attention.rows_TS[:, -len(attention.rows_TS) :].double().numpy()


def _token_positions(attention: AttentionRows) -> NDArray[np.int64]:
    num_tokens, num_columns = attention.rows_TS.shape
    return np.arange(num_columns - num_tokens, num_columns)


def _query_positions(attention: AttentionRows, config: CreditConfig) -> NDArray[np.int64]:
    return _token_positions(attention) - (config.reading == "predicting")
