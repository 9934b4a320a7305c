"""N answers to each of a batch of prompts from one prefill, sampled so that no answer depends on its neighbours.

The repeats of a problem start from one row of the batch and share it for as long as they draw the same tokens; a row is
copied, with its keys and values, only where they part. At the paper's temperature of 0.1 they seldom do, so Mean@8
costs little more than one answer; at temperature 0 it costs exactly one. Nothing about the samples changes by this:
every repeat draws each token from its own row's distribution with its own random number.

That number comes from a counter-based generator keyed by (run seed, problem, repeat), one per step. So an answer is the
same in whatever batch, order or process it is drawn, up to the rounding of a differently shaped matrix product.

Shapes: P prompts, M answers (repeats of all prompts), R distinct rows, S positions, T response tokens, V vocabulary;
H key heads, D size of a head.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from atrl_bench.errors import AtrlBenchError
from atrl_bench.models.prompt import MEDIA_TOKENS, Sampling

# Rows are only left out once so many have ended: that copies the keys and values of all others.
MAX_ENDED_ROWS = 1 / 8


@dataclass(frozen=True)
class Draw:
    """Which answer is to be drawn: the `repeat`-th to the prompt in row `prompt` of the batch."""

    prompt: int
    problem_id: str
    repeat: int


@dataclass(frozen=True)
class SampledTokens:
    """The tokens of one answer, without the one that ended it; `truncated` if none did."""

    token_ids: tuple[int, ...]
    truncated: bool
    end: int | None = None  # the token that ended it: a trainer scores it too
    logprobs: tuple[float, ...] = ()  # of all tokens and the one that ended it, where they are asked for


def uniforms(run_seed: int, problem_id: str, repeat: int, count: int) -> np.ndarray:
    """The `count` random numbers in [0, 1) that belong to this repeat of this problem, one for each step."""
    key = hashlib.sha256(f"sample:{run_seed}:{repeat}:{problem_id}".encode()).digest()[:16]
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key, "big"))).random(count)


@torch.inference_mode()
def sample(
    model: Any,
    inputs: Mapping[str, torch.Tensor],
    draws: Sequence[Draw],
    eos_ids: Sequence[int],
    sampling: Sampling,
    *,
    with_logprobs: bool = False,
    before_draw: Callable[[int, np.ndarray, np.ndarray], None] | None = None,
) -> list[SampledTokens]:
    """One answer for each of `draws` to the left-padded prompts in `inputs` (a processor's output).

    No answer has a token that stands for an image or a video. `with_logprobs`: those of the model's own distribution at
    the temperature, in which such tokens do have a share. `before_draw(step, open_M, row_M)` is told which answers go
    on, and by which row of the last call of the model.
    """
    mask_RS = inputs["attention_mask"]
    # transformers' own positions: three axes for M-RoPE, one otherwise. After the prompt every axis counts on from
    # here.
    positions = model._prepare_position_ids_for_generation(inputs["input_ids"], dict(inputs))
    output = model(**inputs, position_ids=positions, use_cache=True, logits_to_keep=1)
    if not torch.isfinite(output.logits).all():
        raise AtrlBenchError("The model's output is not finite.", why="Its weights have diverged or are damaged.")
    cache_name = "cache" if "cache" in output else "past_key_values"  # so until transformers 5.24
    cache, position = output[cache_name], positions[..., -1:] + 1
    device, num_tokens = mask_RS.device, sampling.max_new_tokens
    reserve(cache, num_tokens)

    uniforms_MT = np.stack([uniforms(sampling.run_seed, d.problem_id, d.repeat, num_tokens) for d in draws])
    tokens_MT = np.zeros((len(draws), num_tokens), dtype=np.int64)
    length_M = np.full(len(draws), num_tokens)
    row_M = np.array([draw.prompt for draw in draws])
    open_M = np.arange(len(draws))  # the answers that have not ended
    ends, forbidden = np.array(sorted(eos_ids)), media_tokens(model)
    logprobs_MT = np.zeros((len(draws), num_tokens if with_logprobs else 0))
    num_rows = mask_RS.shape[0]

    for step in range(num_tokens):
        if before_draw is not None:
            before_draw(step, open_M, row_M[open_M])
        logits_RV = output.logits[:, -1]
        tempered_RV = logits_RV.float() / sampling.temperature if with_logprobs else None
        logits_RV[:, forbidden] = torch.finfo(logits_RV.dtype).min
        tokens = _draw(logits_RV, row_M[open_M], uniforms_MT[open_M, step], sampling)
        tokens_MT[open_M, step] = tokens
        if tempered_RV is not None:
            drawn = tuple(torch.from_numpy(index).to(device) for index in (row_M[open_M], tokens))
            logprobs_MT[open_M, step] = tempered_RV.log_softmax(-1)[drawn].cpu().numpy()
        ended = np.isin(tokens, ends)
        length_M[open_M[ended]] = step
        open_M, tokens = open_M[~ended], tokens[~ended]
        if not len(open_M) or step + 1 == num_tokens:
            break

        # Answers that shared a row and drew the same token go on sharing; every other pair needs a row of its own.
        pairs, pair_M = np.unique(np.stack([row_M[open_M], tokens], axis=1), axis=0, return_inverse=True)
        parents, drawn = pairs.T
        has_branched = len(np.unique(parents)) < len(parents)
        if has_branched or num_rows - len(pairs) > MAX_ENDED_ROWS * num_rows:
            parent_R = torch.from_numpy(np.ascontiguousarray(parents)).to(device)
            cache.reorder_cache(parent_R)  # also the states of linear attention, which know no other selection
            mask_RS, position = mask_RS[parent_R], position.index_select(-2, parent_R)
            num_rows, row_M[open_M] = len(pairs), pair_M
            token_R = torch.from_numpy(np.ascontiguousarray(drawn)).to(device)
        else:  # rows whose answers have ended go on with any token
            token_R = mask_RS.new_zeros(num_rows)
            token_R[torch.from_numpy(parents).to(device)] = torch.from_numpy(drawn).to(device)
        mask_RS = torch.cat([mask_RS, mask_RS.new_ones(num_rows, 1)], dim=1)
        output = model(
            input_ids=token_R[:, None],
            attention_mask=mask_RS,
            position_ids=position,
            use_cache=True,
            **{cache_name: cache},
        )
        position = position + 1

    return [
        SampledTokens(
            tuple(tokens_T[:length].tolist()),
            truncated=bool(length == num_tokens),
            end=int(tokens_T[length]) if length < num_tokens else None,
            logprobs=tuple(logprobs_T[: length + 1].tolist()),
        )
        for tokens_T, length, logprobs_T in zip(tokens_MT, length_M, logprobs_MT, strict=True)
    ]


def media_tokens(model: Any) -> list[int]:
    return [value for name in MEDIA_TOKENS if (value := getattr(model.config, name, None)) is not None]


def _draw(logits_RV: torch.Tensor, row_M: np.ndarray, uniform_M: np.ndarray, sampling: Sampling) -> np.ndarray:
    """One token for each open answer: the inverse of its row's distribution function at its random number."""
    row = torch.from_numpy(row_M).to(logits_RV.device)
    if sampling.temperature == 0:
        return logits_RV.argmax(-1)[row].cpu().numpy()
    # In double precision: single-precision sums over a vocabulary of 150,000 are off by more than a rare token's share.
    probability_RV = torch.softmax(logits_RV.double() / sampling.temperature, dim=-1)
    token_RV = None
    if sampling.top_p < 1 or sampling.top_k is not None:
        probability_RV, token_RV = probability_RV.sort(dim=-1, descending=True, stable=True)
        if sampling.top_k is not None:  # the nucleus is then one of the k likeliest: transformers' order, and vLLM's
            probability_RV[:, sampling.top_k :] = 0.0
            probability_RV = probability_RV / probability_RV.sum(-1, keepdim=True)
        before_RV = probability_RV.cumsum(-1) - probability_RV
        probability_RV = probability_RV.masked_fill(before_RV >= sampling.top_p, 0.0)
    distribution_MV = probability_RV.cumsum(-1)[row]
    target_M1 = torch.from_numpy(uniform_M).to(logits_RV.device)[:, None] * distribution_MV[:, -1:]
    index_M1 = torch.searchsorted(distribution_MV, target_M1, right=True).clamp_(max=distribution_MV.shape[1] - 1)
    chosen = index_M1 if token_RV is None else token_RV[row].gather(1, index_M1)
    return chosen[:, 0].cpu().numpy()


# Keys and values in memory that is reserved once: transformers' cache copies itself at every token that is added, which
# takes longer than the token where many short answers are drawn.


def reserve(cache: Any, num_tokens: int) -> None:
    """Give the layers of a cache room for `num_tokens` more tokens; layers of another kind stay as they are."""
    layers = getattr(cache, "layers", [])
    for index, layer in enumerate(layers):
        if type(layer) is DynamicLayer and layer.is_initialized:
            layers[index] = ReservedLayer(layer, num_tokens)


class ReservedLayer(DynamicLayer):
    """A layer's keys and values with room for more."""

    def __init__(self, layer: DynamicLayer, num_tokens: int) -> None:
        super().__init__()
        self.dtype, self.device, self.is_initialized = layer.keys.dtype, layer.device, True
        self._capacity = layer.get_seq_length() + num_tokens
        all_rows = torch.arange(len(layer.keys), device=self.device)
        self.keys, self.values = self._rows_of(layer.keys, all_rows), self._rows_of(layer.values, all_rows)

    def _rows_of(self, states_RHSD: Tensor, rows: Tensor) -> Tensor:
        _, num_heads, length, size = states_RHSD.shape
        chosen = states_RHSD.new_empty(len(rows), num_heads, self._capacity, size)[:, :, :length]
        return torch.index_select(states_RHSD, 0, rows, out=chosen)

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        self.keys, self.values = _grown(self.keys, key_states), _grown(self.values, value_states)
        return self.keys, self.values

    def reorder_cache(self, beam_idx: Tensor) -> None:
        rows = beam_idx.to(self.device)
        self.keys, self.values = self._rows_of(self.keys, rows), self._rows_of(self.values, rows)


def _grown(states_RHSD: Tensor, more: Tensor) -> Tensor:
    """The states with more behind them, in the room that is there."""
    num_rows, num_heads, length, size = states_RHSD.shape
    grown = states_RHSD.as_strided((num_rows, num_heads, length + more.shape[2], size), states_RHSD.stride())
    grown[:, :, length:] = more
    return grown
