"""Which attention kernel a model runs: FlashAttention where it is installed, else the one transformers takes, sdpa.

Without it the windows of a vision tower are joined on a GPU (`vision_windows`), where sdpa takes them one by one.
All compute the same function and differ by rounding, as two devices do. So the choice is in the record of a run and
in no key.
"""

from __future__ import annotations

from typing import Any

from atrl_bench.models.vision_windows import IMPLEMENTATION, join_vision_windows, kernel

FLASH = "flash_attention_2"
HALF = ("bfloat16", "float16")  # what its kernels take


def prefer_flash_attention(model: Any, dtype: str) -> None:
    """Have a model that computes in `dtype` use FlashAttention, if it is installed for a GPU here and both allow it.

    Where it is not, have the vision tower use the kernel that torch itself brings.
    """
    from transformers.utils import is_flash_attn_2_available

    if dtype not in HALF:
        return
    if model._supports_flash_attn and is_flash_attn_2_available():
        model.set_attn_implementation(FLASH)
    elif kernel() is not None:
        join_vision_windows(model)


def attention_of(model: Any) -> str:
    return str(model.config.get_text_config()._attn_implementation)


def joins_vision_windows(model: Any) -> bool:
    vision = getattr(model.config, "vision_config", None)
    return getattr(vision, "_attn_implementation", None) == IMPLEMENTATION
