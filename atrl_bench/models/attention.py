"""Which attention kernel a model runs: FlashAttention where it is installed, else the one transformers takes, sdpa.

Without it the windows of a vision tower are joined on a GPU. Qwen's vision towers attend within windows of 64 patches
in most of their layers; sdpa is called for each of them, layer by layer: a thousand calls an image, for which a GPU
waits longer than it computes. torch's own FlashAttention takes the windows of all images at once, by where each begins.
All compute the same function and differ by rounding, as two devices do. So the choice is in the record of a run and
in no key.

Shapes: S patches of all images, H heads, D numbers of a head.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

FLASH = "flash_attention_2"
HALF = ("bfloat16", "float16")  # what its kernels take
# transformers hands the bounds of the windows only to an implementation whose name has "flash" in it.
IMPLEMENTATION = "torch_flash_windows"


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


# Windows of a vision tower -----------------------------------------------------------------------------------------


def join_vision_windows(model: Any) -> bool:
    """Have a model's vision tower attend within all windows at once; return whether it has such a tower.

    For models in half precision where there is a `kernel`. The result is that of the windows one by one, rounded
    otherwise.
    """
    from transformers.modeling_utils import AttentionInterface

    layers = [module for module in model.modules() if _has_windows(module)]
    if layers:
        AttentionInterface.register(IMPLEMENTATION, windows_at_once)
    for layer in layers:
        layer.config._attn_implementation = IMPLEMENTATION
    return bool(layers)


@functools.cache
def kernel() -> Callable[..., Any] | None:
    """torch's attention of sequences laid end to end; None where this torch or machine has none."""
    import torch

    if not torch.cuda.is_available() or torch.version.cuda is None or torch.cuda.get_device_capability() < (8, 0):
        return None
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    return varlen_attn


def windows_at_once(
    module: nn.Module,
    query_1HSD: Tensor,
    key_1HSD: Tensor,
    value_1HSD: Tensor,
    attention_mask: None,
    *,
    scaling: float,
    cu_seq_lens_q: Tensor,
    max_length_q: int,
    **options: Any,
) -> tuple[Tensor, None]:
    """The attention output (1, S, H, D), each window for itself; `cu_seq_lens_q` says where they begin."""
    import torch

    varlen_attn = kernel()
    assert varlen_attn is not None
    laid_out = [tensor[0].transpose(0, 1).contiguous() for tensor in (query_1HSD, key_1HSD, value_1HSD)]
    bounds = cu_seq_lens_q.to(torch.int32)
    return varlen_attn(*laid_out, bounds, bounds, max_length_q, max_length_q, scale=scaling)[None], None


def _has_windows(module: nn.Module) -> bool:
    """Whether a module is an attention layer that is given the bounds of windows, and drops nothing out."""
    is_attention = hasattr(module, "config") and hasattr(module, "scaling")
    takes_bounds = is_attention and "cu_seqlens" in inspect.signature(type(module).forward).parameters
    return takes_bounds and not getattr(module, "attention_dropout", 0)
