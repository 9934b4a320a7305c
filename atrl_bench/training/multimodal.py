"""What the images and videos of a prompt become, prompt by prompt, on their way through a rollout.

Each prompt's tensors stay together in one dictionary, read once. A rollout has such a dictionary for each response;
those of a forward pass are joined when the model is called. So every pass over a response sees the frames, grids and
seconds with which it was sampled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from atrl_bench.models.local import Prompt, model_inputs

Visual = dict[str, Tensor]
Media = dict[str, list[Any]]  # a prompt's images and videos, in order, by `image` and `video`

KINDS_OF_TOKEN = ("mm_token_type_ids", "token_type_ids")
TOKEN_FIELDS = ("input_ids", "attention_mask", *KINDS_OF_TOKEN)


@dataclass(frozen=True)
class PromptBatch:
    """Prompts about to be answered, each of them once."""

    keys_P: list[str]  # what names the random numbers of each
    token_ids_P: list[list[int]]
    token_fields_P: dict[str, list[list[int]]]  # what else the processor says of the tokens
    visuals_P: list[Visual]
    media_P: list[Media]  # what each shows, for an engine that reads it for itself


def read_prompts(processor: Any, messages_P: Sequence[Any], keys_P: Sequence[str], dtype: torch.dtype) -> PromptBatch:
    read_P = [_read(processor, messages, dtype) for messages in messages_P]
    kinds = [name for name in KINDS_OF_TOKEN if all(name in inputs for inputs in read_P)]
    fields = {name: [inputs[name][0].tolist() for inputs in read_P] for name in kinds}
    visuals_P = [{name: value for name, value in inputs.items() if name not in TOKEN_FIELDS} for inputs in read_P]
    media_P = [media_of(messages) for messages in messages_P]
    return PromptBatch(list(keys_P), [inputs["input_ids"][0].tolist() for inputs in read_P], fields, visuals_P, media_P)


def _read(processor: Any, messages: list[dict[str, Any]], dtype: torch.dtype) -> Any:
    media = media_of(messages)
    text = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return model_inputs(processor, [text], [Prompt("", messages, media["image"], tuple(media["video"]))], dtype)


def media_of(messages: Sequence[Mapping[str, Any]]) -> Media:
    parts = [part for message in messages for part in message["content"]]
    return {kind: [part[kind] for part in parts if part["type"] == kind] for kind in ("image", "video")}


def messages_of(example: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The prompt of an example with its images and videos in their places."""
    media = {"image": iter(example["images"]), "video": iter(example["videos"])}
    return [
        {
            **message,
            "content": [
                {**part, part["type"]: next(media[part["type"]])} if part["type"] in media else part
                for part in message["content"]
            ],
        }
        for message in example["prompt"]
    ]


def joined_visuals(visuals: Sequence[Visual], device: torch.device) -> Visual:
    """The tensors of several prompts as the model takes them, image after image and video after video.

    Where a family has a row of an image, in its own size or number of tiles, zeros fill the smaller ones, as its
    processor would do with all together.
    """
    names = dict.fromkeys(name for visual in visuals for name in visual)
    return {name: _joined([visual[name] for visual in visuals if name in visual]).to(device) for name in names}


def _joined(values: Sequence[Tensor]) -> Tensor:
    largest = [max(sizes) for sizes in zip(*(value.shape[1:] for value in values), strict=True)]

    def filled(value: Tensor) -> Tensor:
        missing = [most - size for size, most in zip(value.shape[1:], largest, strict=True)]
        if not any(missing):
            return value
        return torch.nn.functional.pad(value, [amount for one in reversed(missing) for amount in (0, one)])

    return torch.cat([filled(value) for value in values])


def padded(rows: Sequence[Sequence[float]], value: float, side: str) -> Tensor:
    """The rows as one tensor, with this value on that side of the shorter ones."""
    tensors = [torch.tensor(row) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=value, padding_side=side)
