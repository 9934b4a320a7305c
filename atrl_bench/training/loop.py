"""Training on rollouts, from top to bottom: sample, reward, score, advantage, credit, loss, step.

A rollout is the responses of a policy to some problems. It is made once (`make_rollout`), shuffled, and trained on in
one or more updates; the loss of a micro-batch is `loss`, by the formulas of losses.py. transformers' Trainer takes the
steps, schedules the learning rate and writes checkpoints; its batches are the micro-batches of the rollouts.

1. Token credit: attention rows are recorded in the pass that computes the old log-probabilities or, with one update a
   rollout, which needs no such pass, in the training pass (the same policy). Advantages become (B, T).
2. Groups without an advantage are known before any pass: dynamic sampling replaces them, token credit skips them.
3. Everything random in a rollout is seeded by (run seed, rollout), so a resumed run repeats the interrupted one.
4. On several processes each problem is answered by one of them, then all have all answers, and every update sees those
   that it would see on one process (dealing.py).
5. Where nothing else needs a pass over the responses, the local sampler's log-probabilities stand for those of the old
   policy (sampler_check.py). vLLM's are compared with the trainer's, and corrected.

Shapes: P problems, G responses to each; R responses of a rollout, B of a process or a micro-batch; T response tokens.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object, set_seed
from torch import Tensor

from atrl_bench.credit.trl import credited
from atrl_bench.engines.processes import PATIENCE_IN_TRAINING, launched
from atrl_bench.models.local import end_tokens
from atrl_bench.training.advantages import group_relative
from atrl_bench.training.advantages.gae import estimator_of
from atrl_bench.training.dealing import dealt
from atrl_bench.training.dynamic_sampling import is_mixed, refill
from atrl_bench.training.loss_terms import LossTerms
from atrl_bench.training.losses import (
    are_clipped,
    entropy_threshold,
    importance_ratio,
    k3,
    mean_of_means,
    mean_of_sums,
    policy_loss,
    token_mean,
)
from atrl_bench.training.multimodal import PromptBatch, read_prompts, with_media
from atrl_bench.training.order import further_problems, rollout_seed
from atrl_bench.training.passes import Passes
from atrl_bench.training.policy import policy_of, reference_of
from atrl_bench.training.recipe import RolloutRecipe
from atrl_bench.training.resumable import Resumable
from atrl_bench.training.rewards.combined import Rewards
from atrl_bench.training.rollout import Group, Rollout, SampledResponse, ScoredTokens, per_token
from atrl_bench.training.rollout_metrics import length_metrics, reward_metrics
from atrl_bench.training.sampler import Sampled, Sampler
from atrl_bench.training.sampler_check import agree, correct_sampler
from atrl_bench.training.trainer_inputs import TrainerInputs
from atrl_bench.training.vllm_sampler import checked, vllm_of
from atrl_bench.training.weights import TokenWeighting
from atrl_bench.training.weights.credit import credit_weights
from atrl_bench.training.weights.dependency import DependencyWeights

ROLLOUT = "rollout-{}-of-{}.pt"  # a process's part, in a resume checkpoint between the updates on a rollout


class Loop(Resumable):
    """Trains on problems of a TrainingData with what a recipe combines: rewards, advantages, token weights, a loss."""

    def __init__(
        self, inputs: TrainerInputs[RolloutRecipe], *, rewards: Rewards, rows: Sequence[int], args: Any
    ) -> None:
        """`rows`: the problems of all rollouts, in order; `args`: transformers' TrainingArguments."""
        self.recipe = recipe = inputs.recipe
        self.sizes = sizes = recipe.sizes(inputs.profile)
        policy = policy_of(inputs, recomputes=args.gradient_checkpointing)
        super().__init__(inputs, policy, updates_per_rollout=recipe.updates_per_rollout(sizes), args=args)
        self.compute_loss_func = self.loss  # to transformers: the loss is that of the whole update already
        self.ref_model = reference_of(inputs, self.accelerator)
        self.rewards, self.rows, self.group_size = rewards, list(rows), sizes.group_size
        self.estimator = estimator_of(recipe, self.model, self.run_seed, self.accelerator.device)
        if recipe.credit.rule != "uniform":
            self.credit = credit_weights(recipe.credit, self.model, self.processing_class, self.run_seed)
        self.weightings: list[TokenWeighting] = []
        if recipe.vppo is not None:
            self.weightings.append(DependencyWeights(recipe.vppo))
        self.terms = LossTerms(recipe.losses)

        self.pad_id = self.processing_class.tokenizer.pad_token_id
        self.eos_ids = end_tokens(inputs.model, self.processing_class.tokenizer)
        recomputing = (args.gradient_checkpointing_kwargs or {}) if args.gradient_checkpointing else None
        shared: dict[str, Any] = {"is_sharded": self.is_sharded, "recomputing": recomputing}
        self.passes = Passes(self.accelerator, args.per_device_train_batch_size, **shared)
        self.sampler = Sampler(
            self.accelerator, sizes, run_seed=self.run_seed, pad_id=self.pad_id, eos_ids=self.eos_ids, **shared
        )
        self.sampler_agrees: bool | None = None  # with a pass of the policy; None before the first rollout
        self.rollout_settings = inputs.profile.rollouts
        self.vllm = vllm_of(inputs, self.model, self.accelerator, self.eos_ids)
        # Attention rows and other token weights need the pass that the sampler's log-probabilities would save.
        needs_pass = self.vllm or self.credit or recipe.vppo or recipe.critic
        in_full = sizes.dtype == "float32" and self.sampler.from_one_prefill
        self.keeps_logprobs = in_full and self.is_off_policy and not needs_pass
        self._micro_batches: deque[Rollout] = deque()  # of the rollout that is trained on

    @property
    def is_off_policy(self) -> bool:
        """Whether a rollout is trained on in several updates, all but the first by a policy that did not sample it."""
        return self.updates_per_rollout > 1

    @property
    def rollout(self) -> int:
        return int(self.state.global_step // self.updates_per_rollout)

    @property
    def in_step(self) -> bool:
        return not self.sampler.from_one_prefill if self.vllm is None else self.vllm.mode == "server"

    # One rollout ------------------------------------------------------------------------------------------------------

    def get_batch_samples(self, _iterator: Any, num_batches: int, _device: Any) -> tuple[list[Any], None]:
        """The micro-batches of the next update, for which transformers asks; of a new rollout once one is used up."""
        if not self._micro_batches:
            size = self.sizes.prompts_per_rollout
            batches = self.micro_batches(*self.make_rollout(self.rows[self.rollout * size :][:size]))
            done = self.state.global_step % self.updates_per_rollout  # where a resumed run has lost the rest of it
            self._micro_batches.extend(batches[done * num_batches :])
        return [self._micro_batches.popleft() for _ in range(num_batches)], None

    def get_train_dataloader(self) -> Any:
        return (None for _ in self.rows)  # without a length; `get_batch_samples` looks into none

    def floating_point_ops(self, _inputs: Any) -> int:
        return 0  # transformers would look for the tokens in a dictionary

    def micro_batches(self, rollout: Rollout, order: Sequence[int]) -> list[Rollout]:
        size = self.args.per_device_train_batch_size
        return [rollout.take(order[start : start + size]) for start in range(0, len(order), size)]

    def make_rollout(self, rows: Sequence[int]) -> tuple[Rollout, list[int]]:
        """This process's responses to these problems, ready for the loss, and the order in which to train on them."""
        seed = rollout_seed(self.run_seed, self.rollout)
        set_seed(seed + self.accelerator.process_index)
        groups = self.sample_and_reward(rows)
        reward_PG = torch.stack([self.rewards.total(group) for group in groups])
        rewards_RF = torch.cat([group.rewards_GF for group in groups])
        self.note_all(reward_metrics(rewards_RF, self.rewards.names, reward_PG))

        owners_R = [group.process for group in groups for _ in range(self.group_size)]
        of_processes = dealt(owners_R, self.accelerator.num_processes, self.updates_per_rollout, seed)
        order = of_processes[self.accelerator.process_index]
        numbers = sorted(order)
        responses = self._responses(groups, numbers)
        with self.clock.phase("batching"):
            advantages_B = group_relative(reward_PG).flatten()[numbers].to(self.accelerator.device)
            num_tokens = sum(len(ids) for group in groups for ids in group.response_ids)
            rollout = Rollout.of(responses, advantages_B, num_tokens, self.pad_id)

        old = self._score_old_policy(rollout, responses)
        if self.recipe.kl_coef:
            rollout.reference_BT = self._score_reference(rollout)
        if self.vllm is not None:
            self.note_all(correct_sampler(rollout, self.rollout_settings, self.sizes.dtype, self.rollout))
        rollout.advantages = self.estimator(rollout, responses, self)
        if old is not None and old.credit_BT is not None:
            rollout.advantages = credited(rollout.advantages, self._credit_of(old))
        rollout.credit_follows = self.credit is not None and old is None
        if self.weightings:
            rollout.weights_BT = reduce(
                torch.mul, [of_tokens(rollout, responses, self) for of_tokens in self.weightings]
            )
        rollout.extra = self.terms.prepare(rollout, responses, self)
        if not self.is_off_policy:  # it was for the correction: the ratio to the policy itself is one
            rollout.old_BT = None
        rollout.sampled_BT = None
        place = {number: place for place, number in enumerate(numbers)}
        return rollout, [place[number] for number in order]

    # Sample, reward ---------------------------------------------------------------------------------------------------

    def sample_and_reward(self, rows: Sequence[int]) -> list[Group]:
        """A group for each problem of the rollout, or for others in place of those that dynamic sampling drops."""
        number = self.rollout
        groups = self.generate(rows, f"{number}:0")
        correct = torch.cat([group.accuracies.clamp(min=0) for group in groups])
        # Of the rollout's own problems, before any is replaced: what dynamic sampling leaves says little of the policy.
        self.note("accuracy", correct.nanmean().item())
        if (settings := self.recipe.dynamic_sampling) is None:
            return groups
        unused = further_problems(len(self.data.problems), rows, self.run_seed, number)
        refilled = refill(
            groups,
            lambda group: group.accuracies.nan_to_num().tolist(),
            lambda count, turn: self.generate(list(islice(unused, count)), f"{number}:{turn}"),
            settings,
        )
        for name in ("num_generations", "num_dropped", "num_unfilled"):
            self.note(f"dynamic_sampling/{name}", getattr(refilled, name))
        return refilled.groups

    def generate(self, rows: Sequence[int], key: str) -> list[Group]:
        """A group for each problem, each sampled and rewarded by one process; all of them do equally many.

        Devices that share a model generate in step: where the problems do not come out even some are answered twice,
        with the same random numbers.
        """
        process, count = self.accelerator.process_index, self.accelerator.num_processes
        each = math.ceil(len(rows) / count)
        start = process * each
        own = self.generate_own(list(islice(cycle(rows), each * count))[start : start + each], key)
        groups = own
        if count > 1:
            launched().meet(f"sampling for rollout {key.partition(':')[0]}", PATIENCE_IN_TRAINING)
            own = [replace(group, process=process) for group in own]
            groups = gather_object([group.without_media() for group in own])
            groups[start : start + each] = own
        self.note_all(length_metrics(groups, self.eos_ids))
        return groups[: len(rows)]

    def generate_own(self, rows: Sequence[int], key: str) -> list[Group]:
        examples = [self.data.example(row, self.run_seed) for row in rows]
        messages_P = [with_media(example["prompt"], example["images"], example["videos"]) for example in examples]
        with self.clock.phase("generation"):
            prompts = self.read(messages_P, [f"{key}:{row}" for row in rows])
            token_ids, logprobs = self.sample(prompts, self.group_size)
        with self.clock.phase("reward"):
            completions = self._completions(token_ids)
            rewards_RF = self.rewards.of_responses(examples, messages_P, token_ids, completions, self.note)
        groups = []
        for p, (row, example) in enumerate(zip(rows, examples, strict=True)):
            part = slice(p * self.group_size, (p + 1) * self.group_size)
            fields = {name: rows_P[p] for name, rows_P in prompts.token_fields_P.items()}
            of_tokens = logprobs and logprobs[part]
            answered = prompts.keys_P[p], prompts.token_ids_P[p], fields, token_ids[part], of_tokens, rewards_RF[part]
            groups.append(Group(row, *answered, example, prompts.visuals_P[p]))
        self.rewards.add_those_of_groups(groups, self)
        return groups

    def sample(self, prompts: PromptBatch, group_size: int) -> Sampled:
        """P * G responses, group by group, each with the token that ended it; and log-probabilities where needed."""
        if self.vllm is None:
            return self.sampler.sample(self.model_wrapped, prompts, group_size, with_logprobs=self.keeps_logprobs)
        with self.clock.phase("weights_to_vllm"):
            self.vllm.load(self.state.global_step)
        return checked(self.vllm, prompts, group_size, self.note)

    def respond(self, messages_P: Sequence[Any], keys_P: Sequence[str], size: int) -> list[list[dict[str, str]]]:
        token_ids, _ = self.sample(self.read(messages_P, keys_P), size)
        return self._completions(token_ids)

    def read(self, messages_P: Sequence[Any], keys_P: Sequence[str]) -> PromptBatch:
        return read_prompts(self.processing_class, messages_P, keys_P, self.model.dtype)

    def _completions(self, token_ids: Sequence[list[int]]) -> list[list[dict[str, str]]]:
        texts = self.processing_class.batch_decode(token_ids, skip_special_tokens=True)
        return [[{"role": "assistant", "content": text}] for text in texts]

    def _responses(self, groups: Sequence[Group], numbers: Sequence[int]) -> list[SampledResponse]:
        """These of the rollout's responses; what the prompt of another process's group shows is read here."""
        size = self.group_size
        here = {index: self._with_media(groups[index]) for index in sorted({number // size for number in numbers})}
        return [SampledResponse(here[number // size], number) for number in numbers]

    def _with_media(self, group: Group) -> Group:
        if group.example:
            return group
        example = self.data.example(group.row, self.run_seed)
        messages = with_media(example["prompt"], example["images"], example["videos"])
        return replace(group, example=example, visual=self.read([messages], [group.key]).visuals_P[0])

    # Score ------------------------------------------------------------------------------------------------------------

    def _score_old_policy(self, rollout: Rollout, responses: Sequence[SampledResponse]) -> ScoredTokens | None:
        """Write down what the policy says of the responses, where anybody asks; begin with their credit."""
        if not self.is_off_policy and self.vllm is None:
            return None
        if self.keeps_logprobs and self.sampler_agrees:  # it was seen to say the same as a pass
            rollout.old_BT = rollout.sampled_BT
            return None
        groups_B, needed_B = [response.group for response in responses], None
        if self.credit is not None:
            every = self.estimator.every_group
            needed_B = [every or is_mixed(self.rewards.total(group).nan_to_num().tolist()) for group in groups_B]
        scored = self._scored(self.model, rollout, needed_B=needed_B)
        rollout.old_BT = scored.logprob_BT
        if self.keeps_logprobs:
            assert rollout.sampled_BT is not None
            self.sampler_agrees = agree(rollout.sampled_BT, scored.logprob_BT, rollout.mask_BT)
            self.keeps_logprobs = self.sampler_agrees
            rollout.old_BT = rollout.sampled_BT if self.sampler_agrees else scored.logprob_BT
        return scored

    def _score_reference(self, rollout: Rollout) -> Tensor:
        if self.ref_model is not None:
            return self.score(rollout, model=self.ref_model).logprob_BT
        with self.accelerator.unwrap_model(self.model).disable_adapter():
            return self.score(rollout).logprob_BT

    def score(self, rollout: Rollout, phase: str = "scoring", *, trim: bool = True, model: Any = None) -> ScoredTokens:
        return self._scored(self.model if model is None else model, rollout, phase, trim=trim)

    def _scored(self, model: Any, rollout: Rollout, phase: str = "scoring", **options: Any) -> ScoredTokens:
        credit = self.credit if options.get("needed_B") else None
        with self.clock.phase(phase):
            scored = self.passes.score(model, rollout, credit, **options)
            for name, seconds in scored.seconds.items():
                self.clock.add(name, seconds)
        return scored

    def _credit_of(self, scored: ScoredTokens) -> Tensor:
        assert scored.credit_BT is not None
        with self.clock.phase("credit"):
            credit_BT = scored.credit_BT()
        self.note_credit()
        return credit_BT

    # Loss -------------------------------------------------------------------------------------------------------------

    def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Tensor:
        return self.loss(inputs, model)

    def loss(self, batch: Rollout, model: Any = None) -> Tensor:
        """A micro-batch's share of the loss of its update: advantage times credit, objective, KL, reduction, bonus."""
        recipe, mask_BT = self.recipe, batch.mask_BT
        needed_B = per_token(batch.advantages).any(1).tolist() if batch.credit_follows else None
        credit = self.credit if batch.credit_follows else None
        scored = self.passes.train(self.model if model is None else model, batch, credit, needed_B)
        for name, seconds in scored.seconds.items():
            self.clock.add(name, seconds)
        logprob_BT, entropy_BT = scored.logprob_BT, scored.entropy_BT
        assert entropy_BT is not None
        advantage_BT = per_token(batch.advantages)
        if batch.credit_follows:
            advantage_BT = credited(advantage_BT, self._credit_of(scored))
        if batch.weights_BT is not None:
            advantage_BT = advantage_BT * batch.weights_BT

        ratio_BT = importance_ratio(
            recipe, logprob_BT, logprob_BT.detach() if batch.old_BT is None else batch.old_BT, mask_BT
        )
        loss_BT, learns_BT = policy_loss(recipe, ratio_BT, advantage_BT), mask_BT
        if recipe.entropy_fraction is not None:
            threshold = entropy_threshold(self._of_all(entropy_BT.detach()[mask_BT.bool()]), recipe.entropy_fraction)
            learns_BT = (entropy_BT * mask_BT >= threshold) & mask_BT.bool()
        if batch.correction is not None:
            loss_BT = loss_BT * batch.correction
        if batch.reference_BT is not None and not self.estimator.kl_in_reward:
            kl_BT = k3(logprob_BT, batch.reference_BT)
            loss_BT = loss_BT + recipe.kl_coef * kl_BT
            self.note("kl", self._mean_of_all(kl_BT, mask_BT))
        for name, term_BT in self.terms.of(batch, scored):
            loss_BT = loss_BT + term_BT
            self.note(f"loss/{name}", self._mean_of_all(term_BT, mask_BT))

        loss = self._reduced(loss_BT, learns_BT, batch)
        if recipe.entropy_coef:
            loss = loss - recipe.entropy_coef * token_mean(entropy_BT, learns_BT, self._tokens_of_all(learns_BT))
        if recipe.vppo is not None:  # the mean of -log pi over the sampled tokens of the update
            loss = loss + recipe.vppo.entropy_penalty * token_mean(-logprob_BT, mask_BT, self._tokens_of_update(batch))
        self.note("entropy", self._mean_of_all(entropy_BT, mask_BT))
        if recipe.clip_low is not None:
            low_BT, high_BT = are_clipped(ratio_BT, advantage_BT, *recipe.clip)
            for name, clipped_BT in (("low", low_BT), ("high", high_BT), ("region", low_BT | high_BT)):
                self.note(f"clip_ratio/{name}_mean", self._mean_of_all(clipped_BT.float(), mask_BT))
        return loss

    def _reduced(self, loss_BT: Tensor, learns_BT: Tensor, batch: Rollout) -> Tensor:
        """The loss of the micro-batch's tokens that learn as its share of the update's."""
        num_passes = self.args.gradient_accumulation_steps
        if self.recipe.objective == "reinforce":
            return mean_of_sums(loss_BT, learns_BT, num_passes)
        if self.recipe.objective != "dapo":
            return mean_of_means(loss_BT, learns_BT, num_passes)
        if self.recipe.entropy_fraction is None:
            return token_mean(loss_BT, learns_BT, self._tokens_of_update(batch))
        return token_mean(loss_BT, learns_BT, self._tokens_of_all(learns_BT))  # as FT-RL's own code, pass by pass

    def _tokens_of_update(self, batch: Rollout) -> float:
        """How many tokens an update has on each process, on average over those of its rollout."""
        return max(1, batch.num_tokens) / self.accelerator.num_processes / self.updates_per_rollout

    def _tokens_of_all(self, mask_BT: Tensor) -> Tensor:
        """How many tokens an update has on each process, on average, if all its passes have as many as this one."""
        mean = self.total(mask_BT.sum().float()) / self.accelerator.num_processes
        return mean.clamp(min=1.0) * self.args.gradient_accumulation_steps

    def _mean_of_all(self, value_BT: Tensor, mask_BT: Tensor) -> float:
        """The mean over tokens, or over responses of a column, of all processes."""
        mask_BT = mask_BT if value_BT.shape[1] > 1 else torch.ones_like(value_BT)
        total, count = self.total(torch.stack([(value_BT * mask_BT).sum(), mask_BT.sum()]).detach())
        return float(total / count.clamp(min=1.0))

    def _of_all(self, values_N: Tensor) -> Tensor:
        """The values of all processes, however many each has."""
        if self.accelerator.num_processes == 1:
            return values_N
        return torch.cat(gather_object([values_N.cpu()])).to(values_N.device)

    def total_rewards(self, group: Group) -> Tensor:
        return self.rewards.total(group)

    def total(self, tensor: Tensor) -> Tensor:
        summed: Tensor = self.accelerator.reduce(tensor, reduction="sum")
        return summed

    # Metrics, checkpoints ---------------------------------------------------------------------------------------------

    def token_texts(self, token_ids: Sequence[int]) -> list[str]:
        return [self.processing_class.tokenizer.decode([token]) for token in token_ids]

    @property
    def pass_record(self) -> dict[str, str]:
        """How often the passes read a prompt and its images, and where the old log-probabilities are from."""
        reason = self.passes.why_not_shared(self.model)
        record = {"prompts_read": "once in a micro-batch" if reason is None else f"with each response: {reason}"}
        if self.is_off_policy:
            record["old_logprobs"] = "of the sampler" if self.keeps_logprobs else "of a pass"
        return record

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.args.should_save:
            self.estimator.save(Path(output_dir))
        if self._micro_batches:  # told to stop between the updates on a rollout
            parts = gather_object([list(self._micro_batches)])
            for process, part in enumerate(parts if self.args.should_save else ()):
                torch.save(part, Path(output_dir) / ROLLOUT.format(process, len(parts)))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        self.estimator.load(Path(checkpoint))
        of_process = ROLLOUT.format(self.accelerator.process_index, self.accelerator.num_processes)
        if (file := Path(checkpoint) / of_process).is_file():  # on another number of them the rest is sampled anew
            device = self.accelerator.device.type
            self._micro_batches.extend(torch.load(file, map_location=device, weights_only=False))

    def close(self) -> None:
        """End vLLM and the processes that compute credit."""
        if self.vllm is not None:
            self.vllm.close()
            self.vllm = None
        if self.credit is not None:
            self.credit.close()
