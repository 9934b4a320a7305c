"""Which columns of the rows enter a cosine.

Shapes: S columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import BoolTensor, Tensor

from atrl_bench.credit.attention_rows import AttentionRows
from atrl_bench.credit.config import CreditConfig


@dataclass(frozen=True, eq=False)
class RowSample:
    """What the footprint of a response follows from, where not all of its rows are there."""

    mean_row: Tensor
    visual_S: Tensor
    num_tokens: int

    @property
    def num_columns(self) -> int:
        """How many columns a row has."""
        return len(self.visual_S)


def sink_columns(attention: AttentionRows | RowSample, config: CreditConfig) -> BoolTensor:
    """Returns which columns are attention sinks: text columns with a large share of the average row.

    The paper leaves open whether the cosine sees them. A sink with a fifth of every row makes every cosine exceed
    0.7, the graph complete and its METIS cut as large as a random partition's; below a tenth it does no harm.
    Visual columns are never sinks here, since a response may well look at one patch most of the time.
    """
    return (attention.mean_row >= config.min_sink_share) & ~attention.visual_S  # type: ignore[return-value]


def footprint_columns(attention: AttentionRows | RowSample, config: CreditConfig) -> Tensor:
    """Returns which columns enter the cosine between two tokens, by `config.footprint`."""
    num_tokens, num_columns = attention.num_tokens, attention.num_columns
    if config.footprint == "without_sinks":
        return ~sink_columns(attention, config)
    if config.footprint == "visual":
        return attention.visual_S
    if config.footprint == "prompt":
        return torch.arange(num_columns, device=attention.visual_S.device) < num_columns - num_tokens
    return torch.ones_like(attention.visual_S)
