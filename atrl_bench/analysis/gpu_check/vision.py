"""The vision tower with the windows of all images in one kernel, against one window after the other."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from atrl_bench.analysis.gpu_check.attention import NUM_SEQUENCES, implementation
from atrl_bench.analysis.gpu_check.bench import Bench
from atrl_bench.analysis.gpu_check.checks import Measured, SkipCheckError
from atrl_bench.analysis.gpu_check.speed import median_seconds
from atrl_bench.models.attention import joins_vision_windows

# Times the distance of eager attention from sdpa, which is rounding alone.
LIMIT = 2.0


def windows(bench: Bench) -> Measured:
    """Return how far the embeddings of images are from those of windows one by one, over what rounding makes of them.

    The details have the seconds of a forward pass of both.
    """
    model = bench.model
    if not joins_vision_windows(model):
        raise SkipCheckError(
            "no GPU" if bench.device.type != "cuda" else "flash-attn is installed, or torch has no kernel"
        )
    inputs = bench.prompts(NUM_SEQUENCES)
    embeddings = partial(_embeddings, model, inputs)
    joined, joined_seconds = embeddings(), median_seconds(embeddings, rounds=3)
    with implementation(model, "sdpa"):
        single, single_seconds = embeddings(), median_seconds(embeddings, rounds=3)
    with implementation(model, "eager"):
        eager = embeddings()
    details = {
        "patches": len(inputs["pixel_values"]),
        "seconds": joined_seconds,
        "seconds_one_by_one": single_seconds,
        "times_faster": single_seconds / joined_seconds,
        "rounding": _distance(eager, single),
    }
    return Measured(_distance(joined, single) / details["rounding"], "of rounding", limit=LIMIT, details=details)


def _embeddings(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        found = model.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"]).pooler_output
    return torch.cat(tuple(found)).float()


def _distance(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm())
