"""Tiny random checkpoints of vision-language families, each with a processor of its own classes, as on the hub.

Two layers of vision, five of text of which the rows are recorded in the last; a family's own tiles, sizes and tokens.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers

from atrl_bench.mini.model import CHAT_TEMPLATE, MAX_PIXELS, MIN_PIXELS, SPECIAL_TOKENS, build_tokenizer

QWEN = "<|vision_start|><|image_pad|><|vision_end|>"  # how its template shows an image
MROPE = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 3, 3]}
PIXELS = {"shortest_edge": MIN_PIXELS, "longest_edge": MAX_PIXELS}
SIDE = 56  # of an image or a tile, where a family has one size
SQUARE = {"height": SIDE, "width": SIDE}
VISION = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
VISION |= {"image_size": SIDE, "patch_size": 14}
QWEN_VISION = {"hidden_size": 32, "intermediate_size": 64, "depth": 2, "num_heads": 2, "out_hidden_size": 64}
QWEN_TOKENS = {"image_token_id": "image_pad", "video_token_id": "video_pad"}
QWEN_TOKENS |= {"vision_start_token_id": "vision_start", "vision_end_token_id": "vision_end"}


class Family:
    """A tokenizer with the tokens of a family, its template, and the fields of its text configuration."""

    def __init__(self, shown: str, **named: str) -> None:
        """`shown`: an image in the template; `named`: special tokens as the processor calls them."""
        self.tokenizer = build_tokenizer()
        self.tokenizer.add_special_tokens({"additional_special_tokens": sorted({*named.values()} - {*SPECIAL_TOKENS})})
        self.tokenizer._set_model_specific_special_tokens(named)
        self.of_processor = {"tokenizer": self.tokenizer, "chat_template": CHAT_TEMPLATE.replace(QWEN, shown)}

    def id(self, token: str) -> int:
        return self.tokenizer.convert_tokens_to_ids(token)

    def text(self, **more: Any) -> dict[str, Any]:
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_hidden_layers": 5}
        sizes = {"hidden_size": 64, "intermediate_size": 96, "vocab_size": len(self.tokenizer), "bos_token_id": None}
        ends = {"eos_token_id": self.tokenizer.eos_token_id, "pad_token_id": self.tokenizer.pad_token_id}
        return {**heads, **sizes, **ends, **more}


Checkpoint = tuple[Any, Any]  # a model and its processor


def _qwen(name: str, vision: dict[str, Any], processor: str = "Qwen3VL", patch: int = 16, **text: Any) -> Checkpoint:
    family = Family(QWEN)
    special = {field: family.id(f"<|{token}|>") for field, token in QWEN_TOKENS.items()}
    text = family.text(**{"rope_parameters": MROPE} | text)
    config = getattr(transformers, f"{name}Config")(text_config=text, vision_config=vision, **special)
    of_videos = "Qwen3VL" if processor == "Qwen3VL" else "Qwen2VL"
    made = getattr(transformers, f"{processor}Processor")(
        image_processor=transformers.Qwen2VLImageProcessor(
            min_pixels=MIN_PIXELS, max_pixels=MAX_PIXELS, patch_size=patch
        ),
        video_processor=getattr(transformers, f"{of_videos}VideoProcessor")(),
        **family.of_processor,
    )
    return getattr(transformers, f"{name}ForConditionalGeneration")(config), made


def qwen2_vl() -> Checkpoint:
    vision = {"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2, "patch_size": 14}
    return _qwen("Qwen2VL", vision, "Qwen2VL", 14)


def qwen2_5_vl() -> Checkpoint:
    vision = QWEN_VISION | {"patch_size": 14, "window_size": 56, "fullatt_block_indexes": [1]}
    return _qwen("Qwen2_5_VL", vision, "Qwen2_5_VL", 14)


QWEN3_VISION = QWEN_VISION | {"patch_size": 16, "num_position_embeddings": 64}


def qwen3_vl() -> Checkpoint:
    return _qwen("Qwen3VL", QWEN3_VISION | {"deepstack_visual_indexes": [0, 1]})


def qwen3_vl_moe() -> Checkpoint:
    experts = {"moe_intermediate_size": 48, "num_experts_per_tok": 2, "num_experts": 4}
    return _qwen("Qwen3VLMoe", QWEN3_VISION | {"deepstack_visual_indexes": [0, 1]}, **experts)


def qwen3_5() -> Checkpoint:
    # Three layers of linear attention, then one of full attention, and so on: those are layers 3 and 7.
    linear = {"linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_num_key_heads": 2}
    rope = MROPE | {"mrope_section": [1, 1, 0], "partial_rotary_factor": 0.25}
    layers = {"num_hidden_layers": 8, **linear, "linear_num_value_heads": 4}
    return _qwen("Qwen3_5", QWEN3_VISION, **layers, rope_parameters=rope)


def glm4v() -> Checkpoint:
    names = {"image": "image", "video": "video"}
    names |= {
        f"{kind}_{end}": f"{word}_of_{kind}" for kind in names for end, word in (("start", "begin"), ("end", "end"))
    }
    named = {f"{field}_token": f"<|{name}|>" for field, name in names.items()}
    family = Family("<|begin_of_image|><|image|><|end_of_image|>", **named)
    config = transformers.Glm4vConfig(
        text_config=family.text(rope_parameters=MROPE),
        vision_config=QWEN_VISION | {"patch_size": 14, "image_size": SIDE},
        **{f"{field}_id": family.id(token) for field, token in named.items()},
    )
    processor = transformers.Glm4vProcessor(
        image_processor=transformers.Glm4vImageProcessor(size=PIXELS),
        video_processor=transformers.Glm4vVideoProcessor(size=PIXELS),
        **family.of_processor,
    )
    return transformers.Glm4vForConditionalGeneration(config), processor


def internvl() -> Checkpoint:
    named = {"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>"}
    family = Family("<IMG_CONTEXT>\n", **named, video_token="<video>")
    config = transformers.InternVLConfig(
        text_config=family.text(model_type="qwen2"),
        vision_config=VISION | {"image_size": [SIDE, SIDE], "patch_size": [14, 14]},
        image_token_id=family.id("<IMG_CONTEXT>"),
        image_seq_length=4,
    )
    tiles = {"crop_to_patches": True, "min_patches": 1, "max_patches": 3}
    processor = transformers.InternVLProcessor(
        image_processor=transformers.GotOcr2ImageProcessor(size=SQUARE, **tiles),
        video_processor=transformers.InternVLVideoProcessor(size=SQUARE),
        image_seq_length=4,
        **family.of_processor,
    )
    return transformers.InternVLForConditionalGeneration(config), processor


def llava() -> Checkpoint:
    family = Family("<image>\n", image_token="<image>")
    config = transformers.LlavaConfig(
        text_config=family.text(model_type="llama"),
        vision_config=VISION | {"model_type": "clip_vision_model"},
        image_token_index=family.id("<image>"),
    )
    processor = transformers.LlavaProcessor(
        image_processor=transformers.CLIPImageProcessor(size=SQUARE, crop_size=SQUARE),
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        **family.of_processor,
    )
    return transformers.LlavaForConditionalGeneration(config), processor


def llava_onevision() -> Checkpoint:
    family = Family("<image>\n", image_token="<image>", video_token="<video>")
    grid = [[SIDE, SIDE], [SIDE, 2 * SIDE], [2 * SIDE, SIDE], [2 * SIDE, 2 * SIDE]]
    config = transformers.LlavaOnevisionConfig(
        text_config=family.text(model_type="qwen2"),
        vision_config=VISION | {"model_type": "siglip_vision_model", "vision_use_head": False},
        image_token_index=family.id("<image>"),
        video_token_index=family.id("<video>"),
        image_grid_pinpoints=grid,
    )
    processor = transformers.LlavaOnevisionProcessor(
        image_processor=transformers.LlavaOnevisionImageProcessor(size=SQUARE, image_grid_pinpoints=grid),
        video_processor=transformers.LlavaOnevisionVideoProcessor(size=SQUARE),
        num_image_tokens=16,
        vision_feature_select_strategy="full",
        **family.of_processor,
    )
    return transformers.LlavaOnevisionForConditionalGeneration(config), processor


def gemma3() -> Checkpoint:
    named = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"}
    family = Family("<start_of_image>", **named)
    # A sliding window shorter than the sequences, and every other layer full: masks differ between layers.
    window = {"sliding_window": 24, "sliding_window_pattern": 2, "query_pre_attn_scalar": 16}
    config = transformers.Gemma3Config(
        text_config=family.text(**window),
        vision_config=VISION | {"vision_use_head": False},
        mm_tokens_per_image=4,
        eos_token_id=family.tokenizer.eos_token_id,
        **{f"{name}_index": family.id(token) for name, token in named.items()},
    )
    processor = transformers.Gemma3Processor(
        image_processor=transformers.Gemma3ImageProcessor(size=SQUARE), image_seq_length=4, **family.of_processor
    )
    return transformers.Gemma3ForConditionalGeneration(config), processor


def mistral3() -> Checkpoint:
    named = {"image_token": "[IMG]", "image_break_token": "[IMG_BREAK]", "image_end_token": "[IMG_END]"}
    family = Family("[IMG]", **named)
    config = transformers.Mistral3Config(
        text_config=family.text(model_type="mistral", sliding_window=None),
        vision_config=VISION | {"model_type": "pixtral", "image_size": 2 * SIDE},
        image_token_index=family.id("[IMG]"),
    )
    patch = {"height": 14, "width": 14}
    processor = transformers.PixtralProcessor(
        image_processor=transformers.PixtralImageProcessor(size={"longest_edge": 2 * SIDE}, patch_size=patch),
        patch_size=14,
        spatial_merge_size=2,
        **family.of_processor,
    )
    return transformers.Mistral3ForConditionalGeneration(config), processor


def _idefics(name: str, processors: tuple[str, ...]) -> Checkpoint:
    tiles = [f"<row_{row}_col_{column}>" for row in (1, 2, 3) for column in (1, 2, 3)]
    named = {"image_token": "<image>", "fake_image_token": "<fake_token_around_image>", "video_token": "<video>"}
    named |= {"end_of_utterance_token": "<end_of_utterance>", "global_image_token": "<global-img>"}
    family = Family("<image>", **named, **{f"tile{number}": tile for number, tile in enumerate(tiles)})
    config = getattr(transformers, f"{name}Config")(
        text_config=family.text(model_type="llama"),
        vision_config=VISION,
        image_token_id=family.id("<image>"),
        pad_token_id=family.tokenizer.pad_token_id,
    )
    sizes = {"size": {"longest_edge": 2 * SIDE}, "max_image_size": {"longest_edge": SIDE}}
    of_media = {f"{kind.lower()}_processor": getattr(transformers, f"{name}{kind}Processor") for kind in processors}
    processor = getattr(transformers, f"{name}Processor")(
        **{field: kind(**sizes) for field, kind in of_media.items()}, image_seq_len=4, **family.of_processor
    )
    return getattr(transformers, f"{name}ForConditionalGeneration")(config), processor


def idefics3() -> Checkpoint:
    return _idefics("Idefics3", ("Image",))


def smolvlm() -> Checkpoint:
    return _idefics("SmolVLM", ("Image", "Video"))


CHECKPOINTS: dict[str, Callable[[], Checkpoint]] = {
    make.__name__: make
    for make in (
        *(qwen2_vl, qwen2_5_vl, qwen3_vl, qwen3_vl_moe, qwen3_5, glm4v, internvl),
        *(llava, llava_onevision, gemma3, mistral3, idefics3, smolvlm),
    )
}


def write_checkpoint(family: str, folder: Path) -> Path:
    torch.manual_seed(0)
    model, processor = CHECKPOINTS[family]()
    with torch.no_grad():  # random weights of the usual size attend evenly: rows would not differ
        for parameter in model.get_decoder().layers.parameters():
            parameter.mul_(3.0) if parameter.ndim > 1 else None
    ends = processor.tokenizer
    model.generation_config.update(eos_token_id=ends.eos_token_id, pad_token_id=ends.pad_token_id)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
