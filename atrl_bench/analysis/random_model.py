"""Models of random weights at the shape of real ones: how long a step takes does not depend on what a model knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atrl_bench.errors import MissingDataError, UnknownNameError
from atrl_bench.mini import BASE
from atrl_bench.models.local import limit_pixels
from atrl_bench.models.shape import PIXELS_PER_TOKEN
from atrl_bench.profiles import Profile
from atrl_bench.settings import read_mapping

if TYPE_CHECKING:
    from torch import Tensor

FIRST_WORD = 16  # tokens before it are special ones


@dataclass(frozen=True)
class Shape:
    """The sizes of a Qwen2.5-VL that its time depends on, and of the problems it is measured on."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    vocabulary: int
    response_tokens: int
    vision_hidden: int = 1280
    vision_depth: int = 32
    vision_heads: int = 16
    vision_intermediate: int = 3420
    visual_tokens: int = 512  # of an image
    num_problems: int = 4  # of a rollout, and responses of one pass
    dtype: str = "bfloat16"
    tied: bool = False  # whether the head is the embedding


_FILE = read_mapping(Path(__file__).with_name("shapes.yaml"))
SHAPES: Mapping[str, Shape] = {name: Shape(**sizes) for name, sizes in _FILE.items()}


def shape_of(name: str) -> Shape:
    if name not in SHAPES:
        raise UnknownNameError("shape", name, SHAPES, next_step="atrl-bench overhead --shape 7b")
    return SHAPES[name]


def require_gpu(name: str, rehearsal: str) -> None:
    """Refuse the shape of a large model where only this machine's cores would take its steps."""
    import torch

    if name != "tiny" and not torch.cuda.is_available():
        raise MissingDataError(
            "There is no GPU here that torch can use.",
            why="A rehearsal with a tiny model runs on any machine in about a minute.",
            next_step=rehearsal,
        )


def random_model(shape: Shape, device: str) -> Any:
    """A Qwen2.5-VL of this shape with random weights, made on the device, that reads the mini tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    config = AutoConfig.from_pretrained(BASE)
    text, vision = config.text_config, config.vision_config
    head = shape.hidden // shape.heads
    text.hidden_size, text.intermediate_size = shape.hidden, shape.intermediate
    text.num_hidden_layers, text.layer_types = shape.layers, ["full_attention"] * shape.layers
    text.num_attention_heads, text.num_key_value_heads = shape.heads, shape.kv_heads
    text.vocab_size, text.max_position_embeddings = shape.vocabulary, 32768
    # Qwen2.5-VL's own division of the rotary angles between time, height and width: 1 to 1.5 to 1.5.
    text.rope_parameters = {**text.rope_parameters, "mrope_section": [head // 8, 3 * head // 16, 3 * head // 16]}
    vision.hidden_size, vision.depth, vision.num_heads = shape.vision_hidden, shape.vision_depth, shape.vision_heads
    vision.intermediate_size, vision.out_hidden_size = shape.vision_intermediate, shape.hidden
    vision.fullatt_block_indexes = list(range(7, shape.vision_depth, 8)) or [shape.vision_depth - 1]
    vision.window_size = 112
    for part in (config, text, vision):
        part.initializer_range = 0.02
    config.tie_word_embeddings = text.tie_word_embeddings = shape.tied
    with torch.device(device):
        return AutoModelForImageTextToText.from_config(config, dtype=getattr(torch, shape.dtype))


def random_words(shape: Shape, processor: Any, count: int) -> Tensor:
    """Token ids of so many responses, as long as the shape's, none of which ends early."""
    import torch

    rng, words = torch.Generator().manual_seed(0), min(shape.vocabulary, len(processor.tokenizer))
    return torch.randint(FIRST_WORD, words, (count, shape.response_tokens), generator=rng)


def processor_for(shape: Shape) -> Any:
    """The mini base's processor, which makes so many tokens of every image as the shape says."""
    from transformers import AutoProcessor

    processor = AutoProcessor.from_pretrained(BASE, padding_side="left")
    pixels = shape.visual_tokens * PIXELS_PER_TOKEN
    limit_pixels(processor, pixels, pixels, pixels)
    return processor


def at_shape(profile: Profile, shape: Shape) -> Profile:
    sizes = profile.training.model_copy(
        update={
            "prompts_per_rollout": shape.num_problems,
            "completions_per_device": shape.num_problems,
            "max_response_tokens": shape.response_tokens,
            "max_prompt_tokens": shape.visual_tokens + 256,
            "max_pixels": shape.visual_tokens * PIXELS_PER_TOKEN,
            "dtype": shape.dtype,
        }
    )
    return profile.model_copy(update={"training": sizes})
