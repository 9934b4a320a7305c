"""A real Qwen2.5-VL of 1.07 million parameters, with a processor of the same classes, template and special tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from atrl_bench.mini.corpus import corpus

if TYPE_CHECKING:
    from transformers import Qwen2_5_VLForConditionalGeneration, Qwen2_5_VLProcessor, Qwen2Tokenizer

MIN_PIXELS = 56 * 56
MAX_PIXELS = 224 * 224
MODEL_MAX_LENGTH = 2048
# One over the root of 128. The usual 0.02 suits widths of thousands; here it makes learning over twice as slow (the
# base's loss after 240 steps: 0.71 with 0.02, 0.43 with 0.06).
INITIALIZER_RANGE = 0.088
SYSTEM = "You are a helpful assistant."

# The ids come first in the vocabulary, in this order, so that they do not move when the corpus changes.
SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)

# Qwen2.5-VL's own template, without the branches for tools.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}<|im_start|>system\n" + SYSTEM + "<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for content in message['content'] %}"
    "{% if content['type'] == 'image' or 'image' in content or 'image_url' in content %}"
    "<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif content['type'] == 'video' or 'video' in content %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in content %}{{ content['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


Corpus = Callable[[], Iterable[str]]


@lru_cache
def _trained_bpe(texts: Corpus) -> tuple[dict[str, int], list[tuple[str, str]]]:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=4096,  # an upper bound: training stops when every word of the corpus is one token
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[AddedToken(token, special=True) for token in SPECIAL_TOKENS],
        show_progress=False,
    )
    chat = f"system\n{SYSTEM}\nuser\nassistant\n"
    tokenizer.train_from_iterator([chat, *texts()], trainer)
    state = json.loads(tokenizer.to_str())["model"]
    return state["vocab"], [(first, second) for first, second in state["merges"]]


def build_tokenizer(texts: Corpus = corpus) -> Qwen2Tokenizer:
    """Qwen's byte-level BPE over these texts: their words are whole, every digit is one token."""
    from transformers import Qwen2Tokenizer

    vocab, merges = _trained_bpe(texts)
    return Qwen2Tokenizer(
        vocab=dict(vocab),
        merges=list(merges),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=list(SPECIAL_TOKENS[1:]),
        padding_side="left",  # right padding fails inside M-RoPE with a shape mismatch
        model_max_length=MODEL_MAX_LENGTH,
    )


def build_processor(texts: Corpus = corpus) -> Qwen2_5_VLProcessor:
    """A Qwen2.5-VL processor whose 56-pixel cell is four visual tokens."""
    from transformers import Qwen2_5_VLProcessor, Qwen2VLImageProcessor, Qwen2VLVideoProcessor

    sizes = {"min_pixels": MIN_PIXELS, "max_pixels": MAX_PIXELS}
    return Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessor(**sizes),
        tokenizer=build_tokenizer(texts),
        video_processor=Qwen2VLVideoProcessor(**sizes, cap_pixels_per_frame=False),
        chat_template=CHAT_TEMPLATE,
    )


def build_model(seed: int, texts: Corpus = corpus) -> Qwen2_5_VLForConditionalGeneration:
    """The model with random weights: text 4 layers of 128 with tied embeddings, vision 2 layers of 64."""
    import torch
    from transformers import GenerationConfig, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    tokenizer = build_tokenizer(texts)
    token_id = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL_TOKENS}
    ends = {"eos_token_id": token_id["<|im_end|>"], "pad_token_id": token_id["<|endoftext|>"], "bos_token_id": None}
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": 128,
            "intermediate_size": 352,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": MODEL_MAX_LENGTH,
            "initializer_range": INITIALIZER_RANGE,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [4, 6, 6]},
            **ends,
        },
        vision_config={
            "depth": 2,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 4,
            "out_hidden_size": 128,
            "initializer_range": INITIALIZER_RANGE,
            "window_size": 56,
            "fullatt_block_indexes": [1],
        },
        image_token_id=token_id["<|image_pad|>"],
        video_token_id=token_id["<|video_pad|>"],
        vision_start_token_id=token_id["<|vision_start|>"],
        vision_end_token_id=token_id["<|vision_end|>"],
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2_5_VLForConditionalGeneration(config)
    model.generation_config = GenerationConfig(**ends, do_sample=True)
    return model.eval()
