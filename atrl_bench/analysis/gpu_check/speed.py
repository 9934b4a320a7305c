"""How fast the device multiplies and reads, without any model."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import linear

from atrl_bench.analysis.gpu_check.checks import Measured
from atrl_bench.training.clock import wall_seconds

ROUNDS = 5
DECODED_AT_ONCE = 16  # rows that share one reading of the weights, as in decoding


def median_seconds(function: Callable[[], Any], *, calls: int = 1, rounds: int = ROUNDS) -> float:
    """Return the seconds of one call: the median over rounds of so many calls, after one that is not counted."""
    function()
    seconds = []
    for _ in range(rounds):
        started = wall_seconds()
        for _ in range(calls):
            function()
        seconds.append((wall_seconds() - started) / calls)
    return statistics.median(seconds)


def products(device: torch.device, dtype: torch.dtype, size: int) -> Measured:
    """Return the FLOP/s of a product of two square matrices."""
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    result = torch.empty_like(left)
    flops = 2 * size**3 / median_seconds(lambda: torch.mm(left, right, out=result), calls=10)
    return Measured(flops / 1e12, "TFLOP/s", details={"size": size, "type": str(dtype)})


def reading(device: torch.device, dtype: torch.dtype, num_inputs: int, num_outputs: int) -> Measured:
    """Return the bytes of weights that a linear layer reads a second, for so few rows that reading is all it does."""
    weight = torch.randn(num_outputs, num_inputs, device=device, dtype=dtype)
    rows = torch.randn(DECODED_AT_ONCE, num_inputs, device=device, dtype=dtype)
    num_bytes = weight.numel() * weight.element_size()
    rate = num_bytes / median_seconds(lambda: linear(rows, weight), calls=20)
    rates = {"memory_bytes_per_second": rate}
    return Measured(rate / 1e9, "GB/s", details={"weights_gb": num_bytes / 1e9, "type": str(dtype)}, rates=rates)
