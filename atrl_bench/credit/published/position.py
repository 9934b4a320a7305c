"""Rules by the place of a token alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from atrl_bench.credit.config import CreditConfig
from atrl_bench.credit.rule import Credit, credit_of_rows

if TYPE_CHECKING:
    from atrl_bench.credit.attention_rows import AttentionRows


def position_ramp(
    attention: AttentionRows, config: CreditConfig, seed: int, *, first: float = 0.5, last: float = 1.5
) -> Credit:
    """Returns credit that rises in a straight line from 0.5 at the first token to 1.5 at the last.

    Deng et al. 2025, arXiv 2508.02260, shape rewards by position because tokens at the end teach more. The straight
    line is ours: the formula of theirs we have not read. It is what any rule should beat that likes late tokens.
    """
    weight_T = np.linspace(first, last, len(attention.rows_TS))
    return credit_of_rows(weight_T, attention, config)
