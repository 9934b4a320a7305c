"""Tiny random VLMs of several families, and one hard batch for each: two images, one image, no image; padded on both
sides, as a trainer pads prompts and responses."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from vlm_checkpoints import CHECKPOINTS

PAD, VISION_START, VISION_END, IMAGE, VIDEO = 0, 3, 4, 6, 7  # in Qwen's families, which have our tokenizer as it is
FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "llava", "gemma3")
NUM_RESPONSE_TOKENS = 8


@dataclass
class TinyVlm:
    """A model on the CPU with a batch of three sequences, the last eight positions of each being the response."""

    model: Any
    inputs: dict[str, Tensor]
    response_mask_BT: Tensor
    visual_BS: Tensor
    num_response_tokens: int = NUM_RESPONSE_TOKENS


def _batch(family: str, config: Any) -> tuple[dict[str, Tensor], Tensor]:
    generator = torch.Generator().manual_seed(1)
    image = [VISION_START, *[config.image_token_id] * (16 if family == "llava" else 4), VISION_END]
    prompts = [[15, *image, 16, *image, 17], [18, *image, 19, 20, 21], [22, 23, 24]]
    response_lengths = [8, 5, 8]
    width = max(len(prompt) for prompt in prompts)
    ids, mask, response_mask = [], [], []
    for prompt, length in zip(prompts, response_lengths, strict=True):
        response = torch.randint(20, 50, (length,), generator=generator).tolist()
        left, right = width - len(prompt), NUM_RESPONSE_TOKENS - length
        ids.append([PAD] * left + prompt + response + [PAD] * right)
        mask.append([0] * left + [1] * (len(prompt) + length) + [0] * right)
        response_mask.append([1] * length + [0] * right)
    input_ids = torch.tensor(ids)
    inputs: dict[str, Tensor] = {"input_ids": input_ids, "attention_mask": torch.tensor(mask)}
    num_images = 3
    if family.startswith("qwen"):
        inputs["image_grid_thw"] = torch.tensor([[1, 4, 4]] * num_images)
        inputs["pixel_values"] = torch.randn(
            num_images * 16, 3 * 2 * config.vision_config.patch_size**2, generator=generator
        )
        inputs["mm_token_type_ids"] = (input_ids == config.image_token_id).int()
    else:
        inputs["pixel_values"] = torch.randn(num_images, 3, 56, 56, generator=generator)
        if family == "gemma3":
            inputs["token_type_ids"] = (input_ids == config.image_token_id).int()
    return inputs, torch.tensor(response_mask)


def make_tiny_vlm(family: str, attn_implementation: str = "sdpa") -> TinyVlm:
    torch.manual_seed(0)
    model = CHECKPOINTS[family]()[0].eval()
    # Random weights of the usual size give nearly flat attention; larger ones make rows that differ.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0) if parameter.ndim > 1 else None
    model.set_attn_implementation(attn_implementation)
    inputs, response_mask_BT = _batch(family, model.config)
    return TinyVlm(model, inputs, response_mask_BT, inputs["input_ids"] == model.config.image_token_id)


def token_types(input_ids: Tensor, image_id: int | None, video_id: int | None) -> Tensor:
    """Return what kind of token each one is, as a processor writes it: 1 of an image, 2 of a video, 0 of text."""
    types = torch.zeros_like(input_ids)
    for token_id, kind in ((image_id, 1), (video_id, 2)):
        if token_id is not None:
            types[input_ids == token_id] = kind
    return types
