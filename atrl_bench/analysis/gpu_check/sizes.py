"""The two sizes of the check: one for a GPU, and its rehearsal on any machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from atrl_bench.analysis.random_model import PIXELS_OF_TOKEN, SHAPES, Shape
from atrl_bench.profiles import Profile, load_profile

FRAME_TOKENS = 128  # of a frame of a video at the 3B size, as in Video-R1


@dataclass(frozen=True)
class CheckSize:
    """How large everything in the check is."""

    name: str
    model: str
    num_parameters: float
    shape: Shape
    group_size: int
    num_frames: int
    frame_tokens: int
    matrix: int  # rows and columns of the matrices that are multiplied
    decoded: int  # tokens of the two responses whose difference in time is that of decoding
    needed_gb: float  # free memory of the device; nothing: it runs without one
    usual_profile: str  # in whose run folder what was measured is of use

    @property
    def profile(self) -> Profile:
        """Two rollouts of two optimiser steps each, in a profile like any other; the first one warms up."""
        shape, smoke = self.shape, load_profile("smoke")
        pixels = shape.visual_tokens * PIXELS_OF_TOKEN
        sizes = smoke.training.model_copy(
            update={
                "num_rollouts": 2,
                "prompts_per_rollout": 2,
                "group_size": self.group_size,
                "updates_per_rollout": 2,
                "completions_per_device": shape.num_problems,
                "max_prompt_tokens": self.num_frames * self.frame_tokens + shape.visual_tokens + 256,
                "max_response_tokens": shape.response_tokens,
                "rewarded_lengths": (1, shape.response_tokens),
                "min_pixels": pixels,
                "max_pixels": pixels,
                "num_frames": self.num_frames,
                "video_max_pixels": self.frame_tokens * PIXELS_OF_TOKEN,
                "warmup_steps": 0,
                "dtype": shape.dtype,
            }
        )
        return smoke.model_copy(update={"training": sizes})


SIZES: Mapping[str, CheckSize] = MappingProxyType(
    {
        "3b": CheckSize("3b", "Qwen2.5-VL-3B", 3.75e9, SHAPES["3b"], 8, 16, FRAME_TOKENS, 8192, 64, 32.0, "paper"),
        "tiny": CheckSize("tiny", "a tiny Qwen2.5-VL", 1.08e6, SHAPES["tiny"], 4, 8, 16, 256, 16, 0.0, "mini"),
    }
)
