"""The G responses to each problem of a rollout, from one prefill of its prompt.

A prompt could be handed to `generate` G times; on a small model half of that time is the same prefill over again. The
decoding of the evaluation reads each prompt once, and its random numbers are keyed by what is drawn and not by what was
drawn before, so a resumed run draws what the interrupted one would have drawn.

Shapes: P prompts, G responses each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from atrl_bench.models.decoding import Draw, SampledTokens, Sampling, sample
from atrl_bench.profiles import TrainingSizes
from atrl_bench.training.arguments import SAMPLER_GB
from atrl_bench.training.multimodal import PromptBatch, joined_visuals, padded


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
) -> tuple[list[list[int]], list[list[float]] | None]:
    """P * G responses as token ids, group by group, each with the token that ended it; and log-probabilities."""
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
        answers += sample(model, inputs, draws, eos_ids, sampling, with_logprobs=with_logprobs)
    token_ids = [[*one.token_ids, one.end] if one.end is not None else list(one.token_ids) for one in answers]
    return token_ids, [list(one.logprobs) for one in answers] if with_logprobs else None


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
