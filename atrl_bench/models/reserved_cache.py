"""Keys and values of a decoding in memory that is reserved once.

transformers' cache copies itself at every token that is added. Where many short answers are drawn, that copy takes
longer than the token.

Shapes: R rows, H key heads, S positions so far, D size of a head.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer


def reserve(cache: Any, num_tokens: int) -> None:
    """Give the layers of a cache room for `num_tokens` more tokens; layers of another kind stay as they are."""
    layers = getattr(cache, "layers", [])
    for index, layer in enumerate(layers):
        if type(layer) is DynamicLayer and layer.is_initialized:
            layers[index] = ReservedLayer(layer, num_tokens)


class ReservedLayer(DynamicLayer):
    """A layer's keys and values with room for more."""

    def __init__(self, layer: DynamicLayer, num_tokens: int) -> None:
        super().__init__()
        self.dtype, self.device, self.is_initialized = layer.dtype, layer.device, True
        self._capacity = layer.get_seq_length() + num_tokens
        all_rows = torch.arange(len(layer.keys), device=self.device)
        self.keys, self.values = self._rows_of(layer.keys, all_rows), self._rows_of(layer.values, all_rows)

    def _rows_of(self, states_RHSD: Tensor, rows: Tensor) -> Tensor:
        _, num_heads, length, size = states_RHSD.shape
        chosen = states_RHSD.new_empty(len(rows), num_heads, self._capacity, size)[:, :, :length]
        return torch.index_select(states_RHSD, 0, rows, out=chosen)

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        self.keys, self.values = _grown(self.keys, key_states), _grown(self.values, value_states)
        return self.keys, self.values

    def reorder_cache(self, beam_idx: Tensor) -> None:
        rows = beam_idx.to(self.device)
        self.keys, self.values = self._rows_of(self.keys, rows), self._rows_of(self.values, rows)


def _grown(states_RHSD: Tensor, more: Tensor) -> Tensor:
    """The states with more behind them, in the room that is there."""
    num_rows, num_heads, length, size = states_RHSD.shape
    grown = states_RHSD.as_strided((num_rows, num_heads, length + more.shape[2], size), states_RHSD.stride())
    grown[:, :, length:] = more
    return grown
