"""The G responses to each problem of a rollout, from one prefill of its prompt.

A prompt could be handed to `generate` G times; on a small model half of that time is the same prefill over again. The
decoding of the evaluation reads each prompt once, and its random numbers are keyed by what is drawn and not by what was
drawn before, so a resumed run draws what the interrupted one would have drawn.

Shapes: P prompts, G responses each; M responses of a part of the prompts, R rows of a call of the model, S prompt
positions, T response tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from atrl_bench.credit.capture import Asked, Recording, attention_rows, rows_of_mask
from atrl_bench.models.decoding import Draw, SampledTokens, Sampling, sample
from atrl_bench.profiles import TrainingSizes
from atrl_bench.training.arguments import SAMPLER_GB
from atrl_bench.training.rollout import PromptBatch, joined_visuals, padded


class Responses(NamedTuple):
    """P * G responses, group by group, each with the token that ended it."""

    token_ids: list[list[int]]
    logprobs: list[list[float]] | None = None  # of these tokens, where they are asked for
    rows: RowsOfDraws | None = None  # their attention rows, where they are asked for


def sequences_at_once(config: Any, num_positions: int, dtype: torch.dtype) -> int:
    """How many sequences of so many positions have their keys and values in SAMPLER_GB; one at least."""
    of_a_position = 2 * config.get_text_config().num_hidden_layers * head_numbers(config)[1] * dtype.itemsize
    return max(1, int(SAMPLER_GB * 1e9 // (of_a_position * num_positions)))


def head_numbers(config: Any) -> tuple[int, int]:
    """How many numbers the queries of one position have in one layer, and its keys."""
    text = config.get_text_config()
    head_size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    num_key_heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    return text.num_attention_heads * head_size, num_key_heads * head_size


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
    rows: RowsOfDraws | None = None,
) -> Responses:
    """G responses to each prompt; `rows`, where given, are told what their attention rows are made of."""
    sampling = Sampling(sizes.max_response_tokens, sizes.temperature, sizes.top_p, run_seed)
    longest = max(map(len, prompts.token_ids_P)) + sampling.max_new_tokens
    step = max(1, sequences_at_once(model.config, longest, getattr(torch, sizes.dtype)) // group_size)
    answers: list[SampledTokens] = []
    for start in range(0, len(prompts.keys_P), step):
        part = slice(start, start + step)
        fields = {name: rows_P[part] for name, rows_P in prompts.token_fields_P.items()}
        inputs = prompt_inputs(prompts.token_ids_P[part], fields, pad_id, model.device)
        inputs |= joined_visuals(prompts.visuals_P[part], model.device)
        keys = enumerate(prompts.keys_P[part])
        draws = [Draw(prompt, key, repeat) for prompt, key in keys for repeat in range(group_size)]
        answers += sample(model, inputs, draws, eos_ids, sampling, with_logprobs=with_logprobs, before_draw=rows)
    token_ids = [[*one.token_ids, *(() if one.end is None else (one.end,))] for one in answers]
    logprobs = [list(one.logprobs) for one in answers] if with_logprobs else None
    return Responses(token_ids, logprobs, rows)


class RowsOfDraws:
    """The attention rows of responses: of each token that of the query it is drawn from.

    While they are drawn only the queries are put aside, and the keys of a response once it has ended. Its rows are made
    of both when somebody wants them: all of a response at once, and of no other.
    """

    def __init__(
        self, recording: Recording, num_tokens: int, timed: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        self._recording, self._num_tokens, self._timed = recording, num_tokens, timed
        self._ended: list[EndedDraws] = []
        self._num_before, self._num_steps = 0, 0  # responses of other parts; tokens drawn in this one
        self._open = np.zeros(0, dtype=np.int64)
        self._asked: list[Asked] = []
        self._row_TM = np.zeros((0, 0), dtype=np.int64)
        self._query_TRLHD = torch.zeros(0)

    def __call__(self, step: int, open_M: np.ndarray, row_M: np.ndarray) -> None:
        with self._timed():
            if step == 0:
                self.end_part()
            elif len(open_M) < len(self._open):
                self._end(np.setdiff1d(self._open, open_M, assume_unique=True))
            self._asked = self._recording.take()
            query_RLHD = torch.stack([asked.query_BHRD[:, :, -1] for asked in self._asked], dim=1)
            if step == 0:
                self._row_TM = np.zeros((self._num_tokens, len(open_M)), dtype=np.int64)
                self._query_TRLHD = query_RLHD.new_empty(*self._row_TM.shape, *query_RLHD.shape[1:])
            self._open, self._num_steps = open_M, step + 1
            self._row_TM[step, open_M] = row_M
            self._query_TRLHD[step, : len(query_RLHD)] = query_RLHD

    def end_part(self) -> None:
        """Put aside what belongs to the responses that are still drawn; the numbers of others begin behind theirs."""
        if self._asked:
            self._end(self._open)
            self._num_before += self._row_TM.shape[1]
            self._asked, self._query_TRLHD = [], torch.zeros(0)

    def _end(self, ended_B: np.ndarray) -> None:
        if not len(ended_B):
            return
        first = self._asked[0]
        row_BT = torch.from_numpy(self._row_TM[: self._num_steps, ended_B].T.copy())
        place_BT = (row_BT + self._row_TM.shape[1] * torch.arange(self._num_steps)).to(first.key_BGSD.device)
        last_B = row_BT[:, -1].to(first.key_BGSD.device)
        key_LBGSD = first.key_BGSD.new_empty(len(self._asked), len(ended_B), *first.key_BGSD.shape[1:])
        for key_BGSD, asked in zip(key_LBGSD, self._asked, strict=True):
            torch.index_select(asked.key_BGSD, 0, last_B, out=key_BGSD)
        query_LBHTD = self._query_TRLHD.flatten(0, 1)[place_BT].permute(2, 0, 3, 1, 4)
        self._ended.append(
            EndedDraws((self._num_before + ended_B).tolist(), query_LBHTD, key_LBGSD, first.scaling, first.softcap)
        )

    def of(self, num_prompt_tokens: Mapping[int, int]) -> dict[int, Tensor]:
        """rows_TS of the responses with these numbers, over so many tokens of their prompt and themselves."""
        with self._timed():
            self.end_part()
            return {number: rows for ended in self._ended for number, rows in ended.rows(num_prompt_tokens)}


class EndedDraws(NamedTuple):
    """Responses that ended at the same step: their numbers, and what each layer was asked by all their tokens."""

    numbers: list[int]
    query_LBHTD: Tensor
    key_LBGSD: Tensor
    scaling: float
    softcap: float | None

    def rows(self, num_prompt_tokens: Mapping[int, int]) -> Iterator[tuple[int, Tensor]]:
        """Of these numbers among its own."""
        wanted = {b: number for b, number in enumerate(self.numbers) if number in num_prompt_tokens}
        if not wanted:
            return
        query_LBHTD, key_LBGSD, device = self.query_LBHTD, self.key_LBGSD, self.key_LBGSD.device
        if len(wanted) < len(self.numbers):
            chosen = torch.tensor(list(wanted), device=device)
            query_LBHTD, key_LBGSD = (each.index_select(1, chosen) for each in (query_LBHTD, key_LBGSD))
        num_layers, num_sequences, _, num_tokens, _ = query_LBHTD.shape
        num_positions = key_LBGSD.shape[3]  # up to the query of the last token, not the token itself
        start_B = [num_positions - num_tokens + 1 - num_prompt_tokens[number] for number in wanted.values()]
        valid_BS = torch.arange(num_positions, device=device) >= torch.tensor(start_B, device=device)[:, None]
        mask_BHTS = rows_of_mask(valid_BS, num_tokens, num_positions, device)
        assert mask_BHTS is not None
        rows_LBTS = attention_rows(
            query_LBHTD.flatten(0, 1),
            key_LBGSD.flatten(0, 1),
            mask_BHTS.repeat(num_layers, 1, 1, 1),
            scaling=self.scaling,
            softcap=self.softcap,
        ).unflatten(0, (num_layers, num_sequences))
        rows_BTS = torch.nn.functional.pad(rows_LBTS.mean(dim=0), (0, 1)).cpu()
        for number, start, rows_TS in zip(wanted.values(), start_B, rows_BTS, strict=True):
            yield number, rows_TS[:, start:]


def completions_of(processor: Any, token_ids: Sequence[list[int]]) -> list[list[dict[str, str]]]:
    """Responses as rewards take them: each the one message of a conversation."""
    texts = processor.batch_decode(token_ids, skip_special_tokens=True)
    return [[{"role": "assistant", "content": text}] for text in texts]


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
