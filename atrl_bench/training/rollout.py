"""What a rollout is while it is made and trained on: prompts, groups of responses with their rewards, then tensors.

What a prompt shows, images and videos, stays together in one dictionary of tensors, read once. A rollout has such a
dictionary for each response; those of a forward pass are joined when the model is called. So every pass over a response
sees the frames, grids and seconds with which it was sampled.

Shapes: P prompts, G responses to each, B responses, S prompt tokens padded on the left, T response tokens padded on the
right, F rewards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from atrl_bench.credit.truth import TokenTruth
from atrl_bench.engines.processes import Processes, launched
from atrl_bench.models.local import Prompt, model_inputs
from atrl_bench.training.clock import PhaseClock

# Prompts --------------------------------------------------------------------------------------------------------------

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
    num_counted: int | None = None  # of them, from the first on, in metrics; None: all


def read_prompts(processor: Any, messages_P: Sequence[Any], keys_P: Sequence[str], dtype: torch.dtype) -> PromptBatch:
    read_P = [_read(processor, messages, dtype) for messages in messages_P]
    kinds = [name for name in KINDS_OF_TOKEN if all(name in inputs for inputs in read_P)]
    of_tokens = {name: [inputs[name][0].tolist() for inputs in read_P] for name in kinds}
    visuals_P = [{name: value for name, value in inputs.items() if name not in TOKEN_FIELDS} for inputs in read_P]
    media_P = [media_of(messages) for messages in messages_P]
    ids_P = [inputs["input_ids"][0].tolist() for inputs in read_P]
    return PromptBatch(list(keys_P), ids_P, of_tokens, visuals_P, media_P)


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


# Responses ------------------------------------------------------------------------------------------------------------


@dataclass
class Group:
    """The G responses to one problem, with their rewards."""

    row: int
    key: str  # what names its random numbers
    prompt_ids: list[int]
    token_fields: dict[str, list[int]]  # what else the processor says of the prompt's tokens
    response_ids: list[list[int]]  # each with the token that ended it
    logprobs: list[list[float]] | None  # of these tokens, where the sampler tells them
    rewards_GF: Tensor
    example: dict[str, Any] = field(default_factory=dict)  # the problem; empty here if another process sampled it
    visual: Visual = field(default_factory=dict)  # the prompt's images and videos, the same
    process: int = 0  # which sampled it
    credits: list[Tensor] = field(default_factory=list)  # of each response's tokens, where sampling left their rows

    def without_media(self) -> Group:
        """The group as the other processes get it, who read for themselves what its prompt shows."""
        return replace(self, example={}, visual={}, rewards_GF=self.rewards_GF.cpu())

    @property
    def accuracies(self) -> Tensor:
        """The accuracy reward of each response, which is the first reward of every recipe."""
        return self.rewards_GF[:, 0]

    @property
    def about_video(self) -> bool:
        return bool(self.example["videos"])


def given_group(
    processor: Any,
    row: int,
    example: dict[str, Any],
    responses: Sequence[str],
    dtype: torch.dtype,
    cut: Collection[int] = (),
) -> Group:
    """Responses to a problem as texts: their tokens, and the one that ends each but those that were `cut`."""
    tokenizer = processor.tokenizer
    prompt = read_prompts(processor, [messages_of(example)], [""], dtype)
    fields = {name: rows_P[0] for name, rows_P in prompt.token_fields_P.items()}
    token_ids = tokenizer(list(responses), add_special_tokens=False)["input_ids"]
    # One without any token, a text of special tokens alone, gets its end in any case.
    response_ids = [
        ids if ids and place in cut else [*ids, tokenizer.eos_token_id] for place, ids in enumerate(token_ids)
    ]
    no_rewards = torch.zeros(len(responses), 0)
    return Group(row, "", prompt.token_ids_P[0], fields, response_ids, None, no_rewards, example, prompt.visuals_P[0])


def length_metrics(groups: Sequence[Group], eos_ids: Sequence[int]) -> dict[str, float]:
    """Of all responses, and of those that ended before the limit; zero if none did."""
    responses = [ids for group in groups for ids in group.response_ids]
    length_R = torch.tensor([len(ids) for ids in responses], dtype=torch.float32)
    ended_R = torch.tensor([ids[-1] in eos_ids for ids in responses])
    found = {"completions/clipped_ratio": (~ended_R).float().mean().item()}
    for name, lengths in (("", length_R), ("terminated_", length_R[ended_R] if ended_R.any() else torch.zeros(1))):
        for kind, value in (("mean", lengths.mean()), ("min", lengths.min()), ("max", lengths.max())):
            found[f"completions/{kind}_{name}length"] = value.item()
    return found


class SampledResponse(NamedTuple):
    """One of a rollout's responses, which this process trains on."""

    group: Group
    number: int  # among all responses of the rollout, group by group

    @property
    def repeat(self) -> int:
        return self.number % len(self.group.response_ids)

    @property
    def token_ids(self) -> list[int]:
        return self.group.response_ids[self.repeat]

    @property
    def example(self) -> dict[str, Any]:
        return self.group.example


@dataclass
class Rollout:
    """Some of a rollout's responses, with all that a loss reads. What is not known, or not needed, is None."""

    prompt_ids_BS: Tensor
    prompt_mask_BS: Tensor
    response_ids_BT: Tensor
    mask_BT: Tensor
    token_fields: dict[str, Tensor]  # (B, S + T)
    visuals_B: list[Visual]
    truths_B: list[TokenTruth | None]
    advantages: Tensor  # (B,) of responses, or (B, T) of tokens: then with the credit in them
    num_tokens: float  # of an update, on all processes: of the rollout divided by the updates on it
    reward_B: Tensor | None = None  # the weighted sum of a response's rewards; NaN where none has anything to say
    old_BT: Tensor | None = None  # log-probabilities by the policy that sampled; None: it is the policy still
    reference_BT: Tensor | None = None
    sampled_BT: Tensor | None = None  # log-probabilities that the sampler told
    correction: Tensor | None = None  # of what another engine samples otherwise: (B, 1) or (B, T)
    weights_BT: Tensor | None = None  # of tokens, beside the credit
    extra: dict[str, Tensor] = field(default_factory=dict)  # what own terms of the loss keep, a row a response
    credit_follows: bool = False  # the training pass records the attention rows
    entropy_BT: Tensor | None = None  # of the policy that sampled, where tokens are chosen by it
    counts_BT: Tensor | None = None  # what each token counts in its update

    @classmethod
    def of(cls, responses: Sequence[SampledResponse], advantages_B: Tensor, num_tokens: float, pad_id: int) -> Rollout:
        """These responses, padded to the longest of them."""
        device, groups = advantages_B.device, [response.group for response in responses]
        prompts = [group.prompt_ids for group in groups]
        token_ids = [response.token_ids for response in responses]
        response_ids_BT = padded(token_ids, pad_id, "right").to(device)
        token_fields = {
            name: torch.nn.functional.pad(
                padded([group.token_fields[name] for group in groups], 0, "left"), (0, response_ids_BT.shape[1])
            ).to(device)
            for name in groups[0].token_fields
        }
        logprobs = [group.logprobs[one.repeat] for one, group in zip(responses, groups, strict=True) if group.logprobs]
        return cls(
            prompt_ids_BS=padded(prompts, pad_id, "left").to(device),
            prompt_mask_BS=padded([[1] * len(ids) for ids in prompts], 0, "left").to(device),
            response_ids_BT=response_ids_BT,
            mask_BT=padded([[1] * len(ids) for ids in token_ids], 0, "right").to(device),
            token_fields=token_fields,
            visuals_B=[group.visual for group in groups],
            truths_B=[response.example.get("token_truth") for response in responses],
            advantages=advantages_B,
            num_tokens=num_tokens,
            sampled_BT=padded(logprobs, 0.0, "right").to(device) if logprobs else None,
        )

    def __len__(self) -> int:
        return len(self.mask_BT)

    @property
    def input_ids(self) -> Tensor:
        return torch.cat([self.prompt_ids_BS, self.response_ids_BT], dim=1)

    @property
    def attention_mask(self) -> Tensor:
        return torch.cat([self.prompt_mask_BS, self.mask_BT], dim=1)

    def take(self, rows: Sequence[int]) -> Rollout:
        """These of the responses, padded as they are."""
        taken = {one.name: _take(getattr(self, one.name), rows) for one in fields(self)}
        return Rollout(**taken)

    def to(self, device: torch.device) -> Rollout:
        """The same on a device; what prompts show goes there with each pass."""
        moved = {one.name: _to(getattr(self, one.name), device) for one in fields(self)}
        return Rollout(**moved)


@dataclass
class ScoredTokens:
    """What a pass of a model says of each response token; zero at padding."""

    logprob_BT: Tensor
    entropy_BT: Tensor | None
    credit_BT: Callable[[], Tensor] | None = None  # waits for the credit, which may still be computed
    seconds: dict[str, float] = field(default_factory=dict)  # of attention rows and credit, within the pass


def per_token(advantages: Tensor) -> Tensor:
    """Advantages of responses as a column, those of tokens as they are."""
    return advantages.unsqueeze(1) if advantages.ndim == 1 else advantages


def of_groups(value_BT: Tensor, responses: Sequence[SampledResponse]) -> Tensor:
    """value_BGT: what all responses to the same problem have, whichever process holds them; all ask together.

    T is the longest of all processes', and zero stands behind the others' ends.
    """
    own = [
        (one.number, value_T[: len(one.token_ids)].tolist()) for one, value_T in zip(responses, value_BT, strict=True)
    ]
    numbers, rows = zip(*launched().gather(own), strict=True)
    value_RT = padded(rows, 0.0, "right").to(value_BT)
    place_of = {number: place for place, number in enumerate(numbers)}
    size = len(responses[0].group.response_ids)
    places_BG = [[place_of[one.number - one.repeat + g] for g in range(size)] for one in responses]
    return value_RT[torch.tensor(places_BG)]


def _take(value: Any, rows: Sequence[int]) -> Any:
    if isinstance(value, Tensor):
        return value[torch.tensor(rows, device=value.device)]
    if isinstance(value, Mapping):
        return {name: _take(of_name, rows) for name, of_name in value.items()}
    return [value[row] for row in rows] if isinstance(value, list) else value


def _to(value: Any, device: torch.device) -> Any:
    if isinstance(value, Mapping):
        return {name: _to(of_name, device) for name, of_name in value.items()}
    return value.to(device) if isinstance(value, Tensor) else value


class RolloutTools(Protocol):
    """What rewards, advantages, token weights and terms of the loss may ask of the loop that makes a rollout."""

    processes: Processes
    model: Any
    processor: Any
    clock: PhaseClock
    run_seed: int
    group_size: int

    @property
    def rollout(self) -> int:
        """The number of the rollout that is made or trained on."""

    def note(self, name: str, value: float, count: float = 1.0) -> None:
        """Keep a value, a mean over so many, for the next line of metrics, which has the mean over all."""

    def score(self, rollout: Rollout, phase: str = "scoring", *, trim: bool = True, model: Any = None) -> ScoredTokens:
        """What one more pass, of the policy unless told, says of a rollout's responses."""

    def respond(self, messages_P: Sequence[Any], keys_P: Sequence[str], size: int) -> tuple[list[Any], list[Any]]:
        """Token ids and completions of `size` responses to each prompt, outside of the metrics of the rollout."""

    def token_texts(self, token_ids: Sequence[int]) -> list[str]:
        """The text of each token by itself."""
