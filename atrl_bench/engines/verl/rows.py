"""Attention rows where verl removes the padding of Qwen2-VL and Qwen2.5-VL.

verl then lays the sequences of a micro-batch end to end and replaces the layers' attention by a function that goes
round transformers' AttentionInterface. It hands queries and keys, with their positions in them, to one function of its
module; there the rows are computed, sequence by sequence, by what computes them everywhere else.

Shapes: B sequences, H query heads, G key heads, R recorded rows of a sequence, L its positions, N those of all
sequences together; S positions of a batch padded on the right, of which the last T hold all responses. D head
dimension.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from verl.models.transformers import qwen2_vl

from atrl_bench.credit.capture import attention_layers, attention_rows, rows_of_mask
from atrl_bench.credit.config import Reading

PACKED_MODELS = ("qwen2_vl", "qwen2_5_vl")
_KERNEL = "_custom_flash_attention_forward"


class PackedRecording:
    """The rows of one forward pass over packed sequences; see `PackedRowCapture.record`."""

    def __init__(self, prompt_lengths_B: Sequence[int], lengths_B: Sequence[int]) -> None:
        self._prompt_lengths_B, self._lengths_B = prompt_lengths_B, lengths_B
        self._sums: list[Tensor | None] = [None] * len(lengths_B)
        self.num_layers = 0  # of those that were asked so far

    def add(self, query_NHD: Tensor, key_NGD: Tensor, sliding_window: int | None) -> None:
        start = 0
        for b, (prompt, length) in enumerate(zip(self._prompt_lengths_B, self._lengths_B, strict=True)):
            query_HRD = query_NHD[start + prompt - 1 : start + length].transpose(0, 1)
            key_GLD = key_NGD[start : start + length].transpose(0, 1)
            num_rows = query_HRD.shape[1]
            mask = rows_of_mask(None, num_rows, length, query_HRD.device, sliding_window=sliding_window)
            scaling = query_HRD.shape[-1] ** -0.5
            rows_RL = attention_rows(query_HRD[None], key_GLD[None], mask, scaling=scaling)[0]
            total = self._sums[b]
            self._sums[b] = rows_RL if total is None else total + rows_RL
            start += length
        self.num_layers += 1

    def rows_on_device(self, reading: Reading) -> Tensor:
        """rows_BTS as of a batch padded on the right: its last T positions hold all responses."""
        if not self.num_layers:
            raise RuntimeError("verl's forward pass went round the function that attention rows are taken from.")
        num_positions = max(self._lengths_B)
        first = min(self._prompt_lengths_B)
        some = next(total for total in self._sums if total is not None)
        rows_BTS = some.new_zeros(len(self._sums), num_positions - first, num_positions)
        for b, (total, prompt, length) in enumerate(
            zip(self._sums, self._prompt_lengths_B, self._lengths_B, strict=True)
        ):
            assert total is not None
            rows_TL = (total[1:] if reading == "own" else total[:-1]) / self.num_layers
            rows_BTS[b, prompt - first : length - first, :length] = rows_TL
        return rows_BTS


class PackedRowCapture:
    """A model whose sequences verl packs, prepared for recording."""

    def __init__(self, model: nn.Module, num_layers: int) -> None:
        self._recording: PackedRecording | None = None
        self._groups: int | None = None  # query heads per key head of the layer that is at it
        self._layers = attention_layers(model)[-num_layers:]
        for layer in self._layers:
            layer.register_forward_pre_hook(self._enter)
            layer.register_forward_hook(self._leave)
        setattr(qwen2_vl, _KERNEL, self._with_rows(getattr(qwen2_vl, _KERNEL)))

    @contextmanager
    def record(self, prompt_lengths_B: Sequence[int], lengths_B: Sequence[int]) -> Iterator[PackedRecording]:
        """Records the rows of the responses in the one forward pass inside the block, and only there."""
        recording = self._recording = PackedRecording(prompt_lengths_B, lengths_B)
        try:
            yield recording
        finally:
            self._recording = None
        if recording.num_layers != len(self._layers):
            raise RuntimeError(
                f"{recording.num_layers} of {len(self._layers)} layers left attention rows: this version of verl "
                f"attends by another function than {qwen2_vl.__name__}.{_KERNEL}."
            )

    def _enter(self, layer: Any, _: Any) -> None:
        self._groups = layer.num_key_value_groups if self._recording is not None else None

    def _leave(self, *_: Any) -> None:
        self._groups = None

    def _with_rows(self, attend: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(attend)
        def attend_with_rows(query_1NHD: Tensor, key_1NHD: Tensor, *arguments: Any, **options: Any) -> Any:
            if self._groups is not None and self._recording is not None:
                with torch.no_grad(), torch.autocast(query_1NHD.device.type, enabled=False):
                    # verl has repeated each key head for the query heads that it serves.
                    self._recording.add(query_1NHD[0], key_1NHD[0, :, :: self._groups], options.get("sliding_window"))
            return attend(query_1NHD, key_1NHD, *arguments, **options)

        return attend_with_rows
