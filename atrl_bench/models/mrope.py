"""Where the words after a video stand in Qwen2.5-VL's three-axis rotary positions.

The temporal positions of a video grow with its seconds. Qwen2.5-VL was trained, and vLLM runs it, with the next word
after the largest of them. transformers 5 lets the next word follow the frame's height and width, so that the question
about a long video gets the positions of its middle. Images are not concerned: their temporal position is one.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

import torch

VIDEO = 2  # in `mm_token_type_ids`: 0 is text, 1 an image


def put_words_after_videos(model: Any) -> Any:
    """Have positions go on after a video's last moment; other models are left alone."""
    inner: Any = getattr(model, "model", None)
    original = getattr(inner, "get_rope_index", None)
    if original is None or not hasattr(getattr(inner.config, "vision_config", None), "tokens_per_second"):
        return model
    if hasattr(original, "__wrapped__"):
        return model

    @wraps(original)
    def get_rope_index(input_ids: torch.Tensor, mm_token_type_ids: torch.Tensor, **inputs: Any) -> Any:
        positions_3PS, deltas_P1 = original(input_ids, mm_token_type_ids=mm_token_type_ids, **inputs)
        if inputs.get("video_grid_thw") is None:
            return positions_3PS, deltas_P1
        mask_PS = inputs.get("attention_mask")
        for row, types_S in enumerate(mm_token_type_ids):
            kept_S = torch.ones_like(types_S, dtype=torch.bool) if mask_PS is None else mask_PS[row].bool()
            moved_3S = words_after_videos(positions_3PS[:, row, kept_S], types_S[kept_S])
            positions_3PS[:, row, kept_S] = moved_3S
            deltas_P1[row] = moved_3S.max() + 1 - moved_3S.shape[1]
        return positions_3PS, deltas_P1

    inner.get_rope_index = get_rope_index
    return model


def words_after_videos(positions_3S: torch.Tensor, types_S: torch.Tensor) -> torch.Tensor:
    moved_3S = positions_3S.clone()
    is_video_S = types_S == VIDEO
    ends = (is_video_S[:-1] & ~is_video_S[1:]).nonzero().flatten().tolist()
    for end in ends:
        shift = moved_3S[:, : end + 1].max() + 1 - moved_3S[:, end + 1].min()
        moved_3S[:, end + 1 :] += shift.clamp(min=0)
    return moved_3S
