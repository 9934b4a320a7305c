"""Which model is meant, what names its content, and how it is loaded and asked.

A model is a shipped base (`mini`, those of the worlds), a folder, or a hub id. Weights are safetensors only and no code
of a repository is ever run. One model at a time stays in memory, so that a table's five tasks load it once.
"""

from __future__ import annotations

import gc
import hashlib
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from atrl_bench.data import repository as hub
from atrl_bench.data.repository import Listing, Repository
from atrl_bench.digests import file_digest
from atrl_bench.errors import InvalidFileError, MissingDataError, NotFetchedError
from atrl_bench.models.attention import prefer_flash_attention
from atrl_bench.models.bases import base_folder, list_bases
from atrl_bench.models.chat_template import require_tame
from atrl_bench.models.prompt import Prompt, Sampling
from atrl_bench.results.records import Response

DONE = "done.json"  # beside the weights of a checkpoint that was trained here: the last file that is written
# What a loaded model depends on; a run folder also holds metrics and recipes, a hub folder pictures and a README.
CONTENT = (
    "*.safetensors",
    "model.safetensors.index.json",
    "config.json",
    "generation_config.json",
    "*processor_config.json",
    "chat_template.*",
    "additional_chat_templates/*.jinja",
    "tokenizer*.json",
    "vocab.*",
    "merges.txt",
    "*.model",  # of sentencepiece
    "added_tokens.json",
    "special_tokens_map.json",
    "audio_tokenizer_config.json",
    "adapter_config.json",  # where there is one, transformers puts the adapter on the model
)


@dataclass(frozen=True)
class ModelRef:
    """A model: a shipped base, its hub id or its folder's own name, and where it is, or will be once downloaded."""

    name: str
    folder: Path
    listing: Listing | None = None  # of a model on the hub

    @property
    def digest(self) -> str:
        """16 hex digits that name weights, configuration, tokenizer and image processor, wherever they are."""
        if self.listing is not None:
            return hub.digest(self.listing, self.files)
        return file_digest([self.folder / name for name in self.files])

    @property
    def files(self) -> list[str]:
        inside = (
            path.relative_to(self.folder).as_posix() for pattern in ("*", "*/*") for path in self.folder.glob(pattern)
        )
        names = self.listing.names if self.listing else inside
        return sorted(
            name
            for name in names
            if any(fnmatch(name, pattern) and name.count("/") == pattern.count("/") for pattern in CONTENT)
        )


def model_ref(model: str | Path) -> ModelRef:
    """Which model is meant by a shipped base, a folder or a hub id; the last need not be on this machine."""
    name = str(model)
    shipped = {base_folder(base): base for base in list_bases()}
    folder = base_folder(name) if name in shipped.values() else Path(model)
    if (folder / "config.json").is_file():
        return ModelRef(shipped.get(folder, folder.resolve().name), folder)
    if folder in shipped:
        raise NotFetchedError(
            f"The weights of the base {shipped[folder]} are not on this machine.",
            why="They are in the repository, and too large for the wheel; twenty minutes of a core train them anew.",
            next_step=f"atrl-bench train {shipped[folder]}",
        )
    if folder.is_dir() or folder.is_absolute() or name.startswith(".") or name.count("/") != 1:
        raise MissingDataError(
            f"{name} is not a model.",
            why=f"There is no {folder / 'config.json'}." if folder.is_dir() else "It is no folder and no hub id.",
            next_step="give a shipped base such as `mini`, a checkpoint folder, or a hub id such as "
            "Qwen/Qwen2.5-VL-7B-Instruct",
        )
    listing = hub.listing(Repository("model", name))
    return ModelRef(name, listing.folder, listing)


@dataclass(frozen=True)
class TrainedModel:
    """A checkpoint as the store remembers it: its answers are found by this digest, without its files."""

    name: str
    digest: str


def find_model(model: str | Path, *, download: bool = False) -> ModelRef:
    """Where `model` is on this machine; a hub id that is not here, or not whole, is fetched if `download`.

    A checkpoint whose files are not what its training left there is refused.
    """
    ref = model_ref(model)
    _require_unchanged(ref)
    if ref.listing is not None and download:
        hub.download(ref.listing, ref.files)
    elif ref.listing is not None and not ref.listing.is_here(ref.files):
        raise NotFetchedError(
            f"The model {ref.name} is not on this machine.",
            why=f"{ref.folder} lacks some of its files." if ref.folder.is_dir() else "It has not been downloaded.",
            next_step=f"atrl-bench fetch {ref.name}, or use --profile mini",
        )
    return ref


def _require_unchanged(ref: ModelRef) -> None:
    done = ref.folder / DONE
    if not done.is_file():
        return
    try:
        recorded = json.loads(done.read_text(encoding="utf-8"))["digest"]
    except (ValueError, KeyError, TypeError):
        recorded = f"unreadable in {DONE}"
    if ref.digest != recorded:
        raise MissingDataError(
            f"The checkpoint {ref.folder} is not what its training left there.",
            why=f"The digest of its files is {ref.digest}, that of the trained ones {recorded}.",
            next_step="restore its files, or delete the folder and give the command that trains it again",
        )


@dataclass(frozen=True)
class LocalModel:
    """A loaded model with its processor."""

    model: Any
    processor: Any
    eos_ids: tuple[int, ...]

    def chat_text(self, prompt: Prompt) -> str:
        text: str = self.processor.apply_chat_template(prompt.messages, tokenize=False, add_generation_prompt=True)
        return text

    def generate(
        self, prompts: Sequence[Prompt], repeats: Sequence[Sequence[int]], sampling: Sampling
    ) -> list[list[Response]]:
        from atrl_bench.models.decoding import Draw, sample

        started = time.perf_counter()
        texts = [self.chat_text(prompt) for prompt in prompts]
        inputs = model_inputs(self.processor, texts, prompts, self.model.dtype)
        draws = [
            Draw(row, prompt.problem_id, repeat)
            for row, (prompt, wanted) in enumerate(zip(prompts, repeats, strict=True))
            for repeat in wanted
        ]
        answers = sample(self.model, inputs.to(self.model.device), draws, self.eos_ids, sampling)
        decoded = self.processor.tokenizer.batch_decode(
            [list(answer.token_ids) for answer in answers], skip_special_tokens=True
        )
        hashes = [prompt_hash(text, prompt) for text, prompt in zip(texts, prompts, strict=True)]
        seconds = (time.perf_counter() - started) / len(draws)
        responses: list[list[Response]] = [[] for _ in prompts]
        for draw, answer, text in zip(draws, answers, decoded, strict=True):
            name, num_tokens = hashes[draw.prompt], len(answer.token_ids)
            responses[draw.prompt].append(
                Response(draw.problem_id, draw.repeat, name, text, num_tokens, seconds, answer.truncated)
            )
        return responses


def model_inputs(processor: Any, texts: Sequence[str], prompts: Sequence[Prompt], dtype: Any) -> Any:
    """What the model takes for these prompts: left-padded tokens, pixels of images and of whole videos.

    The frames are the ones that were read, at the moments at which they are shown. Only pixels are cast to the model's
    type: in bfloat16 the seconds between two frames, and with them the last positions in time, would be off.
    """
    images = [image for prompt in prompts for image in prompt.images]
    videos = [video for prompt in prompts for video in prompt.videos]
    options: dict[str, Any] = {"images": images or None}
    if videos:
        options["videos"] = [video.frames for video in videos]
        options["video_metadata"] = [video.metadata for video in videos]
        options["do_sample_frames"] = False
    if (begin := processor.tokenizer.bos_token) and texts[0].startswith(begin):
        options["add_special_tokens"] = False  # the tokenizer's would be a second one
    inputs = processor(text=list(texts), **options, padding=True, return_tensors="pt")
    inputs.pop("video_metadata", None)
    for name in ("pixel_values", "pixel_values_videos"):
        if name in inputs:
            inputs[name] = inputs[name].to(dtype)
    return inputs


def prompt_hash(text: str, prompt: Prompt) -> str:
    """16 hex digits that name the text and all pixels of a prompt, and when each frame of a video is shown."""
    digest = hashlib.sha256(text.encode())
    for image in prompt.images:
        digest.update(f"{image.size}".encode() + image.tobytes())
    for video in prompt.videos:
        digest.update(f"{video.frames.shape} {video.timestamps}".encode() + video.frames.tobytes())
    return digest.hexdigest()[:16]


_loaded: dict[tuple[str, int, int, int, str], LocalModel] = {}


def load(
    ref: ModelRef, *, min_pixels: int, max_pixels: int, video_max_pixels: int | None = None, dtype: str
) -> LocalModel:
    """The model, loaded once a process and content; another model takes its place in memory.

    Images are brought between `min_pixels` and `max_pixels`, each frame of a video to `video_max_pixels` at most.
    """
    key = (ref.digest, min_pixels, max_pixels, video_max_pixels or max_pixels, dtype)
    if key not in _loaded:
        release()
        _loaded[key] = _load(ref.folder, *key[1:])
    return _loaded[key]


def release() -> None:
    if _loaded:
        import torch

        _loaded.clear()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _load(folder: Path, min_pixels: int, max_pixels: int, video_max_pixels: int, dtype: str) -> LocalModel:
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor
    from transformers.utils import logging

    from atrl_bench.models.mrope import put_words_after_videos

    shows_progress = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # a table loads dozens of models under a progress display of its own
    require_images(folder, folder)
    try:
        processor = AutoProcessor.from_pretrained(folder, trust_remote_code=False)
        require_tame(processor, folder)
        model = AutoModelForImageTextToText.from_pretrained(
            folder, dtype=getattr(torch, dtype), trust_remote_code=False, use_safetensors=True
        )
    finally:
        if shows_progress:
            logging.enable_progress_bar()
    limit_pixels(processor, min_pixels, max_pixels, video_max_pixels)
    processor.tokenizer.padding_side = "left"  # right padding fails deep inside M-RoPE
    eos_ids = end_tokens(model, processor.tokenizer)
    model = put_words_after_videos(model.to("cuda" if torch.cuda.is_available() else "cpu").eval())
    prefer_flash_attention(model, dtype)
    return LocalModel(model, processor, tuple(eos_ids))


def end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """The tokens that end a response: the tokenizer's, and those that the model names."""
    ends = model.generation_config.eos_token_id  # Qwen2.5-VL has two; its repetition penalty of 1.05 is not applied
    return sorted({tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])} - {None})


def require_images(folder: Path, name: str | Path) -> None:
    """Raise where a checkpoint is a model of text alone, before any of its weights are read."""
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    if type(config) not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        raise InvalidFileError(
            f"{name} is no vision-language model: {config.model_type} reads text alone.",
            why="Benchmarks, training sets and credit here are about images.",
            next_step="name a model of a family in docs/data.md; a text model trains in TRL, by "
            "with_credit(GRPOTrainer, rule='high_entropy')",
        )


def limit_pixels(processor: Any, min_pixels: int, max_pixels: int, video_max_pixels: int) -> None:
    """Make the processor bring images between these sizes, and each frame of a video to `video_max_pixels` at most.

    Where it knows a longest side alone, that is a square's of the largest size; where it has one size, that stays.
    """
    own = dict(processor.image_processor.size)
    if {"shortest_edge", "longest_edge"} <= set(own):  # what Qwen-VL calls its numbers of pixels
        processor.image_processor.size = {"shortest_edge": min_pixels, "longest_edge": max_pixels}
    elif "longest_edge" in own:
        processor.image_processor.size = {"longest_edge": min(own["longest_edge"], math.isqrt(max_pixels))}
    video_processor: Any = getattr(processor, "video_processor", None)
    if "longest_edge" in dict(getattr(video_processor, "size", None) or {}):
        # Frames are allowed half of what they may have at most, Qwen's own proportion for its 128 to 256 tokens.
        smallest = min(min_pixels, video_max_pixels // 2)
        video_processor.size = {"shortest_edge": smallest, "longest_edge": video_max_pixels}
        video_processor.cap_pixels_per_frame = False  # the number of frames is chosen, not what an hour needs
