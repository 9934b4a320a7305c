"""Tiny random VLMs of several families, and one hard batch for each: two images, one image, no image; padded on both
sides, as a trainer pads prompts and responses."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

PAD, IMAGE, VIDEO, VISION_START, VISION_END = 0, 60, 61, 62, 63
NUM_RESPONSE_TOKENS = 8
TOKENS_PER_IMAGE = 4


@dataclass
class TinyVlm:
    """A model on the CPU with a batch of three sequences, the last eight positions of each being the response."""

    model: Any
    inputs: dict[str, Tensor]
    response_mask_BT: Tensor
    visual_BS: Tensor
    num_response_tokens: int = NUM_RESPONSE_TOKENS
    extra: dict[str, Any] = field(default_factory=dict)


def _text(**more: Any) -> dict[str, Any]:
    return {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 5,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "pad_token_id": PAD,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **more,
    }


def _qwen_special() -> dict[str, int]:
    return {
        "image_token_id": IMAGE,
        "video_token_id": VIDEO,
        "vision_start_token_id": VISION_START,
        "vision_end_token_id": VISION_END,
    }


def _mrope() -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}


def _qwen2_vl() -> Any:
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    vision = {"depth": 2, "embed_dim": 16, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 2, "patch_size": 14}
    return Qwen2VLForConditionalGeneration(
        Qwen2VLConfig(text_config=_text(rope_parameters=_mrope()), vision_config=vision, **_qwen_special())
    )


def _qwen2_5_vl() -> Any:
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    vision = {"depth": 2, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 32}
    vision |= {"patch_size": 14, "window_size": 56, "fullatt_block_indexes": [1]}
    return Qwen2_5_VLForConditionalGeneration(
        Qwen2_5_VLConfig(text_config=_text(rope_parameters=_mrope()), vision_config=vision, **_qwen_special())
    )


def _qwen3_vl(kind: str = "Qwen3VL", **experts: int) -> Any:
    import transformers

    vision = {"depth": 2, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 32}
    vision |= {"patch_size": 14, "num_position_embeddings": 16, "deepstack_visual_indexes": [0, 1]}
    text = _text(rope_parameters=_mrope(), head_dim=8, **experts)
    config = getattr(transformers, f"{kind}Config")(text_config=text, vision_config=vision, **_qwen_special())
    return getattr(transformers, f"{kind}ForConditionalGeneration")(config)


def _qwen3_vl_moe() -> Any:
    return _qwen3_vl("Qwen3VLMoe", moe_intermediate_size=24, num_experts_per_tok=2, num_experts=4)


def _qwen3_5() -> Any:
    from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

    vision = {"depth": 2, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 32}
    vision |= {"patch_size": 14, "num_position_embeddings": 16}
    # Linear attention and full attention in turn; in the real model every fourth layer is full.
    layers = {"num_hidden_layers": 6, "layer_types": ["linear_attention", "full_attention"] * 3}
    linear = {"linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_key_heads": 2}
    text = _text(**layers, **linear, linear_num_value_heads=4, rope_parameters=_mrope(), head_dim=8)
    return Qwen3_5ForConditionalGeneration(Qwen3_5Config(text_config=text, vision_config=vision, **_qwen_special()))


def _llava() -> Any:
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

    vision = CLIPVisionConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=28, patch_size=14
    )
    return LlavaForConditionalGeneration(
        LlavaConfig(text_config=LlamaConfig(**_text()), vision_config=vision, image_token_index=IMAGE)
    )


def _gemma3() -> Any:
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration

    # A sliding window shorter than the sequences, and every other layer full: masks differ between layers.
    text = _text(head_dim=8, sliding_window=9, sliding_window_pattern=2, query_pre_attn_scalar=8)
    vision = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    vision |= {"image_size": 56, "patch_size": 14, "vision_use_head": False}
    return Gemma3ForConditionalGeneration(
        Gemma3Config(
            text_config=text,
            vision_config=vision,
            mm_tokens_per_image=TOKENS_PER_IMAGE,
            image_token_index=IMAGE,
            boi_token_index=VISION_START,
            eoi_token_index=VISION_END,
        )
    )


FAMILIES: dict[str, Callable[[], Any]] = {
    "qwen2_vl": _qwen2_vl,
    "qwen2_5_vl": _qwen2_5_vl,
    "qwen3_vl": _qwen3_vl,
    "qwen3_vl_moe": _qwen3_vl_moe,
    "qwen3_5": _qwen3_5,
    "llava": _llava,
    "gemma3": _gemma3,
}


def _batch(family: str) -> tuple[dict[str, Tensor], Tensor]:
    generator = torch.Generator().manual_seed(1)
    image = [VISION_START, *[IMAGE] * TOKENS_PER_IMAGE, VISION_END]
    prompts = [[5, *image, 6, *image, 7], [8, *image, 9, 10, 11], [12, 13, 14]]
    response_lengths = [8, 5, 8]
    width = max(len(prompt) for prompt in prompts)
    ids, mask, response_mask = [], [], []
    for prompt, length in zip(prompts, response_lengths, strict=True):
        response = torch.randint(3, 50, (length,), generator=generator).tolist()
        left, right = width - len(prompt), NUM_RESPONSE_TOKENS - length
        ids.append([PAD] * left + prompt + response + [PAD] * right)
        mask.append([0] * left + [1] * (len(prompt) + length) + [0] * right)
        response_mask.append([1] * length + [0] * right)
    input_ids = torch.tensor(ids)
    inputs: dict[str, Tensor] = {"input_ids": input_ids, "attention_mask": torch.tensor(mask)}
    num_images = 3
    if family.startswith("qwen"):
        inputs["image_grid_thw"] = torch.tensor([[1, 4, 4]] * num_images)
        inputs["pixel_values"] = torch.randn(num_images * 16, 3 * 2 * 14 * 14, generator=generator)
        inputs["mm_token_type_ids"] = (input_ids == IMAGE).int()
    else:
        side = 56 if family == "gemma3" else 28
        inputs["pixel_values"] = torch.randn(num_images, 3, side, side, generator=generator)
        if family == "gemma3":
            inputs["token_type_ids"] = (input_ids == IMAGE).int()
    return inputs, torch.tensor(response_mask)


def make_tiny_vlm(family: str, attn_implementation: str = "sdpa") -> TinyVlm:
    torch.manual_seed(0)
    model = FAMILIES[family]().eval()
    # Random weights of the usual size give nearly flat attention; larger ones make rows that differ.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0) if parameter.ndim > 1 else None
    model.set_attn_implementation(attn_implementation)
    inputs, response_mask_BT = _batch(family)
    return TinyVlm(model, inputs, response_mask_BT, inputs["input_ids"] == IMAGE)


def token_types(input_ids: Tensor, image_id: int | None, video_id: int | None) -> Tensor:
    """Return what kind of token each one is, as a processor writes it: 1 of an image, 2 of a video, 0 of text."""
    types = torch.zeros_like(input_ids)
    for token_id, kind in ((image_id, 1), (video_id, 2)):
        if token_id is not None:
            types[input_ids == token_id] = kind
    return types
