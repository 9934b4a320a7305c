"""Which attention kernel a model runs: FlashAttention where it is installed, else the one transformers takes, sdpa.

Both compute the same function and differ by rounding, as two devices do. So the choice is in the record of a run and
in no key.
"""

from __future__ import annotations

from typing import Any

FLASH = "flash_attention_2"
HALF = ("bfloat16", "float16")  # what its kernels take


def prefer_flash_attention(model: Any, dtype: str) -> None:
    """Have a model that computes in `dtype` use FlashAttention, if it is installed for a GPU here and both allow it."""
    from transformers.utils import is_flash_attn_2_available

    if dtype in HALF and model._supports_flash_attn and is_flash_attn_2_available():
        model.set_attn_implementation(FLASH)


def attention_of(model: Any) -> str:
    """Return the attention implementation of the model's text layers."""
    return str(model.config.get_text_config()._attn_implementation)
