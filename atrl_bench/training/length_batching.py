"""Padding that no row of a forward pass needs is not computed.

A whole rollout is padded to its longest prompt and its longest response. Rows of similar length are put together and
cut to their own longest; what comes back is in the old order and shape. The numbers differ from those of the padded
batch by rounding alone. On the mini profile a third of all positions were padding.

Shapes: B responses, T response tokens, S positions; t and s after trimming.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Part:
    """Some rows of a batch, cut to their longest prompt and response."""

    rows: Tensor
    batch: dict[str, Tensor]
    num_tokens: int


def parts_of(
    batch: Mapping[str, Tensor], num_tokens: int, size: int, *, trim: bool, by_prompt: bool = False
) -> list[Part]:
    """The batch in parts of `size` rows: by length and cut if `trim`, else as they come.

    By the length of the prompt if `by_prompt`: responses to the same prompt that come together stay together.

    `batch` has a value per position, of which the last `num_tokens` are the responses.
    """
    mask_BS = batch["attention_mask"]
    num_rows, length = mask_BS.shape
    # The row of every real batch is whole on both sides of the seam, so its valid positions are one stretch.
    sorted_by_BS = mask_BS[:, : length - num_tokens] if by_prompt else mask_BS
    order_B = sorted_by_BS.sum(1).argsort(stable=True) if trim else torch.arange(num_rows)
    parts = []
    for rows in order_B.cpu().split(size):
        fields = {name: value[rows.to(value.device)] for name, value in batch.items()}
        valid_S = fields["attention_mask"].any(0)
        if trim:
            start, stop = int(valid_S.int().argmax()), length - int(valid_S.flip(0).int().argmax())
        else:
            start, stop = 0, length
        # One response token at least: a part of empty responses still has the shape of one.
        stop = max(stop, length - num_tokens + 1)
        cut = {name: value[:, start:stop] for name, value in fields.items()}
        parts.append(Part(rows, cut, num_tokens - (length - stop)))
    return parts


def joined(values_Bt: Sequence[Tensor], parts: Sequence[Part], num_tokens: int, *, fill: float = 0.0) -> Tensor:
    """The parts' values per response token in the order and shape of the whole batch."""
    pad = torch.nn.functional.pad
    padded = [pad(value, (0, num_tokens - value.shape[1]), value=fill) for value in values_Bt]
    whole_BT = torch.cat(padded)
    rows = torch.cat([part.rows for part in parts])
    if torch.equal(rows, torch.arange(len(rows))):
        return whole_BT
    return whole_BT[rows.argsort().to(whole_BT.device)]
