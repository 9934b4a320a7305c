"""TRL's GRPOTrainer with what it lacks, in its own extension points.

A rollout reads from top to bottom in `_generate_and_score_completions`: sample, reward, score, advantage, credit. The
loss of each update on it is `_compute_loss`, by the formulas of losses.py; a test holds it to TRL's bit for bit. What
travels between them through TRL is in `rollout_state.py`.

Where this differs from TRL:
1. Completions and rewards are made before TRL's scoring passes, so groups without an advantage are known in time:
   dynamic sampling replaces them, token credit skips them. TRL's own method then finds both ready.
2. Token credit: attention rows are recorded in the pass that computes the old log-probabilities or, with one update a
   rollout, where TRL has no such pass, in the training pass (the same policy). Advantages become (B, T).
3. Advantages may come from a critic, and other token weights multiply them beside the credit. Both may make passes of
   their own over a rollout (`score`).
4. GSPO in its token form, FT-RL's mean over selected tokens, REINFORCE's sum over tokens, VPPO's entropy penalty.
5. Every rollout seeds its randomness from (run seed, rollout), so a resumed run repeats the interrupted one.
6. Where the model is whole on a device, a group is sampled from one prefill; where it is sharded TRL generates, a slice
   of the rollout at a time; or vLLM samples (vllm_sampler.py), and is compared with the trainer.
   Where nothing else needs a pass over the responses, the sampler's log-probabilities are kept (sampler_check.py).
7. A prompt that responses of a micro-batch share goes through the model once (shared_prompts.py); where that cannot be,
   rows go through by length, without the padding they do not need. The result is TRL's up to rounding.
8. On several processes each problem is answered by one of them, then all have all answers, and every update sees those
   that it would see on one process (dealing.py).
9. Images and videos, each read once, travel beside TRL's batch and join its call of the model (multimodal.py). TRL has
   no videos; images are in its batch where prompts are not shared, and for VPPO, which hides parts of them.

Shapes: B responses, T response tokens, P prompts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial, reduce
from inspect import signature
from itertools import cycle, islice, repeat
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather, gather_object, is_peft_model, set_seed
from torch import Tensor
from trl import GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing, unwrap_model_for_generation
from trl.trainer.utils import add_fused_lm_head

from atrl_bench.credit.rule import needs_of
from atrl_bench.credit.rules import credit_rule
from atrl_bench.credit.trl import CreditedModel, credited
from atrl_bench.models.attention import prefer_flash_attention
from atrl_bench.models.decoding import without_media_tokens
from atrl_bench.models.mrope import put_words_after_videos
from atrl_bench.profiles import Rollouts
from atrl_bench.training.advantages import GroupRelative
from atrl_bench.training.advantages.gae import Critic, GeneralisedAdvantages
from atrl_bench.training.dealing import dealt
from atrl_bench.training.dynamic_sampling import is_mixed, refill
from atrl_bench.training.group_sampling import sample_groups, sequences_at_once
from atrl_bench.training.length_batching import joined, parts_of
from atrl_bench.training.losses import (
    are_clipped,
    importance_ratio,
    k3,
    mean_of_means,
    mean_of_sums,
    policy_loss,
    token_mean,
)
from atrl_bench.training.multimodal import (
    PromptBatch,
    joined_visuals,
    media_of,
    read_prompts,
    split_by_prompt,
    token_types,
    with_media,
)
from atrl_bench.training.order import further_problems, rollout_seed
from atrl_bench.training.recipe import RolloutRecipe
from atrl_bench.training.resumable import Resumable
from atrl_bench.training.rewards import GroupReward
from atrl_bench.training.rollout_state import (
    IMAGES,
    LOGPROBS,
    PassName,
    ResponseGroup,
    RolloutState,
    SampledResponse,
    ScoringPass,
)
from atrl_bench.training.sampler_check import (
    LogprobDifferences,
    agree,
    as_tensor,
    differences,
    left_by_correction,
    num_media_tokens,
    require_proper_end,
    require_same_policy,
    require_same_prompt,
)
from atrl_bench.training.sharding import put_away, sharded_reference, shards_models
from atrl_bench.training.shared_prompts import SharedPrompts, keep_prompts, recompute, why_not
from atrl_bench.training.trainer_inputs import TrainerInputs
from atrl_bench.training.vllm_sampler import VLLMSampler
from atrl_bench.training.weights import TokenWeighting
from atrl_bench.training.weights.credit import credit_weights
from atrl_bench.training.weights.dependency import DependencyWeights

# Two passes over shorter rows beat one over longer ones from about here on.
MIN_ROWS_TO_HALVE = 16
ROLLOUT = "rollout-{}-of-{}.pt"  # a process's part, in a resume checkpoint between the updates on a rollout
# What TRL's batch has of a prompt's images.
MULTIMODAL_FIELDS = frozenset(signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters)


class CreditTrainer(Resumable, GRPOTrainer):
    """GRPOTrainer on rows of a TrainingData, with what a recipe combines: rewards, advantages, token weights."""

    def __init__(self, inputs: TrainerInputs[RolloutRecipe], **trl: Any) -> None:
        self.recipe = recipe = inputs.recipe
        self.sizes = recipe.sizes(inputs.profile)
        shards_reference = bool(recipe.kl_coef) and recipe.finetuning == "full" and shards_models()
        if shards_reference:
            trl["args"].beta = 0.0  # else TRL loads a reference of its own
        super().__init__(inputs, updates_per_rollout=recipe.updates_per_rollout(self.sizes), **trl)
        if shards_reference:
            self._load_reference()
        self.trim_padding = True
        self.from_one_prefill = not self.is_sharded
        # TRL has no videos, and would read every image again for each response. Who hides parts of an image needs the
        # pixels in the batch.
        hides_parts = recipe.vppo is not None or "blackened_logprob" in needs_of(credit_rule(recipe.credit.rule))
        is_known = why_not(self._unwrapped(self.model), is_sharded=False) is None
        self.carries_visuals = self.data.has_videos or (is_known and not hides_parts)
        if self.data.has_videos and self.ref_model is not None:  # TRL has loaded it, with positions unlike the policy's
            put_words_after_videos(self.accelerator.unwrap_model(self.ref_model))
        self._media_ids = (self._image_pad_token_id, self._video_pad_token_id)
        self._rollout_state = RolloutState()
        self.sampler_agrees: bool | None = None  # with a pass of the policy; None before the first rollout
        self.vllm: VLLMSampler | None = None
        if inputs.profile.rollouts.engine == "vllm":
            self._start_vllm(inputs.profile.rollouts)

        self.estimator = GroupRelative()
        if recipe.critic is not None:
            hidden_size, device = self.model.config.get_text_config().hidden_size, self.accelerator.device
            critic = Critic(recipe.critic, hidden_size, run_seed=self.run_seed, device=device)
            self.estimator = GeneralisedAdvantages(critic, recipe.kl_coef)
        uniform = recipe.credit.rule == "uniform"
        self.credit = (
            None if uniform else credit_weights(recipe.credit, self.model, self.processing_class, self.run_seed)
        )
        # Attention rows and other token weights need the pass that the sampler's log-probabilities would save.
        in_full = self.sizes.dtype == "float32"
        needs_pass = self.use_vllm or self.credit is not None or recipe.vppo is not None or recipe.critic is not None
        self.keeps_logprobs = in_full and self.from_one_prefill and self.is_off_policy and not needs_pass
        self.weightings: list[TokenWeighting] = []
        if recipe.vppo is not None:
            self.weightings.append(DependencyWeights(recipe.vppo, self.processing_class.image_processor))

    def _load_reference(self) -> None:
        base = self.model.config._name_or_path
        self.ref_model = sharded_reference(base, self.sizes.dtype, self.accelerator.device)
        prefer_flash_attention(self.ref_model, self.sizes.dtype)
        add_fused_lm_head(self.ref_model, temperature=self.temperature)
        self.beta = self.recipe.kl_coef

    @property
    def is_off_policy(self) -> bool:
        """Whether a rollout is trained on in several updates, all but the first by a policy that did not sample it."""
        return bool(self.args.gradient_accumulation_steps % (self.args.steps_per_generation * self.num_iterations))

    @property
    def rollout(self) -> int:
        return int(self.state.global_step // self.updates_per_rollout)

    def _start_vllm(self, settings: Rollouts) -> None:
        self.rollout_settings, self.use_vllm = settings, True
        self.vllm = VLLMSampler(
            self.model,
            self.accelerator,
            self.processing_class,
            settings=settings,
            sizes=self.sizes,
            num_media=self.data.most_media,
            media_ids=self._media_ids,
            eos_ids=self.eos_token_ids,
            num_responses=self.args.per_device_train_batch_size * self.args.steps_per_generation,
            run_seed=self.run_seed,
        )

    @property
    def in_step(self) -> bool:
        if self.vllm is not None:
            return self.vllm.mode == "server"
        return not self.from_one_prefill

    def end_vllm(self) -> None:
        if self.vllm is not None:
            self.vllm.close()
            self.vllm = None

    @contextmanager
    def _carrying(self, **fields: Any) -> Iterator[None]:
        """Let these fields of a RolloutState travel through TRL's methods inside the block."""
        before, self._rollout_state = self._rollout_state, RolloutState(**fields)
        try:
            yield
        finally:
            self._rollout_state = before

    # One rollout ------------------------------------------------------------------------------------------------------

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        seed = rollout_seed(self.run_seed, self.rollout)
        set_seed(seed + self.accelerator.process_index)
        rows = gather_object([example["row"] for example in inputs])[:: self.num_generations]
        groups = self._sampled_and_rewarded(rows, self.rollout)
        numbers = self._own_numbers(groups, seed)
        responses = self._own_responses(groups, numbers)
        batch, credit_BT = self._scored(groups, responses)
        if self.use_vllm:
            self._compare_sampler(batch)
            self._note_correction(batch)
        batch["advantages"] = gather(batch["advantages"])[numbers]  # TRL's are in the order of the rollout
        batch["advantages"] = self.estimator(batch, responses, self)
        if credit_BT is not None:
            batch["advantages"] = credited(batch["advantages"], credit_BT)
            self.note_credit()
        elif self.credit is not None:  # the training pass will record the rows, and `_compute_loss` multiply
            batch["truth"] = [response.example["truth"] for response in responses]
        if self.weightings:
            weights = [weighting(batch, responses, self) for weighting in self.weightings]
            batch["token_weights"] = reduce(torch.mul, weights)
        if not self.is_off_policy:  # TRL's pass for the correction; the ratio to the policy itself is one
            batch.pop("old_per_token_logps", None)
        torch.manual_seed(seed)  # TRL is about to shuffle the batch as `dealt` foresees it
        return batch

    def rollout_of(self, row: int) -> tuple[dict[str, Any], float]:
        """The scored batch of one problem's responses, and the share of them that are right."""
        batch = self._generate_and_score_completions([{"row": row}] * self.num_generations)
        return batch, self.take_note("accuracy")

    # Sampling and rewards ---------------------------------------------------------------------------------------------

    def _sampled_and_rewarded(self, rows: Sequence[int], rollout: int) -> list[ResponseGroup]:
        """A group for each problem of a rollout, or for others in place of those that dynamic sampling drops."""
        groups = self.generate(rows, f"{rollout}:0")
        correct = torch.cat([group.accuracies.clamp(min=0) for group in groups])
        # Of the rollout's own problems, before any is replaced: what dynamic sampling leaves says little of the policy.
        self.note("accuracy", correct.mean().item())
        if (settings := self.recipe.dynamic_sampling) is None:
            return groups
        unused = further_problems(len(self.data.problems), rows, self.run_seed, rollout)
        refilled = refill(
            groups,
            lambda group: group.accuracies.tolist(),
            lambda count, number: self.generate(list(islice(unused, count)), f"{rollout}:{number}"),
            settings,
        )
        for name in ("num_generations", "num_dropped", "num_unfilled"):
            self.note(f"dynamic_sampling/{name}", getattr(refilled, name))
        return refilled.groups

    def generate(self, rows: Sequence[int], key: str) -> list[ResponseGroup]:
        """One group per problem, each generated by one process; all processes generate equally many.

        TRL gathers tensors of equal size, and devices that share a model generate in step: where the problems do not
        come out even some are answered twice, with the same random numbers.
        """
        process, count = self.accelerator.process_index, self.accelerator.num_processes
        each = math.ceil(len(rows) / count)
        start = process * each
        own = self._generate_groups(list(islice(cycle(rows), each * count))[start : start + each], key)
        if count == 1:
            return own
        own = [replace(group, process=process) for group in own]
        groups = gather_object([group.without_media() for group in own])
        for group in groups:
            group.rewards_GF = group.rewards_GF.to(self.accelerator.device)
        groups[start : start + each] = own
        return groups[: len(rows)]

    def _own_numbers(self, groups: Sequence[ResponseGroup], seed: int) -> list[int]:
        """Which of the rollout's responses this process trains on, in the order that TRL is given."""
        owners_R = [group.process for group in groups for _ in range(self.num_generations)]
        shares = dealt(owners_R, self.accelerator.num_processes, self.updates_per_rollout, seed)
        return shares[self.accelerator.process_index]

    def _own_responses(self, groups: Sequence[ResponseGroup], numbers: Sequence[int]) -> list[SampledResponse]:
        """These responses of the rollout; what the prompt of another process's group shows is read here."""
        size = self.num_generations
        here = {index: self._with_media(groups[index]) for index in sorted({number // size for number in numbers})}
        return [SampledResponse(here[number // size], number) for number in numbers]

    def _with_media(self, group: ResponseGroup) -> ResponseGroup:
        if group.inputs:
            return group
        example, visual = self.data.example(group.row, self.run_seed), None
        if self.carries_visuals:
            messages = with_media(example["prompt"], example["images"], example["videos"])
            visual = self.read([messages], [group.key]).visuals_P[0]
        return replace(group, inputs=[example] * self.num_generations, visual=visual)

    def _generate_groups(self, rows: Sequence[int], key: str) -> list[ResponseGroup]:
        """One group per problem: TRL's generation and rewards, before TRL's scoring."""
        size = self.num_generations
        examples = [self.data.example(row, self.run_seed) for row in rows]
        messages_P = [with_media(example["prompt"], example["images"], example["videos"]) for example in examples]
        inputs, messages = _repeated(examples, size), _repeated(messages_P, size)
        with self.clock.phase("generation"):
            prompts = self.read(messages_P, [f"{key}:{row}" for row in rows])
            with self._carrying(prompts=prompts):
                generated = super()._generate(messages)
        with self.clock.phase("reward"):  # from the completions and their tokens
            rewards = super()._calculate_rewards(inputs, messages, generated[3], generated[1])
        own = rewards[self.accelerator.process_index * len(inputs) :]
        groups = []
        for index, row in enumerate(rows):
            part = slice(index * size, (index + 1) * size)
            fields = tuple(field[part] if isinstance(field, list) and field else field for field in generated)
            visual = prompts.visuals_P[index] if self.carries_visuals else None
            groups.append(ResponseGroup(row, prompts.keys_P[index], inputs[part], fields, own[part], visual))
        for column, reward in enumerate(self.reward_funcs):
            if isinstance(reward, GroupReward):
                for group, rewards_G in zip(groups, reward.of_groups(groups, self), strict=True):
                    group.rewards_GF[:, column] = rewards_G
        return groups

    def respond(self, messages_P: Sequence[Any], keys_P: Sequence[str], size: int) -> list[list[dict[str, str]]]:
        with self._carrying(prompts=self.read(messages_P, keys_P)):
            token_ids, _ = self._generate_single_turn(None, None, None, size)
        texts = self.processing_class.batch_decode(token_ids, skip_special_tokens=True)
        return [[{"role": "assistant", "content": text}] for text in texts]

    def read(self, messages_P: Sequence[Any], keys_P: Sequence[str]) -> PromptBatch:
        """What the processor makes of the prompts; TRL asks it, but for videos, which it does not have."""
        if self.data.has_videos:
            return read_prompts(self.processing_class, messages_P, keys_P, self.model.dtype, self._media_ids)
        ids_P, images_P, fields = super()._tokenize_prompts(list(messages_P))
        num_images_P = [len(images or []) for images in images_P or repeat(None, len(ids_P))]
        token_fields_P = {name: value for name, value in fields.items() if not isinstance(value, Tensor)}
        visuals_P, media_P = split_by_prompt(fields, num_images_P), [media_of(messages) for messages in messages_P]
        return PromptBatch(list(keys_P), ids_P, token_fields_P, visuals_P, media_P, images_P)

    def _tokenize_prompts(self, prompts: list[Any]) -> tuple[list[list[int]], Any, dict[str, Any]]:
        """The prompts that have been read in the form of TRL's method of this name."""
        batch, size = self._rollout_state.prompts, self.num_generations
        assert batch is not None
        return _repeated(batch.token_ids_P, size), batch.images_P and _repeated(batch.images_P, size), {}

    def _generate_single_turn(
        self, prompt_ids: Any, images: Any, multimodal_fields: Any, num_generations: int, **options: Any
    ) -> tuple[list[list[int]], Any]:
        prompts = self._rollout_state.prompts
        assert prompts is not None
        if self.vllm is not None:
            return self._generate_by_vllm(self.vllm, prompts, num_generations)
        if not self.from_one_prefill:
            return self._generate_in_slices(prompts, num_generations), None
        with (
            unwrap_model_for_generation(
                self.model_wrapped,
                self.accelerator,
                gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs,
            ) as model,
            self.accelerator.autocast(),
        ):
            responses, logprobs = sample_groups(
                model,
                prompts,
                self.sizes,
                group_size=num_generations,
                run_seed=self.run_seed,
                pad_id=self._tokenizer.pad_token_id,
                eos_ids=self.eos_token_ids,
                with_logprobs=self.keeps_logprobs,
            )
        return responses, logprobs

    def _generate_by_vllm(
        self, vllm: VLLMSampler, prompts: PromptBatch, group_size: int
    ) -> tuple[list[list[int]], list[list[float]]]:
        """Responses and their log-probabilities, none to another prompt and none that ends elsewhere."""
        with self.clock.phase("weights_to_vllm"):
            vllm.load(self.state.global_step)
        responses = vllm.sample(prompts, group_size)
        for response, token_ids in zip(responses, _repeated(prompts.token_ids_P, group_size), strict=True):
            require_same_prompt(response.prompt_ids, token_ids, self._media_ids)
            require_proper_end(response.token_ids, self.eos_token_ids, self.max_completion_length)
            self.note("sampling/media_tokens", num_media_tokens(response.prompt_ids, self._media_ids))
            self.note("sampling/ended", response.token_ids[-1] in self.eos_token_ids)
        return [response.token_ids for response in responses], [response.logprobs for response in responses]

    def _compare_sampler(self, batch: Mapping[str, Any]) -> None:
        """Raise, on all processes, unless vLLM samples from the policy that has just scored the responses."""
        own = differences(batch["sampling_per_token_logps"], batch["old_per_token_logps"], batch["completion_mask"])
        means, largest = zip(*gather_object([own]), strict=True)
        apart = LogprobDifferences(math.fsum(means) / len(means), max(largest))
        require_same_policy(apart, self.sizes.dtype, self.rollout_settings.max_logprob_difference, self.rollout)

    def _note_correction(self, batch: dict[str, Any]) -> None:
        """Note what the correction leaves of this process's part of the rollout; take it away if none is wanted."""
        ratio_BT = batch["importance_sampling_ratio"]
        masked, effective = left_by_correction(ratio_BT, batch["completion_mask"])
        if self.rollout_settings.correction == "none":
            del batch["importance_sampling_ratio"]
            masked, effective = 0.0, 1.0
        self.note("sampling/masked", masked)
        self.note("sampling/effective_share", effective)

    def _generate_in_slices(self, prompts: PromptBatch, group_size: int) -> list[list[int]]:
        """TRL's responses, made slice by slice: the keys and values of a whole rollout fit no device.

        Devices that share a model generate together, so the longest prompt of all decides, and all make as many slices.
        """
        prompt_ids = _repeated(prompts.token_ids_P, group_size)
        longest = max(gather_object([max(map(len, prompt_ids))])) + self.max_completion_length
        at_once = sequences_at_once(self.model.config, longest, getattr(torch, self.sizes.dtype))
        token_fields = {name: _repeated(rows_P, group_size) for name, rows_P in prompts.token_fields_P.items()}
        visuals, responses = _repeated(prompts.visuals_P, group_size), []
        with without_media_tokens(self.model):
            for start in range(0, len(prompt_ids), at_once):
                part = slice(start, start + at_once)
                fields: dict[str, Any] = {name: rows[part] for name, rows in token_fields.items()}
                fields |= joined_visuals(visuals[part], self.accelerator.device)
                responses += super()._generate_single_turn(prompt_ids[part], None, fields, group_size)[0]
        return responses

    # Scoring ----------------------------------------------------------------------------------------------------------

    def _scored(
        self, groups: Sequence[ResponseGroup], responses: Sequence[SampledResponse]
    ) -> tuple[dict[str, Any], Tensor | None]:
        """TRL's batch of this process's responses, with its advantages, and the credit of each token.

        There is no credit yet where TRL does not score the old policy: with one update a rollout, it is the policy.
        """
        visuals_B = [response.group.visual for response in responses if response.group.visual is not None]
        old_policy, reference = ScoringPass("old policy", visuals_B), ScoringPass("reference", visuals_B)
        examples = [response.example for response in responses]
        if self.credit is not None:
            old_policy.truths_B = [example["truth"] for example in examples]
            old_policy.needed_B = [
                self.estimator.every_group or is_mixed(self.total_rewards(response.group)) for response in responses
            ]
        has_old_policy = self.is_off_policy or self.use_vllm  # TRL needs it for the correction
        if self.keeps_logprobs:
            old_policy.sampled_B = [response.generated[LOGPROBS] for response in responses]
        passes = ([old_policy] if has_old_policy else []) + ([reference] if self.beta else [])
        if self.carries_visuals:  # what is seen is in the passes
            examples = [{name: example[name] for name in example if name != "images"} for example in examples]
        with self.clock.phase("batching"), self._carrying(groups=groups, responses=responses, passes=passes):
            batch = super()._generate_and_score_completions(examples)
        if self.carries_visuals:
            batch["visuals"] = visuals_B
        if not self.use_vllm:
            batch.pop("sampling_per_token_logps", None)
        return batch, self._joined_credit(old_policy)

    def _generate(self, prompts: list[Any]) -> tuple[Any, ...]:
        """This process's responses in the form of TRL's method of this name."""
        responses = self._rollout_state.responses
        columns = zip(*(response.generated for response in responses), strict=True)
        first = responses[0].group.generated
        fields = [
            list(column) if field and isinstance(field, list) else field
            for column, field in zip(columns, first, strict=True)
        ]
        images = [] if self.carries_visuals else [response.example["images"] or None for response in responses]
        fields[IMAGES] = images if any(images) else None
        return tuple(fields)

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Tensor:
        return torch.cat([group.rewards_GF for group in self._rollout_state.groups])

    def score(self, batch: Mapping[str, Any], name: PassName, *, trim: bool = True, model: Any = None) -> Tensor:
        scoring = ScoringPass(name, batch.get("visuals", ()), trim=trim)
        with (
            torch.no_grad(),
            disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs),
            self._carrying(passes=[scoring]),
        ):
            logprobs_BT, _, _ = self._get_per_token_logps_and_entropies(
                self.model if model is None else model,
                torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1),
                torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1),
                batch["completion_ids"].shape[1],
                self.args.per_device_train_batch_size,
                **{name: value for name, value in batch.items() if name in MULTIMODAL_FIELDS},
            )
        return logprobs_BT

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """TRL's result, computed part by part; the credit of a part begins when its rows are recorded."""
        scoring = self._rollout_state.passes.pop(0)
        if scoring.sampled_B is not None:
            sampled_BT = as_tensor(scoring.sampled_B, logits_to_keep, input_ids.device)
            if self.sampler_agrees is None:  # the pass that is saved from now on is made once, to see
                scoring.sampled_B, again = None, (model, input_ids, attention_mask, logits_to_keep, batch_size)
                self._rollout_state.passes.insert(0, scoring)
                scored_BT, _, _ = self._get_per_token_logps_and_entropies(*again, **options)
                self.sampler_agrees = agree(sampled_BT, scored_BT, attention_mask[:, -logits_to_keep:])
                self.keeps_logprobs = self.sampler_agrees
            return sampled_BT if self.sampler_agrees else scored_BT, None, None
        needed_B = scoring.needed_B or []
        credit = self.credit if needed_B else None
        batch = {"input_ids": input_ids, "attention_mask": attention_mask} | {
            name: value for name, value in options.items() if isinstance(value, Tensor | list)
        }
        flags = {name: value for name, value in options.items() if name not in batch and value is not None}
        if scoring.visuals_B:
            batch["mm_token_type_ids"] = token_types(input_ids, *self._media_ids)
        is_training = scoring.name == "training"
        size = self._training_part(len(input_ids)) if is_training else batch_size or len(input_ids)
        shares = self.trim_padding and scoring.trim and self._why_not_shared(model) is None
        if shares and is_training:
            size = len(input_ids)
            keep_prompts(self._unwrapped(model))
        parts = parts_of(
            batch, logits_to_keep, size, trim=self.trim_padding and scoring.trim, by_prompt=shares and not is_training
        )
        logprobs, entropies, watching = [], [], []
        phase = "critic" if scoring.name == "critic" else "scoring"
        with nullcontext() if is_training else self.clock.phase(phase):
            for part in parts:
                rows = part.rows.tolist()
                called, visuals_b = model, [scoring.visuals_B[row] for row in rows] if scoring.visuals_B else []
                if shares:
                    called = SharedPrompts(model, self._unwrapped(model), part.num_tokens, visuals_b)
                elif visuals_b:
                    called = partial(model, **joined_visuals(visuals_b, input_ids.device))
                watched = None
                if credit is not None:
                    needed_b = [needed_B[row] for row in rows]
                    truths_b = [scoring.truths_B[row] for row in rows]
                    called = watched = CreditedModel(called, credit, part.num_tokens, needed_b, truths_b)
                logprobs_Bt, entropy_Bt, _ = super()._get_per_token_logps_and_entropies(
                    called, logits_to_keep=part.num_tokens, **part.batch, **flags
                )
                logprobs.append(logprobs_Bt)
                entropies.append(entropy_Bt)
                if watched is not None:
                    watching.append(watched)
            if not is_training:
                put_away(model)
            for watched in watching:
                self.clock.add("attention_rows", watched.row_seconds)
                self.clock.add("credit", watched.credit_seconds)
        logprob_BT = joined(logprobs, parts, logits_to_keep)
        entropy_BT = None if entropies[0] is None else joined(entropies, parts, logits_to_keep)
        if watching:
            scoring.join_credit = lambda: joined([w.credit_BT for w in watching], parts, logits_to_keep, fill=1.0)
        return logprob_BT, entropy_BT, None

    @property
    def pass_record(self) -> dict[str, str]:
        """How often the passes read a prompt and its images, and where the old log-probabilities are from."""
        reason = self._why_not_shared(self.model)
        record = {"prompts_read": "once in a micro-batch" if reason is None else f"with each response: {reason}"}
        if self.is_off_policy:
            record["old_logprobs"] = "of the sampler" if self.keeps_logprobs else "of a pass"
        return record

    def recompute_activations(self) -> None:
        """Have layers compute their activations again in a backward pass, where the run's settings say so.

        `Trainer.train` does so, too, and TRL after each rollout.
        """
        if self.args.gradient_checkpointing:
            recompute(self._unwrapped(self.model), self.args.gradient_checkpointing_kwargs)

    def _why_not_shared(self, model: Any) -> str | None:
        """Why a pass of this model reads a prompt with each of its responses; None if it reads it once."""
        return why_not(self._unwrapped(model), is_sharded=self.is_sharded)

    def _unwrapped(self, model: Any) -> Any:
        base = self.accelerator.unwrap_model(model)
        return base.get_base_model() if is_peft_model(base) else base

    def _joined_credit(self, scoring: ScoringPass) -> Tensor | None:
        """The credit of a pass's responses once it is computed; None: no rows were recorded."""
        if scoring.join_credit is None:
            return None
        with self.clock.phase("credit"):
            return scoring.join_credit()

    def _training_part(self, num_rows: int) -> int:
        """How many rows go through the model at a time: all, or half where that costs no second reduction."""
        halves = self.trim_padding and self.accelerator.num_processes == 1 and num_rows >= MIN_ROWS_TO_HALVE
        return math.ceil(num_rows / 2) if halves else num_rows

    # Loss -------------------------------------------------------------------------------------------------------------

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        """A micro-batch's share of the loss of its update: advantage times credit, objective, KL, reduction, bonus."""
        recipe, mask_BT = self.recipe, inputs["completion_mask"]
        logprob_BT, entropy_BT, credit_BT = self._training_pass(model, inputs)
        advantage_BT = per_token(inputs["advantages"])
        if credit_BT is not None:
            advantage_BT = credited(advantage_BT, credit_BT)
            self.note_credit()
        if "token_weights" in inputs:
            advantage_BT = advantage_BT * inputs["token_weights"]

        old_BT = inputs.get("old_per_token_logps", logprob_BT.detach())
        ratio_BT = importance_ratio(recipe, logprob_BT, old_BT, mask_BT)
        loss_BT, learns_BT = policy_loss(recipe, ratio_BT, advantage_BT), mask_BT
        if recipe.entropy_fraction is not None:
            learns_BT = self.get_high_entropy_mask(entropy_BT, mask_BT, 1 - recipe.entropy_fraction)
        if "importance_sampling_ratio" in inputs:  # vLLM has sampled
            loss_BT = loss_BT * inputs["importance_sampling_ratio"]
        if "ref_per_token_logps" in inputs and not self.estimator.kl_in_reward:
            kl_BT = k3(logprob_BT, inputs["ref_per_token_logps"])
            loss_BT = loss_BT + recipe.kl_coef * kl_BT
            self.note("kl", self._mean_of_all(kl_BT, mask_BT))

        loss = self._reduced(loss_BT, learns_BT, inputs["num_items_in_batch"])
        if recipe.entropy_coef:
            loss = loss - recipe.entropy_coef * token_mean(entropy_BT, learns_BT, self._tokens_of_all(learns_BT))
        if recipe.vppo is not None:  # the mean of -log pi over the sampled tokens of the update
            tokens_of_update = self._tokens_of_update(inputs["num_items_in_batch"])
            loss = loss + recipe.vppo.entropy_penalty * token_mean(-logprob_BT, mask_BT, tokens_of_update)
        self.note("entropy", self._mean_of_all(entropy_BT, mask_BT))
        if recipe.clip_low is not None:
            low_BT, high_BT = are_clipped(ratio_BT, advantage_BT, *recipe.clip)
            for name, clipped_BT in (("low", low_BT), ("high", high_BT), ("region", low_BT | high_BT)):
                self.note(f"clip_ratio/{name}_mean", self._mean_of_all(clipped_BT.float(), mask_BT))
        return loss

    def _training_pass(self, model: Any, inputs: Mapping[str, Any]) -> tuple[Tensor, Tensor, Tensor | None]:
        """The log-probabilities and entropies of the tokens, and their credit where this pass records its rows."""
        training = ScoringPass("training", inputs.get("visuals", ()))
        if "truth" in inputs:
            training.truths_B = inputs["truth"]
            training.needed_B = per_token(inputs["advantages"]).any(1).tolist()
        with self._carrying(passes=[training]):
            logprob_BT, entropy_BT, _ = self._get_per_token_logps_and_entropies(
                model,
                torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1),
                torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1),
                inputs["completion_ids"].shape[1],
                compute_entropy=True,
                **{name: value for name, value in inputs.items() if name in MULTIMODAL_FIELDS},
            )
        assert entropy_BT is not None
        return logprob_BT, entropy_BT, self._joined_credit(training)

    def _reduced(self, loss_BT: Tensor, learns_BT: Tensor, num_items: Tensor) -> Tensor:
        """The loss of the micro-batch's tokens that learn as its share of the update's."""
        num_passes = self.current_gradient_accumulation_steps
        if self.recipe.objective == "reinforce":
            return mean_of_sums(loss_BT, learns_BT, num_passes)
        if self.recipe.objective != "dapo":
            return mean_of_means(loss_BT, learns_BT, num_passes)
        if self.recipe.entropy_fraction is None:
            return token_mean(loss_BT, learns_BT, self._tokens_of_update(num_items))
        return token_mean(loss_BT, learns_BT, self._tokens_of_all(learns_BT))  # as FT-RL's own code, pass by pass

    def _tokens_of_update(self, num_items: Tensor) -> Tensor:
        """How many tokens an update has on each process, on average over those of its rollout, `num_items` in all."""
        updates = self.args.steps_per_generation / self.current_gradient_accumulation_steps
        return num_items.clamp(min=1.0) / self.accelerator.num_processes / updates

    def _tokens_of_all(self, mask_BT: Tensor) -> Tensor:
        """How many tokens an update has on each process, on average, if all its passes have as many as this one."""
        mean = gather(mask_BT.sum().reshape(1)).float().mean().clamp(min=1.0)
        return mean * self.current_gradient_accumulation_steps

    def _mean_of_all(self, value_BT: Tensor, mask_BT: Tensor) -> float:
        """The mean over tokens, or over responses of a column, of all processes."""
        mask_BT = mask_BT if value_BT.shape[1] > 1 else torch.ones_like(value_BT)
        total, count = self.total(torch.stack([(value_BT * mask_BT).sum(), mask_BT.sum()]).detach())
        return float(total / count.clamp(min=1.0))

    def loss(self, batch: dict[str, Any]) -> Tensor:
        return self._compute_loss(self.model, batch)

    # Metrics, checkpoints ---------------------------------------------------------------------------------------------

    def token_texts(self, token_ids: Sequence[int]) -> list[str]:
        return [self._tokenizer.decode([token]) for token in token_ids]

    def total_rewards(self, group: ResponseGroup) -> list[float]:
        return (group.rewards_GF * self.reward_weights.to(group.rewards_GF.device)).nansum(1).tolist()

    def total(self, tensor: Tensor) -> Tensor:
        summed: Tensor = self.accelerator.reduce(tensor, reduction="sum")
        return summed

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.args.should_save:
            self.estimator.save(Path(output_dir))
        if self.state.global_step % self.updates_per_rollout:  # told to stop between the updates on a rollout
            parts = gather_object([self._buffered_inputs])
            for process, part in enumerate(parts if self.args.should_save else ()):
                torch.save(part, Path(output_dir) / ROLLOUT.format(process, len(parts)))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        self.estimator.load(Path(checkpoint))
        updates_done = int(checkpoint.rpartition("-")[2]) % self.updates_per_rollout
        self._step = updates_done * self.args.gradient_accumulation_steps
        of_process = ROLLOUT.format(self.accelerator.process_index, self.accelerator.num_processes)
        if (file := Path(checkpoint) / of_process).is_file():  # on another number of them the rest is sampled anew
            device = self.accelerator.device.type
            self._buffered_inputs = torch.load(file, map_location=device, weights_only=False)


def per_token(advantages: Tensor) -> Tensor:
    """Advantages of responses as a column, those of tokens as they are."""
    return advantages.unsqueeze(1) if advantages.ndim == 1 else advantages


def _repeated(items: Sequence[Any], times: int) -> list[Any]:
    return [item for item in items for _ in range(times)]
