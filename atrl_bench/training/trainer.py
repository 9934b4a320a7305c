"""TRL's GRPOTrainer with what it lacks, in its own extension points; its loss is used as it is.

Where this differs from TRL:
1. Completions and rewards are made before TRL's scoring pass, so groups without an advantage are known in time:
   dynamic sampling replaces them, token credit skips them. TRL's own method then finds both ready.
2. Token credit: attention rows are recorded in the pass that computes the old log-probabilities or, with one update a
   rollout, where TRL has no such pass, in the training pass (the same policy). Advantages become (B, T).
3. GSPO in its token form, FT-RL's mean over selected tokens, REINFORCE's sum over tokens: two inputs of the loss are
   set after its forward pass.
4. Every rollout seeds its randomness from (run seed, rollout), so a resumed run repeats the interrupted one.
5. Where the model is whole on a device, a group is sampled from one prefill; where it is sharded TRL generates, a slice
   of the rollout at a time.
6. Rows go through the model by length, without the padding they do not need; the result is TRL's up to rounding.
7. Videos, which TRL does not have, travel beside its batch and join its call of the model (training/visual.py).

Shapes: B responses, T response tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import torch
from accelerate.utils import gather, gather_object, set_seed
from torch import Tensor
from trl import GRPOTrainer
from trl.models.utils import unwrap_model_for_generation

from atrl_bench.credit import Recording
from atrl_bench.models.decoding import Sampling
from atrl_bench.models.mrope import put_words_after_videos
from atrl_bench.profiles import TrainingSizes
from atrl_bench.training.data import TrainingData
from atrl_bench.training.dynamic_sampling import is_mixed, refill
from atrl_bench.training.group_sampling import sample_groups, sequences_at_once
from atrl_bench.training.length_batching import Part, joined, parts_of
from atrl_bench.training.multimodal import (
    Visual,
    read_prompt,
    seeing,
    split_by_prompt,
    token_types,
    visual_positions,
    with_media,
)
from atrl_bench.training.multimodal import joined as joined_visuals
from atrl_bench.training.objectives import gspo_token_reference, items_for_selected_mean, items_for_token_sums
from atrl_bench.training.order import further_problems, rollout_seed
from atrl_bench.training.recipe import RolloutRecipe
from atrl_bench.training.resumable import Resumable
from atrl_bench.training.weights.credit import TokenWeights

# Two passes over shorter rows beat one over longer ones from about here on.
MIN_ROWS_TO_HALVE = 16


@dataclass
class Group:
    """The G responses to one problem, as TRL's `_generate` returns them, with their rewards."""

    row: int
    inputs: list[dict[str, Any]]
    generated: tuple[list[Any] | None, ...]
    rewards_GF: Tensor
    visual: Visual | None = None  # the prompt's images and videos, in a run that has videos


class CreditTrainer(Resumable, GRPOTrainer):
    """GRPOTrainer on rows of a TrainingData, with token credit, dynamic sampling and resumable rollouts."""

    def __init__(
        self,
        *,
        recipe: RolloutRecipe,
        data: TrainingData,
        sizes: TrainingSizes,
        run_seed: int,
        updates_per_rollout: int,
        trim_padding: bool = True,
        **trl: Any,
    ) -> None:
        super().__init__(**trl)
        self.prepare_run(data=data, updates_per_rollout=updates_per_rollout)
        self.recipe, self.sizes = recipe, sizes
        self.run_seed = run_seed
        self.trim_padding = trim_padding
        self._groups: list[Group] | None = None
        self._keys_P: list[str] = []  # what names the random numbers of each prompt about to be sampled
        self._has_videos = any(problem.videos for problem in data.problems)
        self._visuals_P: list[Visual] = []  # of the prompts about to be sampled, in a run that has videos
        if self._has_videos:
            self._see_videos()
        self._from_one_prefill = not (self.is_fsdp_enabled or self.is_deepspeed_enabled)
        self._loss_inputs: dict[str, Any] | None = None
        self._weights_BT: Tensor | None = None
        uniform = recipe.credit.rule == "uniform"
        self.token_weights = None if uniform else TokenWeights(recipe.credit, self.model, self._tokenizer, run_seed)
        self._gspo_token = recipe.objective == "gspo" and not uniform

    def _see_videos(self) -> None:
        if self.ref_model is not None:  # TRL has loaded it; ours stands in for the positions of the policy's
            put_words_after_videos(self.accelerator.unwrap_model(self.ref_model))

    # One rollout ------------------------------------------------------------------------------------------------------

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        rollout = self.state.global_step // self.updates_per_rollout
        set_seed(rollout_seed(self.run_seed, rollout) + self.accelerator.process_index)
        rows = [example["row"] for example in inputs[:: self.num_generations]]
        self._groups = self._sample_groups(rows, rollout)
        try:
            examples = [example for group in self._groups for example in group.inputs]
            if self._has_videos:  # what is seen is in the groups; TRL would look for images alone
                examples = [{name: example[name] for name in example if name != "images"} for example in examples]
            with self.clock.phase("batching"):
                batch = super()._generate_and_score_completions(examples)
        finally:
            groups, self._groups = self._groups, None
        if self._has_videos:
            batch["visuals"] = _visuals_of(groups)
        batch["advantages"] = self._advantages(batch, groups)
        if self.token_weights is not None:
            if self._weights_BT is not None:
                batch["advantages"] = per_token(batch["advantages"]) * self._weights_BT
                self._weights_BT = None
                self._log_credit(self.token_weights)
            else:  # no scoring pass under this schedule: `_compute_loss` will record the training pass
                batch["transcription"] = [example["transcription"] for group in groups for example in group.inputs]
        return batch

    def _advantages(self, batch: dict[str, Any], groups: Sequence[Group]) -> Tensor:
        """Return the advantages, (B,) or (B, T), before any credit: TRL's, which are relative to the group."""
        return batch["advantages"]

    def _needs_credit(self, group: Group) -> bool:
        """Return whether the group has an advantage that a credit could change."""
        return is_mixed(self._total_rewards(group))

    def _sample_groups(self, rows: Sequence[int], rollout: int) -> list[Group]:
        groups = self._generate_groups(rows, f"{rollout}:0")
        accuracy = self.reward_func_names.index("accuracy")
        correct = torch.cat([group.rewards_GF[:, accuracy].clamp(min=0) for group in groups])
        # Of the rollout's own problems, before any is replaced: what dynamic sampling leaves says little of the policy.
        self._note("accuracy", gather(correct).mean().item())
        settings = self.recipe.dynamic_sampling
        if settings is None:
            return groups
        # Those of every process: they deal one list among them, so each has to shuffle the same one.
        unused = further_problems(len(self.data.problems), gather_object(list(rows)), self.run_seed, rollout)
        process, num_processes = self.accelerator.process_index, self.accelerator.num_processes

        def draw(count: int, generation: int) -> list[Group]:
            together = [next(unused) for _ in range(count * num_processes)]
            return self._generate_groups(together[process * count : (process + 1) * count], f"{rollout}:{generation}")

        refilled = refill(
            groups,
            lambda group: group.rewards_GF[:, accuracy].tolist(),
            draw,
            settings,
            most_missing=lambda missing: max(gather_object([missing])),
        )
        for name in ("num_generations", "num_dropped", "num_unfilled"):
            self._note(f"dynamic_sampling/{name}", getattr(refilled, name))
        return refilled.groups

    def _generate_groups(self, rows: Sequence[int], key: str) -> list[Group]:
        """Return one group per problem: TRL's generation and rewards, before TRL's scoring."""
        self._keys_P = [f"{key}:{row}" for row in rows]
        size = self.num_generations
        examples = [self.data.example(row, self.run_seed) for row in rows]
        inputs = [example for example in examples for _ in range(size)]
        prompts = [with_media(example["prompt"], example["images"], example["videos"]) for example in inputs]
        with self.clock.phase("generation"):
            generated = super()._generate(prompts)
        prompt_ids, completion_ids, completions = generated[0], generated[1], generated[3]
        del prompt_ids
        with self.clock.phase("reward"):
            rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids)
        start = self.accelerator.process_index * len(inputs)
        local = rewards[start : start + len(inputs)]
        return [
            Group(
                row=row,
                inputs=inputs[part],
                generated=tuple(field[part] if isinstance(field, list) and field else field for field in generated),
                rewards_GF=local[part],
                visual=visual,
            )
            for row, part, visual in zip(
                rows,
                (slice(i, i + size) for i in range(0, len(inputs), size)),
                self._visuals_P or repeat(None),
                strict=False,
            )
        ]

    def _generate(self, prompts: list[Any]) -> tuple[Any, ...]:
        """Return the completions of the groups at hand in the form of TRL's method of this name."""
        if self._groups is None:
            return super()._generate(prompts)
        fields = zip(*(group.generated for group in self._groups), strict=True)
        return tuple(
            [item for part in field for item in part] if isinstance(field[0], list) else field[0] for field in fields
        )

    def _tokenize_prompts(self, prompts: list[Any]) -> tuple[list[list[int]], Any, dict[str, Any]]:
        """Return TRL's result, with the multimodal fields of each prompt once."""
        size = self.num_generations
        if self._has_videos:
            prompt_ids_P = self._read_prompts(prompts[::size])
            return _repeated(prompt_ids_P, size), None, self._video_fields(prompt_ids_P)
        prompt_ids, images, fields = super()._tokenize_prompts(prompts[::size])
        return _repeated(prompt_ids, size), images and _repeated(images, size), fields

    def _read_prompts(self, prompts: Sequence[Any]) -> list[list[int]]:
        """Return the tokens of each prompt, and remember its images and videos."""
        read = [read_prompt(self.processing_class, prompt, self.model.dtype) for prompt in prompts]
        self._visuals_P = [visual for _, visual in read]
        return [ids for ids, _ in read]

    def _video_fields(self, prompt_ids_P: Sequence[list[int]]) -> dict[str, Any]:
        """Return what TRL hands on to `_generate_single_turn` beside the tokens; what is seen is remembered."""
        return {"mm_token_type_ids": [self._token_types(torch.tensor(ids)).tolist() for ids in prompt_ids_P]}

    def _token_types(self, input_ids: Tensor) -> Tensor:
        return token_types(input_ids, self._image_pad_token_id, self._video_pad_token_id)

    def _generate_single_turn(
        self, prompt_ids: Any, images: Any, multimodal_fields: Any, num_generations: int, **options: Any
    ) -> tuple[list[list[int]], Any]:
        token_fields = {name: value for name, value in multimodal_fields.items() if not isinstance(value, Tensor)}
        num_images_P = [len(images[i] or []) if images else 0 for i in range(0, len(prompt_ids), num_generations)]
        visuals_P = self._visuals_P or split_by_prompt(multimodal_fields, num_images_P)
        if not self._from_one_prefill:
            return self._generate_in_slices(prompt_ids, token_fields, visuals_P, num_generations), None
        sampling = Sampling(self.max_completion_length, self.temperature, self.top_p, self.run_seed)
        with (
            unwrap_model_for_generation(
                self.model_wrapped,
                self.accelerator,
                gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs,
            ) as model,
            self.accelerator.autocast(),
        ):
            responses = sample_groups(
                model,
                prompt_ids[::num_generations],
                token_fields,
                visuals_P,
                self._keys_P,
                group_size=num_generations,
                dtype=getattr(torch, self.sizes.dtype),
                sampling=sampling,
                pad_id=self._tokenizer.pad_token_id,
                eos_ids=self.eos_token_ids,
                forbidden_ids=[i for i in (self._image_pad_token_id, self._video_pad_token_id) if i is not None],
            )
        return responses, None

    def _generate_in_slices(
        self,
        prompt_ids: Sequence[list[int]],
        token_fields_P: Mapping[str, Sequence[list[int]]],
        visuals_P: Sequence[Visual],
        group_size: int,
    ) -> list[list[int]]:
        """Return TRL's responses, made slice by slice: the keys and values of a whole rollout fit no device.

        Devices that share a model generate together, so the longest prompt of all decides, and all make as many slices.
        """
        longest = max(gather_object([max(map(len, prompt_ids))])) + self.max_completion_length
        at_once = sequences_at_once(self.model.config, longest, getattr(torch, self.sizes.dtype))
        token_fields = {name: _repeated(rows_P, group_size) for name, rows_P in token_fields_P.items()}
        visuals, responses = _repeated(visuals_P, group_size), []
        for start in range(0, len(prompt_ids), at_once):
            part = slice(start, start + at_once)
            fields = {name: rows[part] for name, rows in token_fields.items()}
            tensors = joined_visuals(visuals[part], self.accelerator.device)
            made, _ = super()._generate_single_turn(prompt_ids[part], None, {**fields, **tensors}, group_size)
            responses += made
        return responses

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Tensor:
        if self._groups is None:
            return super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        return gather(torch.cat([group.rewards_GF for group in self._groups]))

    # Scoring and loss -------------------------------------------------------------------------------------------------

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return TRL's result, computed part by part; a part whose rows are recorded gets its token weights at once."""
        inputs = self._loss_inputs
        if inputs is None:
            groups = self._groups or []
            weigher = self.token_weights if groups and self._is_old_policy_pass() else None
            needed = [self._needs_credit(group) for group in groups for _ in group.inputs]
            transcriptions = [example["transcription"] for group in groups for example in group.inputs]
            size = batch_size or len(input_ids)
        else:
            weigher = self.token_weights if "transcription" in inputs else None
            needed = per_token(inputs["advantages"]).any(1).tolist() if weigher else []
            transcriptions = inputs.get("transcription", [])
            size = self._training_part(len(input_ids))
        batch = {"input_ids": input_ids, "attention_mask": attention_mask} | {
            name: value for name, value in options.items() if isinstance(value, Tensor | list)
        }
        flags = {name: value for name, value in options.items() if name not in batch and value is not None}
        visuals = inputs.get("visuals") if inputs is not None else _visuals_of(self._groups or [])
        if visuals:
            batch |= {"mm_token_type_ids": self._token_types(input_ids), "visuals": visuals}
        if weigher is not None:
            batch |= {"needed": needed, "transcriptions": transcriptions}
            flags["compute_entropy"] = flags.get("compute_entropy", False) or weigher.needs_entropy
        parts = parts_of(batch, logits_to_keep, size, trim=self.trim_padding)
        logprobs, entropies, weights = [], [], []
        with self.clock.phase("scoring") if inputs is None else nullcontext():
            for part in parts:
                part_needed, part_transcriptions = part.batch.pop("needed", []), part.batch.pop("transcriptions", [])
                part_visuals = part.batch.pop("visuals", None)
                called = seeing(model, part_visuals, input_ids.device) if part_visuals else model
                with nullcontext() if weigher is None else weigher.record(part.num_tokens) as recording:
                    logprobs_Bt, entropy_Bt, _ = super()._get_per_token_logps_and_entropies(
                        called, logits_to_keep=part.num_tokens, **part.batch, **flags
                    )
                logprobs.append(logprobs_Bt)
                entropies.append(entropy_Bt)
                if weigher is not None and recording is not None:
                    self.clock.add("attention_rows", recording.seconds)
                    with self.clock.phase("credit"):
                        visual_BS = visual_positions(part.batch, self.model.config)
                        weights.append(
                            _weigh(weigher, recording, part, visual_BS, entropy_Bt, part_needed, part_transcriptions)
                        )
        logprobs_BT = joined(logprobs, parts, logits_to_keep)
        entropy_BT = None if entropies[0] is None else joined(entropies, parts, logits_to_keep)
        weights_BT = joined(weights, parts, logits_to_keep, fill=1.0) if weights else None
        if inputs is None:
            self._weights_BT = weights_BT if weights_BT is not None else self._weights_BT
        else:
            self._set_loss_inputs(inputs, logprobs_BT, weights_BT)
        return logprobs_BT, entropy_BT, None

    def _is_old_policy_pass(self) -> bool:
        """Return whether the pass at hand is TRL's first of two, over the policy and then over the reference."""
        generate_every = self.args.steps_per_generation * self.num_iterations
        has_old_pass = self.args.gradient_accumulation_steps % generate_every != 0
        return has_old_pass and self._weights_BT is None

    def _training_part(self, num_rows: int) -> int:
        """Return how many rows go through the model at a time: all, or half where that costs no second reduction."""
        halves = self.trim_padding and self.accelerator.num_processes == 1 and num_rows >= MIN_ROWS_TO_HALVE
        return math.ceil(num_rows / 2) if halves else num_rows

    def _set_loss_inputs(self, inputs: dict[str, Any], logprobs_BT: Tensor, weights_BT: Tensor | None) -> None:
        """Set those inputs of TRL's loss that depend on its forward pass, before it reads them."""
        if self.token_weights is not None and weights_BT is not None:
            inputs["advantages"] = per_token(inputs["advantages"]) * weights_BT
            self._log_credit(self.token_weights)
        if self.recipe.objective == "reinforce":
            num_responses = len(logprobs_BT) * self.accelerator.num_processes
            items = items_for_token_sums(num_responses, self.args.steps_per_generation)
            inputs["num_items_in_batch"] = items.to(logprobs_BT.device)
        if self._gspo_token and "old_per_token_logps" in inputs:
            inputs["old_per_token_logps"] = gspo_token_reference(
                logprobs_BT, inputs["old_per_token_logps"], inputs["completion_mask"]
            )

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        # A copy: the batch is kept for reuse, and what is set here belongs to this forward pass alone.
        self._loss_inputs = dict(inputs)
        try:
            return super()._compute_loss(model, self._loss_inputs)
        finally:
            self._loss_inputs = None

    def get_high_entropy_mask(self, entropies: Tensor, mask: Tensor, threshold: float) -> Tensor:
        """Return TRL's mask of the tokens above the entropy quantile, and make the loss a mean over them."""
        selected_BT = super().get_high_entropy_mask(entropies, mask, threshold)
        if self._loss_inputs is not None:
            num_selected = gather(selected_BT.sum()).sum()
            self._loss_inputs["num_items_in_batch"] = items_for_selected_mean(
                num_selected, self.args.steps_per_generation
            )
        return selected_BT

    # Metrics ----------------------------------------------------------------------------------------------------------

    def _total_rewards(self, group: Group) -> list[float]:
        return (group.rewards_GF * self.reward_weights.to(group.rewards_GF.device)).nansum(1).tolist()

    def _log_credit(self, token_weights: TokenWeights) -> None:
        for name, value in token_weights.pop_diagnostics().items():
            self._note(name, value)

    def release(self) -> None:
        """Give the model its own attention function back, before it is saved."""
        if self.token_weights is not None:
            self.token_weights.remove()


def _weigh(
    weigher: TokenWeights,
    recording: Recording,
    part: Part,
    visual_BS: Tensor,
    entropy_Bt: Tensor | None,
    needed: Sequence[bool],
    transcriptions: Sequence[str | None],
) -> Tensor:
    input_ids, attention_mask = part.batch["input_ids"], part.batch["attention_mask"]
    return weigher.weights(
        recording,
        attention_mask_BS=attention_mask,
        visual_BS=visual_BS,
        response_ids_BT=input_ids[:, -part.num_tokens :],
        response_mask_BT=attention_mask[:, -part.num_tokens :],
        entropy_BT=entropy_Bt,
        needed_B=needed,
        transcriptions=transcriptions,
    )


def _visuals_of(groups: Sequence[Group]) -> list[Visual]:
    """Return what each response's prompt shows, in a run that has videos."""
    return [group.visual for group in groups if group.visual is not None for _ in group.inputs]


def per_token(advantages: Tensor) -> Tensor:
    """Return advantages of responses as a column, those of tokens as they are."""
    return advantages.unsqueeze(1) if advantages.ndim == 1 else advantages


def _repeated(items: Sequence[Any], times: int) -> list[Any]:
    return [item for item in items for _ in range(times)]
