"""Rows that are equal, so that what follows from them is equal too.

A matrix product sums in another order at the end of a block: equal rows get products that differ by rounding, and the
order of ties would be that of rounding. Read from the first of the equal ones, ties are broken by position.

Shapes: T tokens, S columns, N tokens whose product is nearly another's.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_ROUNDING = 1e-6  # relative: eight units of the last place


def first_equal(product_T: Tensor, rows_TS: Tensor, scale_S: Tensor) -> Tensor | None:
    """Returns for each token the first whose row, times the scale, is the same; None where all differ.

    Only rows are compared whose products, of those rows with anything, are equal but for rounding.
    """
    sorted_T, order_T = product_T.sort(stable=True)
    near_T = (sorted_T.diff() <= _ROUNDING * sorted_T[1:]) & (sorted_T[1:] > 0)  # zeros are exact
    if not bool(near_T.any()):
        return None
    none = torch.zeros(1, dtype=torch.bool)
    is_near_T = torch.cat([none, near_T]) | torch.cat([near_T, none])
    near_N = order_T[is_near_T].sort().values
    scaled_NS = (rows_TS[near_N] * scale_S).numpy()
    whole_N = scaled_NS.view(np.dtype((np.void, scaled_NS.strides[0]))).ravel()
    _, first_N, same_N = np.unique(whole_N, return_index=True, return_inverse=True)
    first_T = torch.arange(len(rows_TS))
    first_T[near_N] = near_N[torch.from_numpy(first_N[same_N])]
    return first_T if len(first_N) < len(near_N) else None
