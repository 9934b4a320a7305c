"""A real Qwen2.5-VL of 1.07 million parameters, with a processor of the same classes, template and special tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from atrl_bench.mini.corpus import corpus
from atrl_bench.models.bases import base_folder

if TYPE_CHECKING:
    from transformers import Qwen2_5_VLForConditionalGeneration, Qwen2_5_VLProcessor, Qwen2Tokenizer

MIN_PIXELS = 56 * 56
MAX_PIXELS = 224 * 224
MODEL_MAX_LENGTH = 2048
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
CHAT_TEMPLATE = (base_folder("mini") / "chat_template.jinja").read_text(encoding="utf-8")

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
    """The model with random weights: text 4 layers of 128 with tied embeddings, vision 2 layers of 64.

    Its sizes are those of the shipped base. They begin within one over the root of 128: the usual 0.02 suits widths of
    thousands, and here makes learning over twice as slow (the base's loss after 240 steps: 0.71 with 0.02, 0.43 with
    0.06).
    """
    import torch
    from transformers import GenerationConfig, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    config = Qwen2_5_VLConfig.from_pretrained(base_folder("mini"))
    config.text_config.vocab_size = len(build_tokenizer(texts))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2_5_VLForConditionalGeneration(config)
    model.generation_config = GenerationConfig.from_pretrained(base_folder("mini"))
    return model.eval()
