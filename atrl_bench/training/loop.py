"""Training on rollouts, from top to bottom: sample, reward, score, advantage, credit, loss.

A rollout is the responses of a policy to some problems. It is made once (`make_rollout`), shuffled, and trained on in
one or more updates; the loss of a micro-batch is `loss`, by the formulas of losses.py. The steps are in trainer.py.

1. Token credit: attention rows are recorded while the policy samples, where its log-probabilities are kept; else in
   the pass that computes the old ones or, with one update a rollout, which needs no such pass, in the training pass
   (the same policy). Advantages become (B, T).
2. Groups without an advantage are known before any pass: dynamic sampling replaces them, token credit skips them, and
   where nothing but the advantage is learned from no pass is over them.
3. Everything random in a rollout is seeded by (run seed, rollout), so a resumed run repeats the interrupted one.
4. On several processes each problem is answered by one of them, then all have all answers, and every update sees those
   that it would see on one process (order.py).
5. Where nothing else needs a pass over the responses, the local sampler's log-probabilities stand for those of the old
   policy (sampler_check.py). vLLM's are compared with the trainer's, and corrected.

Shapes: P problems, G responses to each; R responses of a rollout, B of a process or a micro-batch; T response tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import set_seed
from torch import Tensor

from atrl_bench.credit.trl import credited
from atrl_bench.engines.processes import PATIENCE_IN_TRAINING
from atrl_bench.models.local import end_tokens
from atrl_bench.training.advantages import are_mixed, group_relative
from atrl_bench.training.advantages.gae import estimator_of
from atrl_bench.training.dynamic_sampling import refill
from atrl_bench.training.group_sampling import Responses, RowsOfDraws, completions_of, sample_groups
from atrl_bench.training.looking import note_looking
from atrl_bench.training.losses import (
    LossTerms,
    are_clipped,
    entropy_threshold,
    importance_ratio,
    k3,
    mean_of_means,
    mean_of_sums,
    policy_loss,
    token_mean,
)
from atrl_bench.training.order import Share, dealt, further_problems, held, rollout_seed
from atrl_bench.training.policy import reference_of
from atrl_bench.training.recipe import RolloutRecipe
from atrl_bench.training.rewards.combined import Rewards
from atrl_bench.training.rollout import (
    Group,
    PromptBatch,
    Rollout,
    SampledResponse,
    ScoredTokens,
    length_metrics,
    messages_of,
    per_token,
    read_prompts,
)
from atrl_bench.training.sampler_check import CHECK_EVERY, agree, correct_sampler
from atrl_bench.training.sharding import whole
from atrl_bench.training.trainer import Trainer, TrainerInputs
from atrl_bench.training.weights.credit import comes_of_sampling, credit_of_sampling, credit_sampled, credit_weights
from atrl_bench.training.weights.dependency import DependencyWeights

if TYPE_CHECKING:
    from atrl_bench.training.vllm_sampler import VLLMSampler


class Loop(Trainer):
    """Trains on problems of a TrainingData with what a recipe combines: rewards, advantages, token weights, a loss."""

    def __init__(self, inputs: TrainerInputs[RolloutRecipe], *, rewards: Rewards, rows: Sequence[int]) -> None:
        """`rows`: the problems of all rollouts, in order."""
        self.recipe = recipe = inputs.recipe
        sizes = recipe.sizes(inputs.profile)
        updates = recipe.updates_per_rollout(sizes)
        num_updates = len(rows) // sizes.prompts_per_rollout * updates
        super().__init__(inputs, num_updates=num_updates, updates_per_rollout=updates)
        self.rewards, self.rows, self.group_size = rewards, list(rows), sizes.group_size
        self.reference = reference_of(inputs) if recipe.kl_coef else None
        self.estimator = estimator_of(recipe, self.model, self.run_seed, self.device)
        if recipe.credit.rule != "uniform":
            self.credit = credit_weights(recipe.credit, self.model, self.processor, self.run_seed)
        self.weighting = None if recipe.vppo is None else DependencyWeights(recipe.vppo)
        self.terms = LossTerms(recipe.losses)

        self.pad_id = self.processor.tokenizer.pad_token_id
        self.eos_ids = end_tokens(self.model, self.processor.tokenizer)
        self.sampler_agrees: bool | None = None  # with a pass of the policy; None before the first rollout
        self.vllm: VLLMSampler | None = None
        if inputs.profile.rollouts.engine == "vllm":
            from atrl_bench.training.vllm_sampler import VLLMSampler  # which takes another second to import

            self.vllm = VLLMSampler(inputs, self.eos_ids)
        # Other token weights, and some credit, need the pass that the sampler's log-probabilities would save.
        needs_pass = self.vllm or recipe.vppo or recipe.critic or recipe.entropy_fraction
        if self.credit is not None:
            needs_pass = needs_pass or not comes_of_sampling(self.credit, sizes, self.processes.count)
        self.keeps_logprobs = sizes.dtype == "float32" and self.is_off_policy and not needs_pass

    @property
    def is_off_policy(self) -> bool:
        """Whether a rollout is trained on in several updates, all but the first by a policy that did not sample it."""
        return self.updates_per_rollout > 1

    @property
    def learns_by_advantage_alone(self) -> bool:
        """Whether a response without an advantage is of no use: no other term of the loss, no statistic has it."""
        recipe = self.recipe
        others = recipe.kl_coef, recipe.entropy_coef, recipe.entropy_fraction, recipe.critic, recipe.losses
        return not any((*others, recipe.advantages, self.weighting))

    # One rollout ------------------------------------------------------------------------------------------------------

    def updates(self, rollout: int) -> list[list[Rollout]]:
        size = self.sizes.prompts_per_rollout
        return self.updates_on(*self.make_rollout(self.rows[rollout * size :][:size]))

    def updates_on(self, rollout: Rollout, numbers: Sequence[int], shares: Sequence[Share]) -> list[list[Rollout]]:
        """The updates on a rollout, with what each token counts in its own."""
        place = {number: place for place, number in enumerate(numbers)}
        num_responses = self.sizes.prompts_per_rollout * self.group_size // len(shares)
        updates = []
        for share in shares:
            update = rollout.take([place[number] for number in share.numbers])
            update.mask_BT[len(share.numbers) - share.num_idle :] = 0
            update.counts_BT = self.counts(update, num_responses)
            rows = torch.arange(len(update)).split(self.at_once)
            updates.append([update.take(part.tolist()) for part in rows])
        return updates

    def make_rollout(self, rows: Sequence[int]) -> tuple[Rollout, list[int], list[Share]]:
        """This process's responses to these problems, ready for the loss, their numbers, and its shares of updates."""
        seed = rollout_seed(self.run_seed, self.rollout)
        set_seed(seed + self.processes.index)
        groups = self.sample_and_reward(rows)
        if self.vllm is not None:
            self.vllm.sleep()
        reward_PG = torch.stack([self.rewards.total(group) for group in groups])
        self.note_all(self.rewards.metrics(groups, reward_PG) | length_metrics(groups, self.eos_ids))

        advantage_R = group_relative(reward_PG).flatten()
        owners_R = [group.process for group in groups for _ in range(self.group_size)]
        learns_R = [advantage != 0 or not self.learns_by_advantage_alone for advantage in advantage_R.tolist()]
        shares = dealt(owners_R, learns_R, self.processes.count, self.updates_per_rollout, seed)[self.processes.index]
        numbers = held(shares)
        responses = self._responses(groups, numbers)
        with self.clock.phase("batching"):
            num_tokens = sum(len(ids) for group in groups for ids in group.response_ids) / self.updates_per_rollout
            rollout = Rollout.of(responses, advantage_R[numbers].to(self.device), max(1.0, num_tokens), self.pad_id)
            rollout.reward_B = reward_PG.flatten()[numbers]

        credit = self._score_old_policy(rollout, responses)
        if self.recipe.kl_coef:
            with self.by_reference() as model:
                rollout.reference_BT = self.score(rollout, model=model).logprob_BT
        if self.vllm is not None:
            self.note_all(correct_sampler(rollout, self.profile.rollouts, self.sizes.dtype, self.rollout))
        rollout.advantages = self.estimator(rollout, responses, self)
        if credit is not None:
            rollout.advantages = credited(rollout.advantages, self.waited_for(credit))
        rollout.credit_follows = self.credit is not None and credit is None
        if self.weighting is not None:
            rollout.weights_BT = self.weighting(rollout, responses, self)
        rollout.extra = self.terms.prepare(rollout, responses, self)
        if self.sizes.measures_looking:
            note_looking(rollout, responses, self)
        if not self.is_off_policy:  # it was for the correction: the ratio to the policy itself is one
            rollout.old_BT = None
        rollout.sampled_BT = None
        return rollout, numbers, shares

    # Sample, reward ---------------------------------------------------------------------------------------------------

    def sample_and_reward(self, rows: Sequence[int]) -> list[Group]:
        """A group for each problem of the rollout, or for others in place of those that dynamic sampling drops."""
        number = self.rollout
        groups = self.generate(rows, f"{number}:0")
        correct = torch.cat([group.accuracies.clamp(0, 1) for group in groups])
        # Of the rollout's own problems, before any is replaced: what dynamic sampling leaves says little of the policy.
        self.note("accuracy", correct.nanmean().item())
        if (settings := self.recipe.dynamic_sampling) is None:
            return groups
        unused = further_problems(len(self.data.problems), rows, self.run_seed, number)
        refilled = refill(
            groups,
            lambda group: bool(are_mixed(group.accuracies[None])),
            lambda count, turn: self.generate(list(islice(unused, count)), f"{number}:{turn}"),
            settings,
        )
        for name in ("num_generations", "num_dropped", "num_unfilled"):
            self.note(f"dynamic_sampling/{name}", getattr(refilled, name))
        return refilled.groups

    def generate(self, rows: Sequence[int], key: str) -> list[Group]:
        """A group for each problem, each sampled and rewarded by one process; all of them do equally many.

        Where the problems do not come out even some are answered twice, with the same random numbers, and rewarded and
        counted once. A problem that comes twice in `rows` has others the second time.
        """
        process, count = self.processes.index, self.processes.count
        each = math.ceil(len(rows) / count)
        start = process * each
        keys = [f"{key}:{row}" + ":again" * rows[:place].count(row) for place, row in enumerate(rows)]
        asked = list(islice(cycle(zip(rows, keys, strict=True)), each * count))[start : start + each]
        num_counted = min(each, max(0, len(rows) - start))
        own = groups = self.generate_own([row for row, _ in asked], [key for _, key in asked], num_counted)
        if count > 1:
            self.processes.meet(f"sampling for rollout {key.partition(':')[0]}", PATIENCE_IN_TRAINING)
            own = [replace(group, process=process) for group in own]
            groups = self.processes.gather([group.without_media() for group in own])
            groups[start : start + num_counted] = own
        return groups

    def generate_own(self, rows: Sequence[int], keys: Sequence[str], num_counted: int) -> list[Group]:
        """Answer all of these problems; the groups of the first of them, with their rewards."""
        examples = [self.data.example(row, self.run_seed) for row in rows]
        messages_P = [messages_of(example) for example in examples]
        with whole(self.model) if self.vllm is None else nullcontext():
            with self.clock.phase("generation"):
                prompts = replace(self.read(messages_P, keys), num_counted=num_counted)
                sampled = self.sample(prompts, self.group_size, with_rows=self.keeps_rows)
            examples, token_ids = examples[:num_counted], sampled.token_ids[: num_counted * self.group_size]
            with self.clock.phase("reward"):
                completions, log = completions_of(self.processor, token_ids), partial(self.note, count=len(token_ids))
                rewards_RF = self.rewards.of_responses(examples, messages_P[:num_counted], token_ids, completions, log)
            groups = []
            for p, example in enumerate(examples):
                part = slice(p * self.group_size, (p + 1) * self.group_size)
                fields = {name: rows_P[p] for name, rows_P in prompts.token_fields_P.items()}
                prompt = prompts.keys_P[p], prompts.token_ids_P[p], fields
                answer = token_ids[part], sampled.logprobs and sampled.logprobs[part], rewards_RF[part]
                groups.append(Group(rows[p], *prompt, *answer, example, prompts.visuals_P[p]))
            self.rewards.add_those_of_groups(groups, self)
        if sampled.rows is not None:
            assert self.credit is not None
            with self.clock.phase("credit"):
                credit_sampled(self.credit, groups, sampled.rows, self._need_credit(groups))
        return groups

    def sample(self, prompts: PromptBatch, group_size: int, *, with_rows: bool = False) -> Responses:
        """G responses to each prompt, with their log-probabilities where needed, and attention rows if asked for."""
        if self.vllm is not None:
            with self.clock.phase("weights_to_vllm"):
                self.vllm.load(self.step)
            return Responses(*self.vllm.checked(prompts, group_size, self.note))
        recorded = self.credit.capture.record_next() if self.credit and with_rows else nullcontext()
        with torch.no_grad(), self.passes.computing(self.device), recorded as recording:
            rows = None
            if recording is not None:
                timed = partial(self.clock.phase, "attention_rows")
                rows = RowsOfDraws(recording, self.sizes.max_response_tokens, timed)
            return sample_groups(
                self.model,
                prompts,
                self.sizes,
                group_size=group_size,
                run_seed=self.run_seed,
                pad_id=self.pad_id,
                eos_ids=self.eos_ids,
                with_logprobs=self.keeps_logprobs,
                rows=rows,
            )

    def respond(self, messages_P: Sequence[Any], keys_P: Sequence[str], size: int) -> tuple[list[Any], list[Any]]:
        if not messages_P and not (self.vllm and self.vllm.is_shared):  # then others wait for this process's part
            return [], []
        token_ids = self.sample(self.read(messages_P, keys_P), size).token_ids
        return token_ids, completions_of(self.processor, token_ids)

    def read(self, messages_P: Sequence[Any], keys_P: Sequence[str]) -> PromptBatch:
        return read_prompts(self.processor, messages_P, keys_P, self.model.dtype)

    def _responses(self, groups: Sequence[Group], numbers: Sequence[int]) -> list[SampledResponse]:
        """These of the rollout's responses; what the prompt of another process's group shows is read here."""
        size = self.group_size
        here = {index: self._with_media(groups[index]) for index in sorted({number // size for number in numbers})}
        return [SampledResponse(here[number // size], number) for number in numbers]

    def _with_media(self, group: Group) -> Group:
        if group.example:
            return group
        example = self.data.example(group.row, self.run_seed)
        return replace(group, example=example, visual=self.read([messages_of(example)], [group.key]).visuals_P[0])

    # Score ------------------------------------------------------------------------------------------------------------

    @property
    def keeps_rows(self) -> bool:
        """Whether sampling leaves the attention rows that the credit is made of."""
        return self.credit is not None and self.keeps_logprobs

    def _need_credit(self, groups: Sequence[Group]) -> list[bool]:
        """Whose responses have an advantage that a credit could change."""
        every = self.estimator.every_group
        return [every or bool(are_mixed(self.rewards.total(group)[None])) for group in groups]

    def _score_old_policy(self, rollout: Rollout, responses: Sequence[SampledResponse]) -> Callable[[], Tensor] | None:
        """Write down what the policy says of the responses, where anybody asks; what waits for their credit."""
        if not self.is_off_policy and self.vllm is None and self.recipe.entropy_fraction is None:
            return None
        of_sampling = partial(credit_of_sampling, responses) if self.keeps_rows else None
        if self.keeps_logprobs:
            assert rollout.sampled_BT is not None
            rollout.old_BT = rollout.sampled_BT
            if not self.sampler_agrees or not (self.rollout + 1) % CHECK_EVERY:
                scored_BT = self.score(rollout).logprob_BT
                agrees = agree(rollout.sampled_BT, scored_BT, rollout.mask_BT)
                self.sampler_agrees = self.keeps_logprobs = all(self.processes.gather([agrees]))
                rollout.old_BT = rollout.sampled_BT if self.sampler_agrees else scored_BT
            if self.sampler_agrees or self.credit is None:
                return of_sampling
        needed_B = None
        if self.credit is not None:
            needed_B = [self.estimator.every_group or advantage != 0 for advantage in rollout.advantages.tolist()]
        scored = self._scored(self.model, rollout, needed_B=needed_B)
        rollout.old_BT = scored.logprob_BT
        if self.recipe.entropy_fraction is not None:
            rollout.entropy_BT = scored.entropy_BT
        return scored.credit_BT

    def score(self, rollout: Rollout, phase: str = "scoring", *, trim: bool = True, model: Any = None) -> ScoredTokens:
        return self._scored(self.model if model is None else model, rollout, phase, trim=trim)

    def _scored(self, model: Any, rollout: Rollout, phase: str = "scoring", **options: Any) -> ScoredTokens:
        credit = self.credit if options.get("needed_B") else None
        with self.clock.phase(phase):
            scored = self.passes.score(model, rollout, credit, **options)
            for name, seconds in scored.seconds.items():
                self.clock.add(name, seconds)
        return scored

    # Loss -------------------------------------------------------------------------------------------------------------

    def loss(self, batch: Rollout) -> Tensor:
        """A micro-batch's share of the loss of its update: advantage times credit, objective, KL, counts, bonus."""
        recipe, mask_BT, counts_BT = self.recipe, batch.mask_BT, batch.counts_BT
        needed_B = per_token(batch.advantages).any(1).tolist() if batch.credit_follows else None
        credit = self.credit if batch.credit_follows else None
        scored = self.passes.train(self.model, batch, credit, needed_B)
        for name, seconds in scored.seconds.items():
            self.clock.add(name, seconds)
        logprob_BT, entropy_BT = scored.logprob_BT, scored.entropy_BT
        assert entropy_BT is not None
        assert counts_BT is not None
        advantage_BT = per_token(batch.advantages)
        if batch.credit_follows:
            assert scored.credit_BT is not None
            advantage_BT = credited(advantage_BT, self.waited_for(scored.credit_BT))
        if batch.weights_BT is not None:
            advantage_BT = advantage_BT * batch.weights_BT

        ratio_BT = importance_ratio(
            recipe, logprob_BT, logprob_BT.detach() if batch.old_BT is None else batch.old_BT, mask_BT
        )
        loss_BT = policy_loss(recipe, ratio_BT, advantage_BT)
        if batch.correction is not None:
            loss_BT = loss_BT * batch.correction
        if batch.reference_BT is not None and not self.estimator.kl_in_reward:
            kl_BT = k3(logprob_BT, batch.reference_BT)
            loss_BT = loss_BT + recipe.kl_coef * kl_BT
            self.note_mean("kl", kl_BT, mask_BT)
        for name, term_BT in self.terms.of(batch, scored):
            loss_BT = loss_BT + term_BT
            self.note_mean(f"loss/{name}", term_BT, mask_BT)

        loss, evenly_BT = (loss_BT * counts_BT).sum(), token_mean(mask_BT, batch.num_tokens)
        if recipe.entropy_coef:
            loss = loss - recipe.entropy_coef * (entropy_BT * evenly_BT).sum()
        if recipe.vppo is not None:  # the mean of -log pi over the sampled tokens of the update
            loss = loss - recipe.vppo.entropy_penalty * (logprob_BT * evenly_BT).sum()
        self.note_mean("entropy", entropy_BT, mask_BT)
        if recipe.clip_low is not None and recipe.clip_high is not None:
            low_BT, high_BT = are_clipped(ratio_BT, advantage_BT, recipe.clip_low, recipe.clip_high)
            for name, clipped_BT in (("low", low_BT), ("high", high_BT), ("region", low_BT | high_BT)):
                self.note_mean(f"clip_ratio/{name}_mean", clipped_BT.float(), mask_BT)
        return loss

    def counts(self, update: Rollout, num_responses: int) -> Tensor:
        """What each token counts in the loss of its update, which has so many responses on all processes."""
        mask_BT = update.mask_BT.float()
        if self.recipe.entropy_fraction is not None:
            assert update.entropy_BT is not None
            entropy_N = torch.cat(self.processes.gather([update.entropy_BT[update.mask_BT.bool()].cpu()]))
            learns_BT = mask_BT * (update.entropy_BT >= entropy_threshold(entropy_N, self.recipe.entropy_fraction))
            return token_mean(learns_BT, self.processes.total(learns_BT.sum()).clamp(min=1.0))
        if self.recipe.objective == "dapo":
            return token_mean(mask_BT, update.num_tokens)
        reduction = mean_of_sums if self.recipe.objective == "reinforce" else mean_of_means
        return reduction(mask_BT, num_responses)

    # Checkpoints, the record ------------------------------------------------------------------------------------------

    def token_texts(self, token_ids: Sequence[int]) -> list[str]:
        return [self.processor.tokenizer.decode([token]) for token in token_ids]

    @property
    def pass_record(self) -> dict[str, str]:
        """How often the passes read a prompt and its images, and where the old log-probabilities are from."""
        record = dict(super().pass_record)
        if self.is_off_policy:
            record["old_logprobs"] = "of the sampler" if self.keeps_logprobs else "of a pass"
        return record

    def save_beside(self, folder: Path) -> None:
        self.estimator.save(folder)

    def load_beside(self, folder: Path) -> None:
        self.estimator.load(folder)

    def close(self) -> None:
        """End vLLM and the processes that compute credit."""
        if self.vllm is not None:
            self.vllm.close()
            self.vllm = None
        if self.credit is not None:
            self.credit.workers.close()
