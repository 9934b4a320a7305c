"""The G responses to each problem of a rollout, from one prefill of its prompt.

A prompt could be handed to `generate` G times; on a small model half of that time is the same prefill over again. The
decoding of the evaluation reads each prompt once, and its random numbers are keyed by what is drawn and not by what was
drawn before, so a resumed run draws what the interrupted one would have drawn.

Shapes: P prompts, G responses each; M responses of a part of the prompts, R rows of a call of the model, S prompt
positions, T response tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from atrl_bench.credit.capture import Recording
from atrl_bench.models.decoding import Draw, SampledTokens, Sampling, sample
from atrl_bench.profiles import TrainingSizes
from atrl_bench.training.arguments import SAMPLER_GB
from atrl_bench.training.rollout import PromptBatch, joined_visuals, padded


class Responses(NamedTuple):
    """P * G responses, group by group, each with the token that ended it."""

    token_ids: list[list[int]]
    logprobs: list[list[float]] | None = None  # of these tokens, where they are asked for
    rows: list[Tensor] | None = None  # attention rows of each, over its prompt and itself, where they are asked for


def sequences_at_once(config: Any, num_positions: int, dtype: torch.dtype) -> int:
    """How many sequences of so many positions have their keys and values in SAMPLER_GB; one at least."""
    text = config.get_text_config()
    num_heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    head_size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    of_a_position = 2 * text.num_hidden_layers * num_heads * head_size * dtype.itemsize
    return max(1, int(SAMPLER_GB * 1e9 // (of_a_position * num_positions)))


def sample_groups(
    model: Any,
    prompts: PromptBatch,
    sizes: TrainingSizes,
    *,
    group_size: int,
    run_seed: int,
    pad_id: int,
    eos_ids: Sequence[int],
    with_logprobs: bool = False,
    recording: Recording | None = None,
) -> Responses:
    """G responses to each prompt; with a `recording` of the next token's row their attention rows are kept too."""
    sampling = Sampling(sizes.max_response_tokens, sizes.temperature, sizes.top_p, run_seed)
    longest = max(map(len, prompts.token_ids_P)) + sampling.max_new_tokens
    step = max(1, sequences_at_once(model.config, longest, getattr(torch, sizes.dtype)) // group_size)
    answers: list[SampledTokens] = []
    rows: list[Tensor] = []
    for start in range(0, len(prompts.keys_P), step):
        part = slice(start, start + step)
        fields = {name: rows_P[part] for name, rows_P in prompts.token_fields_P.items()}
        inputs = prompt_inputs(prompts.token_ids_P[part], fields, pad_id, model.device)
        inputs |= joined_visuals(prompts.visuals_P[part], model.device)
        keys = enumerate(prompts.keys_P[part])
        draws = [Draw(prompt, key, repeat) for prompt, key in keys for repeat in range(group_size)]
        kept = None if recording is None else RowsOfDraws(recording, len(draws), sampling.max_new_tokens)
        drawn = sample(model, inputs, draws, eos_ids, sampling, with_logprobs=with_logprobs, before_draw=kept)
        if kept is not None:
            rows += kept.of(drawn, inputs["attention_mask"].sum(1).repeat_interleave(group_size).tolist())
        answers += drawn
    token_ids = [_with_end(one) for one in answers]
    logprobs = [list(one.logprobs) for one in answers] if with_logprobs else None
    return Responses(token_ids, logprobs, rows if recording is not None else None)


class RowsOfDraws:
    """Collects the attention rows of M responses while they are drawn: of each token that which it is drawn from."""

    def __init__(self, recording: Recording, num_responses: int, num_tokens: int) -> None:
        self._recording, self._shape = recording, (num_responses, num_tokens)
        self._rows: Tensor | None = None  # (M, T, S + T)

    def __call__(self, step: int, open_M: np.ndarray, row_M: np.ndarray) -> None:
        row_R1S = self._recording.take()
        if self._rows is None:
            self._rows = row_R1S.new_zeros(*self._shape, row_R1S.shape[2] + self._shape[1])
        open_, row = torch.from_numpy(open_M), torch.from_numpy(row_M)
        self._rows[open_, step, : row_R1S.shape[2]] = row_R1S[row.to(row_R1S.device), 0]

    def of(self, drawn: Sequence[SampledTokens], num_prompt_tokens: Sequence[int]) -> list[Tensor]:
        """rows_TS of each response, without what is left of its prompt and behind its end; on the CPU."""
        assert self._rows is not None
        num_positions = self._rows.shape[2] - self._shape[1]
        lengths = [len(_with_end(one)) for one in drawn]
        parts = zip(self._rows, lengths, num_prompt_tokens, strict=True)
        return [rows[:length, num_positions - prompt : num_positions + length].cpu() for rows, length, prompt in parts]


def completions_of(processor: Any, token_ids: Sequence[list[int]]) -> list[list[dict[str, str]]]:
    """Responses as rewards take them: each the one message of a conversation."""
    texts = processor.batch_decode(token_ids, skip_special_tokens=True)
    return [[{"role": "assistant", "content": text}] for text in texts]


def _with_end(answer: SampledTokens) -> list[int]:
    return list(answer.token_ids) if answer.end is None else [*answer.token_ids, answer.end]


def prompt_inputs(
    prompt_ids_P: Sequence[list[int]],
    token_fields: Mapping[str, Sequence[list[int]]],
    pad_id: int,
    device: torch.device,
) -> dict[str, Tensor]:
    inputs = {
        "input_ids": padded(prompt_ids_P, pad_id, "left"),
        "attention_mask": padded([[1] * len(ids) for ids in prompt_ids_P], 0, "left"),
        **{name: padded(rows_P, 0, "left") for name, rows_P in token_fields.items()},
    }
    return {name: value.to(device) for name, value in inputs.items()}
