"""Training on preferences: DPO with a credit for each token of both responses.

With the credit c of a response's own tokens, mean one over the response, the loss is

    -log sigma( beta ( sum_t c^w_t log pi(y^w_t) / pi_ref(y^w_t) - sum_t c^l_t log pi(y^l_t) / pi_ref(y^l_t) ) ).

The paper writes one c_t for both responses, whose tokens do not correspond and whose lengths differ; here each has its
own. Attention rows are recorded in the pass of the reference, or of the policy where the credit is to follow it.

Shapes: N pairs, B = 2 N responses (a better one, then the worse), T response tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from atrl_bench.training.arguments import num_pair_updates, num_rollouts, per_update
from atrl_bench.training.order import problem_order
from atrl_bench.training.pairs import PreferencePair, given_pairs, sampled_pairs
from atrl_bench.training.policy import reference_of
from atrl_bench.training.recipe import PreferenceRecipe
from atrl_bench.training.rollout import Rollout, SampledResponse, given_group
from atrl_bench.training.trainer import Trainer, TrainerInputs
from atrl_bench.training.weights.credit import credit_weights


@contextmanager
def build(inputs: TrainerInputs[PreferenceRecipe]) -> Iterator[Preferences]:
    """Yield the trainer of a run on its pairs, which are sampled first unless the run has them already."""
    recipe, profile, data = inputs.recipe, inputs.profile, inputs.data
    without: dict[str, int] = {}
    if recipe.pairs is None:
        pairs = given_pairs(data)
    else:
        count = num_rollouts(recipe, profile, len(data.problems)) * recipe.sizes(profile).prompts_per_rollout
        # No problem twice: its answers would be the same.
        rows = problem_order(len(data.problems), min(count, len(data.problems)), inputs.seed)
        pairs, without = sampled_pairs(recipe.pairs, inputs, rows)
    order = problem_order(
        len(pairs), num_pair_updates(recipe, profile, len(pairs)) * per_update(recipe, profile), inputs.seed
    )
    yield Preferences(replace(inputs, data=replace(data, left_out=data.left_out | without)), pairs, order)


class Preferences(Trainer):
    """Trains on pairs about a TrainingData."""

    def __init__(
        self, inputs: TrainerInputs[PreferenceRecipe], pairs: Sequence[PreferencePair], order: Sequence[int]
    ) -> None:
        """`order`: the pairs of all updates."""
        self.recipe, self.pairs, self.order = inputs.recipe, pairs, list(order)
        self.per_update = per_update(inputs.recipe, inputs.profile)
        super().__init__(inputs, num_updates=len(order) // self.per_update)
        self.reference = reference_of(inputs)
        if self.recipe.credit.rule != "uniform":
            looking = self.reference if self.looks_from_start and self.reference is not None else self.model
            self.credit = credit_weights(self.recipe.credit, looking, self.processor, self.run_seed)

    @property
    def looks_from_start(self) -> bool:
        """Whether the credit is by the attention of the policy at the start, which is the reference."""
        return self.recipe.credit_from == "start"

    def updates(self, rollout: int) -> list[list[Rollout]]:
        """The one update on the next pairs: of each process its share, in micro-batches."""
        size, at_once = self.per_update // self.processes.count, self.at_once // 2
        own = self.order[rollout * self.per_update + self.processes.index * size :][:size]
        with self.clock.phase("batching"):
            return [[self.batch(own[start : start + at_once]) for start in range(0, size, at_once)]]

    def batch(self, numbers: Sequence[int]) -> Rollout:
        responses = []
        for pair in (self.pairs[number] for number in numbers):
            example, texts = self.data.example(pair.row, self.run_seed), [pair.chosen, pair.rejected]
            if self.recipe.pairs is None:  # of the row that was read, which stands in for one that cannot be
                texts = [example["chosen"], example["rejected"]]
            cut = [place for place, is_cut in enumerate((pair.chosen_is_cut, pair.rejected_is_cut)) if is_cut]
            group = given_group(self.processor, pair.row, example, texts, self.model.dtype, cut)
            responses += [SampledResponse(group, 0), SampledResponse(group, 1)]
        nothing_B = torch.zeros(len(responses), device=self.device)
        return Rollout.of(responses, nothing_B, 0, self.processor.tokenizer.pad_token_id)

    def loss(self, batch: Rollout) -> Tensor:
        """The pairs' share of the mean over those of the update."""
        with self.by_reference() as model:
            reference = self.passes.score(model, batch, self.credit if self.looks_from_start else None)
        scored = self.passes.train(self.model, batch, None if self.looks_from_start else self.credit)
        ratio_BT = (scored.logprob_BT - reference.logprob_BT) * batch.mask_BT
        if self.credit is not None:
            credit_BT = (reference if self.looks_from_start else scored).credit_BT
            assert credit_BT is not None
            ratio_BT = ratio_BT * self.waited_for(credit_BT)
        reward_B = self.recipe.beta * ratio_BT.sum(1)
        better_N, worse_N = reward_B[0::2], reward_B[1::2]
        margin_N = better_N - worse_N
        kinds = {"chosen": better_N, "rejected": worse_N, "margins": margin_N, "accuracies": (margin_N > 0).float()}
        for name, value_N in kinds.items():
            self.note(f"rewards/{name}", value_N.mean().item(), len(value_N))
        return -logsigmoid(margin_N).sum() / self.per_update
