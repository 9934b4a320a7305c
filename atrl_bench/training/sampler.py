"""Responses by the policy itself: from one prefill of each prompt, or in slices where devices share the model.

Shapes: P prompts, G responses to each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import GenerationConfig

from atrl_bench.models.decoding import without_media_tokens
from atrl_bench.profiles import TrainingSizes
from atrl_bench.training.group_sampling import prompt_inputs, sample_groups, sequences_at_once
from atrl_bench.training.multimodal import PromptBatch, joined_visuals
from atrl_bench.training.shared_prompts import without_recomputing

Sampled = tuple[list[list[int]], list[list[float]] | None]  # token ids, and their log-probabilities where they are told


class Sampler:
    """Samples from a model that accelerate has prepared."""

    def __init__(
        self,
        accelerator: Any,
        sizes: TrainingSizes,
        *,
        run_seed: int,
        pad_id: int,
        eos_ids: Sequence[int],
        is_sharded: bool,
        recomputing: Mapping[str, Any] | None,
    ) -> None:
        self._accelerator, self._sizes, self._run_seed = accelerator, sizes, run_seed
        self._pad_id, self._eos_ids, self._recomputing = pad_id, list(eos_ids), recomputing
        self.from_one_prefill = not is_sharded

    def sample(self, model: Any, prompts: PromptBatch, group_size: int, *, with_logprobs: bool = False) -> Sampled:
        """P * G responses as token ids, group by group, each with the token that ended it."""
        model = self._accelerator.unwrap_model(model)
        with torch.no_grad(), without_recomputing(model, self._recomputing), self._accelerator.autocast():
            if not self.from_one_prefill:
                return self._in_slices(model, prompts, group_size), None
            return sample_groups(
                model,
                prompts,
                self._sizes,
                group_size=group_size,
                run_seed=self._run_seed,
                pad_id=self._pad_id,
                eos_ids=self._eos_ids,
                with_logprobs=with_logprobs,
            )

    def _in_slices(self, model: Any, prompts: PromptBatch, group_size: int) -> list[list[int]]:
        """Responses by `generate`, slice by slice: the keys and values of a whole rollout fit no device.

        Devices that share a model generate together, so the longest prompt of all decides, and all make as many slices.
        """
        sizes, rows = self._sizes, [p for p in range(len(prompts.keys_P)) for _ in range(group_size)]
        longest = max(gather_object([max(map(len, prompts.token_ids_P))])) + sizes.max_response_tokens
        at_once = sequences_at_once(model.config, longest, getattr(torch, sizes.dtype))
        settings = GenerationConfig(
            max_new_tokens=sizes.max_response_tokens,
            do_sample=True,
            temperature=sizes.temperature,
            top_p=sizes.top_p,
            top_k=0,
            repetition_penalty=1.0,
            pad_token_id=self._pad_id,
            eos_token_id=self._eos_ids,
            disable_compile=True,
        )
        responses: list[list[int]] = []
        with without_media_tokens(model), _generating_by(model, settings):
            for start in range(0, len(rows), at_once):
                part = rows[start : start + at_once]
                fields = {name: [rows_P[p] for p in part] for name, rows_P in prompts.token_fields_P.items()}
                inputs = prompt_inputs(
                    [prompts.token_ids_P[p] for p in part], fields, self._pad_id, self._accelerator.device
                )
                inputs |= joined_visuals([prompts.visuals_P[p] for p in part], self._accelerator.device)
                answered = model.generate(**inputs, generation_config=settings)[:, inputs["input_ids"].shape[1] :]
                responses += [self._ended(ids) for ids in answered.tolist()]
        return responses

    def _ended(self, token_ids: list[int]) -> list[int]:
        """The tokens up to the first that ends a response; behind it there is padding."""
        ends = (place for place, token in enumerate(token_ids) if token in self._eos_ids)
        return token_ids[: next(ends, len(token_ids) - 1) + 1]


@contextmanager
def _generating_by(model: Any, settings: GenerationConfig) -> Iterator[None]:
    """Take these settings for the model's own, which `generate` adds to those it is given where they are the usual."""
    before, model.generation_config = model.generation_config, settings
    try:
        yield
    finally:
        model.generation_config = before
