"""How much a token depends on the image: a second forward pass that sees the images with some of their patches black.

Shapes: B responses, T response tokens, S positions, N patches of all images.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from atrl_bench.errors import InvalidFileError

MAX_LOG_RATIO = 20.0
MAX_DEPENDENCY = 10.0


def blackened(pixels_N: Tensor, black: Tensor, is_black_N: Tensor) -> Tensor:
    """Return the patches with some of them `black`, as the processor writes a black patch.

    A processor that makes one row of a patch maps each pixel by itself, so the row of a black picture is what a picture
    blackened there would have become. It is not zero, which is the mean colour.
    """
    return torch.where(is_black_N[:, None].to(pixels_N.device), black.to(pixels_N), pixels_N)


def token_dependency(blackened_logprobs_BT: Tensor, logprobs_BT: Tensor) -> Tensor:
    """Return S_t = exp(d) - d - 1 with d = log pi(y_t | blackened image) - log pi(y_t | image).

    The k3 estimate, from the one sampled token, of the KL divergence that VPPO (arXiv 2510.09285) defines; d is held
    within 20 of zero and S within 10, as in its official code.
    """
    d_BT = (blackened_logprobs_BT.float() - logprobs_BT.float()).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return (d_BT.exp() - d_BT - 1).clamp(0.0, MAX_DEPENDENCY)


def black_patch(image_processor: Any, level: int = 0) -> Tensor:
    """Return the row that the image processor makes of a patch of a black picture, or of one of another grey level."""
    from PIL import Image

    side = 4 * getattr(image_processor, "patch_size", 14)
    processed = (
        {}
        if image_processor is None
        else image_processor(images=[Image.new("RGB", (side, side), (level,) * 3)], return_tensors="pt")
    )
    pixels_N = processed.get("pixel_values")
    if (
        pixels_N is None
        or "image_grid_thw" not in processed
        or pixels_N.ndim != 2
        or not bool((pixels_N == pixels_N[0]).all())
    ):
        raise InvalidFileError(
            f"The patches of a {type(image_processor).__name__} cannot be blackened.",
            why="A token's dependency on the image needs a processor that makes one row of each patch, as Qwen's do.",
            next_step="take a rule or recipe that needs no second look at the image, or another model",
        )
    return pixels_N[0]


class Blackening:
    """Blackens each patch of a batch's images with a chance, by draws that follow the response and not its place."""

    def __init__(self, image_processor: Any, probability: float, run_seed: int) -> None:
        self._black, self._probability, self._run_seed = black_patch(image_processor), probability, run_seed
        self._patches_per_token = int(getattr(image_processor, "merge_size", 1)) ** 2

    def pixels(self, inputs: Mapping[str, Any], visual_BS: Tensor, num_tokens: int) -> Tensor | None:
        """Return the pixels of a model's inputs with black patches; None where nothing is shown.

        The draws of a sequence follow its last `num_tokens` tokens, without padding.
        """
        counts_B = (visual_BS.sum(1) * self._patches_per_token).tolist()
        if not sum(counts_B):
            return None
        pixels_N = inputs.get("pixel_values")
        if pixels_N is None or len(pixels_N) != sum(counts_B):
            raise InvalidFileError(
                "The images of a batch cannot be blackened.",
                why="Its inputs have videos, or other patches than the visual tokens of its prompts.",
                next_step="take a credit rule that needs no second look at the image: atrl-bench list rules",
            )
        ids_BT, mask_BT = inputs["input_ids"][:, -num_tokens:], inputs["attention_mask"][:, -num_tokens:].bool()
        draws = []
        for count, ids_T, mask_T in zip(counts_B, ids_BT, mask_BT, strict=True):
            seed = zlib.crc32(str((self._run_seed, "black", ids_T[mask_T].tolist())).encode())
            draws.append(torch.rand(count, generator=torch.Generator().manual_seed(seed)))
        return blackened(pixels_N, self._black, torch.cat(draws) < self._probability)
