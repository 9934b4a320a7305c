"""Padding that no row of a forward pass needs is not computed.

TRL pads a whole rollout to its longest prompt and its longest response. Rows of similar length are put together and cut
to their own longest; what comes back is in the old order and shape. The numbers differ from TRL's by rounding alone.
On the mini profile a third of all positions were padding.

Shapes: B responses, T response tokens, S positions; t and s after trimming.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from trl.trainer.utils import split_pixel_values_by_grid, unsplit_pixel_values_by_grid

# Fields with a value per position; every other tensor or list has one entry per response or per image.
POSITION_FIELDS = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids")


@dataclass(frozen=True)
class Part:
    """Some rows of a batch, cut to their longest prompt and response."""

    rows: Tensor
    batch: dict[str, Any]
    num_tokens: int


def parts_of(batch: dict[str, Any], num_tokens: int, size: int, *, trim: bool, by_prompt: bool = False) -> list[Part]:
    """The batch in parts of `size` rows: by length and cut if `trim`, else as they come.

    By the length of the prompt if `by_prompt`: responses to the same prompt that come together stay together.

    The last `num_tokens` positions are the responses. `batch` holds what `_get_per_token_logps_and_entropies` is given,
    and lists with an entry per row.
    """
    mask_BS = batch["attention_mask"]
    num_rows, length = mask_BS.shape
    # The row of every real batch is whole on both sides of the seam, so its valid positions are one stretch.
    sorted_by_BS = mask_BS[:, : length - num_tokens] if by_prompt else mask_BS
    order_B = sorted_by_BS.sum(1).argsort(stable=True) if trim else torch.arange(num_rows)
    split = split_pixel_values_by_grid(batch)
    parts = []
    for rows in order_B.cpu().split(size):
        fields = {name: _take(value, rows) for name, value in split.items()}
        valid_S = fields["attention_mask"].any(0)
        if trim:
            start, stop = int(valid_S.int().argmax()), length - int(valid_S.flip(0).int().argmax())
        else:
            start, stop = 0, length
        # One response token at least: a part of empty responses still has the shape of one.
        stop = max(stop, length - num_tokens + 1)
        for name in POSITION_FIELDS:
            if name in fields:
                fields[name] = fields[name][:, start:stop]
        parts.append(Part(rows, unsplit_pixel_values_by_grid(fields), num_tokens - (length - stop)))
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


def _take(value: Any, rows: Tensor) -> Any:
    if isinstance(value, Tensor):
        return value[rows.to(value.device)]
    return [value[row] for row in rows.tolist()]
