"""How strongly each token looks at the image: the bias curve and the connectivity density (section 4.1).

Shapes: T response tokens, S columns.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from atrl_bench.credit.config import CreditConfig

# Of more rows than these only the columns from the first to the last visual one are read.
_MOST_READ_WHOLE = 256


# Every response needs its curve twice, and a batch has few lengths. Nobody writes into the result.
@functools.lru_cache(maxsize=256)
def bias_curve(num_columns: int, config: CreditConfig) -> Tensor:
    """Returns the bias curve b over the columns, with mean one.

    b_j = 1 + lambda_exp exp(-gamma p_j) + lambda_cos cos(pi p_j), p_j = j / S, j = 1..S (appendix "Bias Correction").
    The appendix writes p_j = j / T for T tokens but divides columns by b_j; we let j run over all S columns.
    With the paper's constants the curve falls from 1.157 to 0.919: it cannot remove an attention sink.
    """
    p_S = torch.arange(1, num_columns + 1, dtype=torch.float64) / num_columns
    b_S = 1 + config.exp_weight * torch.exp(-config.exp_decay * p_S) + config.cosine_weight * torch.cos(math.pi * p_S)
    b_S = b_S / b_S.mean()
    if bool((b_S <= 0).any()):
        raise ValueError("The bias curve is not positive everywhere; lower |exp_weight| or |cosine_weight|.")
    return b_S.float()


def connectivity(rows_TS: Tensor, visual_S: Tensor, bias_S: Tensor) -> Tensor:
    """Returns the connectivity density C_i of each token: the debiased attention that goes to visual columns.

    C_i = sum over visual j of A_ij / b_j (section 4.1). Dividing is a product with the vector (visual / b), so the
    debiased matrix is not built for it. V is the union of all images and frames.
    """
    weight_S = visual_S / bias_S
    if len(rows_TS) > _MOST_READ_WHOLE and bool(visual_S.any()):
        columns = visual_S.nonzero()
        seen = slice(int(columns[0]), int(columns[-1]) + 1)
        rows_TS, weight_S = rows_TS[:, seen], weight_S[seen]
    return rows_TS @ weight_S
