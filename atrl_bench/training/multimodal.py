"""What the images and videos of a prompt become, prompt by prompt, on their way through TRL.

TRL 1.16 has no video: it splits and joins the tensors of images by names it knows, and hands no others to the model.
Here each prompt's tensors stay together in one dictionary. A batch carries a list with such a dictionary for each
response, which TRL shuffles and cuts like any other list; those of a forward pass are joined when the model is called.
So every pass over a response sees the frames, grids and seconds with which it was sampled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from trl.trainer.utils import split_pixel_values_by_grid

from atrl_bench.models.local import Prompt, model_inputs

Visual = dict[str, Tensor]
Media = dict[str, list[Any]]  # a prompt's images and videos, in order, by `image` and `video`
MediaIds = tuple[int | None, int | None]  # the tokens that stand for an image and for a video

TOKEN_FIELDS = ("input_ids", "attention_mask", "mm_token_type_ids", "token_type_ids")
IMAGE, VIDEO = 1, 2  # in `mm_token_type_ids`; text is 0


@dataclass(frozen=True)
class PromptBatch:
    """Prompts about to be answered, each of them once."""

    keys_P: list[str]  # what names the random numbers of each
    token_ids_P: list[list[int]]
    token_fields_P: dict[str, list[list[int]]]  # what else the processor says of the tokens
    visuals_P: list[Visual]
    media_P: list[Media]  # what each shows, for an engine that reads it for itself
    images_P: list[Any] | None = None  # as TRL takes them; None in a run that has videos, or without images


def read_prompts(
    processor: Any, messages_P: Sequence[Any], keys_P: Sequence[str], dtype: torch.dtype, media_ids: MediaIds
) -> PromptBatch:
    read_P = [read_prompt(processor, messages, dtype) for messages in messages_P]
    types_P = [token_types(torch.tensor(ids), *media_ids).tolist() for ids, _ in read_P]
    token_ids_P, visuals_P = [ids for ids, _ in read_P], [visual for _, visual in read_P]
    media_P = [media_of(messages) for messages in messages_P]
    return PromptBatch(list(keys_P), token_ids_P, {"mm_token_type_ids": types_P}, visuals_P, media_P)


def read_prompt(processor: Any, messages: list[dict[str, Any]], dtype: torch.dtype) -> tuple[list[int], Visual]:
    """The tokens of a prompt and the tensors of its images and videos, which stand in its messages."""
    media = media_of(messages)
    text = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    inputs = model_inputs(processor, [text], [Prompt("", messages, media["image"], tuple(media["video"]))], dtype)
    visual = {name: value for name, value in inputs.items() if name not in TOKEN_FIELDS}
    return inputs["input_ids"][0].tolist(), visual


def media_of(messages: Sequence[Mapping[str, Any]]) -> Media:
    parts = [part for message in messages for part in message["content"]]
    return {kind: [part[kind] for part in parts if part["type"] == kind] for kind in ("image", "video")}


def with_media(messages: list[dict[str, Any]], images: Sequence[Any], videos: Sequence[Any]) -> list[dict[str, Any]]:
    media = {"image": iter(images), "video": iter(videos)}
    return [
        {
            **message,
            "content": [
                {**part, part["type"]: next(media[part["type"]])} if part["type"] in media else part
                for part in message["content"]
            ],
        }
        for message in messages
    ]


def joined_visuals(visuals: Sequence[Visual], device: torch.device) -> Visual:
    """The tensors of several prompts as the model takes them, image after image and video after video."""
    names = dict.fromkeys(name for visual in visuals for name in visual)
    return {name: torch.cat([visual[name] for visual in visuals if name in visual]).to(device) for name in names}


def split_by_prompt(fields: Mapping[str, Any], num_images_P: Sequence[int]) -> list[Visual]:
    """What TRL's processor call made of the images of several prompts, prompt by prompt."""
    tensors = {name: value for name, value in fields.items() if isinstance(value, Tensor)}
    split = split_pixel_values_by_grid({**tensors, "num_images": list(num_images_P)})
    return [
        {name: split[name][p] if isinstance(split[name], list) else split[name][p : p + 1] for name in tensors}
        for p in range(len(num_images_P))
    ]


def token_types(input_ids: Tensor, image_id: int | None, video_id: int | None) -> Tensor:
    """What kind of token each one is, as the processor writes it; a response has none of an image or video."""
    types = torch.zeros_like(input_ids)
    for token_id, kind in ((image_id, IMAGE), (video_id, VIDEO)):
        if token_id is not None:
            types[input_ids == token_id] = kind
    return types
