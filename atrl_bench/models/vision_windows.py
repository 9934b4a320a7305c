"""Attention within the windows of an image in one kernel: the one of FlashAttention that torch itself brings.

Qwen's vision towers attend within windows of 64 patches in most of their layers. Without the package flash-attn
transformers calls attention for each window, layer by layer: a thousand calls an image, for which a GPU waits longer
than it computes. torch's own kernel takes the windows of all images at once, by where each begins.

Shapes: S patches of all images, H heads, D numbers of a head.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

# transformers hands the bounds of the windows only to an implementation whose name has "flash" in it.
IMPLEMENTATION = "torch_flash_windows"


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
