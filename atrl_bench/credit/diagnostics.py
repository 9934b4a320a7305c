"""What a credit did with its weight, as a few numbers that every report can show beside the score."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def placement(credit_T: NDArray[np.float64], connectivity_T: NDArray[np.float64]) -> dict[str, float]:
    """Returns where the weight of one response went.

    `entropy`: of the tokens' shares of the weight, over log T; 1 is uniform, 0 is all on one token.
    `top15_share`: share of the weight on the 15 % of tokens (rounded up) that have the most; uniform gives 0.15.
    `position_correlation`, `connectivity_correlation`: of the weight with the token's place and with C; 0 if constant.
    """
    num_tokens = len(credit_T)
    if not num_tokens:
        return {}
    share_T = credit_T / credit_T.sum()
    positive = share_T[share_T > 0]
    top = np.sort(share_T)[::-1][: math.ceil(0.15 * num_tokens)]
    mean_connectivity = float(connectivity_T.sum() / num_tokens)
    centred_T = credit_T - credit_T.sum() / num_tokens
    place_T = np.arange(num_tokens, dtype=np.float64) - (num_tokens - 1) / 2
    return {
        "entropy": float(-(positive * np.log(positive)).sum() / math.log(num_tokens)) if num_tokens > 1 else 1.0,
        "top15_share": float(top.sum()),
        "position_correlation": _correlation(centred_T, place_T),
        "connectivity_correlation": _correlation(centred_T, connectivity_T - mean_connectivity),
        "mean_connectivity": mean_connectivity,
    }


def _correlation(a_T: NDArray[np.float64], b_T: NDArray[np.float64]) -> float:
    """Returns the correlation of values that each have mean zero."""
    scale = math.sqrt(float((a_T * a_T).sum()) * float((b_T * b_T).sum()))
    # Below this the differences are rounding, not a trend.
    return float((a_T * b_T).sum()) / scale if scale > 1e-12 * max(1, len(a_T)) else 0.0
