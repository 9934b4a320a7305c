"""Training on preferences: TRL's DPOTrainer with a credit for each token of both responses; its loss is used as it is.

With the credit c of a response's own tokens, mean one over the response, the loss is

    -log sigma( beta ( sum_t c^w_t log pi(y^w_t) / pi_ref(y^w_t) - sum_t c^l_t log pi(y^l_t) / pi_ref(y^l_t) ) ).

The paper writes one c_t for both responses, whose tokens do not correspond and whose lengths differ; here each has its
own. TRL sums what the models return, so the log-probabilities of both are multiplied where they are returned.

Shapes: B sequences (the better responses, then the worse), T positions from the first response token on, S positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from accelerate.utils import is_peft_model
from datasets import Dataset
from torch import Tensor, nn
from trl import DPOConfig, DPOTrainer
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import use_adapter

from atrl_bench.credit import visual_columns
from atrl_bench.credit.trl import CreditWeights
from atrl_bench.training.arguments import num_devices, num_pair_updates, num_rollouts, pair_arguments, per_update
from atrl_bench.training.order import problem_order
from atrl_bench.training.pairs import given_pairs, refuse_videos, sampled_pairs
from atrl_bench.training.recipe import PreferenceRecipe
from atrl_bench.training.resumable import Resumable
from atrl_bench.training.trainer_inputs import TrainerInputs
from atrl_bench.training.weights.credit import credit_weights


@contextmanager
def build(inputs: TrainerInputs[PreferenceRecipe]) -> Iterator[CreditDPOTrainer]:
    """Yield the trainer of a run on its pairs, which are sampled first unless the run has them already."""
    recipe, profile, data = inputs.recipe, inputs.profile, inputs.data
    refuse_videos(data)
    without: dict[str, int] = {}
    if recipe.pairs is None:
        pairs = given_pairs(data)
    else:
        count = num_rollouts(recipe, profile, len(data.problems)) * recipe.sizes(profile).prompts_per_rollout
        # No problem twice: its answers would be the same.
        rows = problem_order(len(data.problems), min(count, len(data.problems)), inputs.seed)
        pairs, without = sampled_pairs(recipe.pairs, inputs, rows)
    updates = num_pair_updates(recipe, profile, len(pairs))
    fields = pair_arguments(recipe, profile, updates=updates, num_devices=num_devices(), seed=inputs.seed)
    order = problem_order(len(pairs), updates * per_update(recipe, profile), inputs.seed)

    def examples(batch: dict[str, list[int]]) -> dict[str, list[Any]]:
        batch_pairs = [pairs[index] for index in batch["pair"]]
        problems = [data.example(pair.row, inputs.seed) for pair in batch_pairs]
        return {
            "prompt": [problem["prompt"] for problem in problems],
            "images": [problem["images"] for problem in problems],
            "chosen": [[{"role": "assistant", "content": pair.chosen}] for pair in batch_pairs],
            "rejected": [[{"role": "assistant", "content": pair.rejected}] for pair in batch_pairs],
        }

    yield CreditDPOTrainer(
        replace(inputs, data=replace(data, left_out=data.left_out | without)),
        args=inputs.trl_config(DPOConfig, fields),
        train_dataset=Dataset.from_dict({"pair": order}).with_transform(examples),
    )


class CreditDPOTrainer(Resumable, DPOTrainer):
    """DPOTrainer on pairs about a TrainingData, with token credit and resumable updates."""

    def __init__(self, inputs: TrainerInputs[PreferenceRecipe], **trl: Any) -> None:
        super().__init__(inputs, peft_config=inputs.peft_config, **trl)
        self.recipe = recipe = inputs.recipe
        if recipe.credit.rule != "uniform":
            self.credit = credit_weights(recipe.credit, self._looking_model(), self.processing_class, self.run_seed)

    def _looking_model(self) -> nn.Module:
        """The model whose attention gives the credit; the policy at the start is the reference."""
        from_start = self.recipe.credit_from == "start" and self.ref_model is not None
        model: nn.Module = self.ref_model if from_start else self.model
        return model

    def _compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool = False) -> Any:
        if self.credit is None:
            return super()._compute_loss(model, inputs, return_outputs)
        with self.clock.phase("credit"):
            weights_BT = self._credit(inputs, self.credit)
        models = [self.accelerator.unwrap_model(self.model)] + ([self.ref_model] if self.ref_model is not None else [])
        with multiplied_logprobs(models, weights_BT):
            return super()._compute_loss(model, inputs, return_outputs)

    def _credit(self, inputs: dict[str, Any], credit: CreditWeights) -> Tensor:
        """weights_BT: the credit of each response token, one elsewhere, from one more scoring pass."""
        input_ids, mask_BS = inputs["input_ids"], inputs["completion_mask"]
        num_tokens = input_ids.shape[1] - int(mask_BS.argmax(1).min())
        fields = {name: value for name, value in inputs.items() if name != "completion_mask"}
        with (
            credit.capture.record(num_tokens) as recording,
            torch.no_grad(),
            disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs),
            self._adapters_as_at_the_start(),
            self.accelerator.autocast(),
        ):
            output = self._looking_model()(
                **fields, use_cache=False, labels=input_ids.masked_fill(mask_BS == 0, -100), fused_lm_head=True
            )
        visual_BS = visual_columns(self.model.config, input_ids, inputs.get("mm_token_type_ids"))
        weights_BT = credit.weights(
            recording,
            attention_mask_BS=inputs["attention_mask"],
            visual_BS=visual_BS,
            response_ids_BT=input_ids[:, -num_tokens:],
            response_mask_BT=mask_BS[:, -num_tokens:],
            of_tokens=credit.inputs.of_pass(self._looking_model(), fields, output, visual_BS, num_tokens),
        )
        self.note_credit()
        return weights_BT

    def _adapters_as_at_the_start(self) -> AbstractContextManager[Any]:
        """A context without the adapters, where the credit is the start's and there is one model for both."""
        if self.recipe.credit_from == "start" and is_peft_model(self.model):
            context: AbstractContextManager[Any] = use_adapter(self.accelerator.unwrap_model(self.model), None)
            return context
        return nullcontext()


@contextmanager
def multiplied_logprobs(models: Sequence[nn.Module], weights_BT: Tensor) -> Iterator[None]:
    """Multiply the log-probabilities that the models return inside the block; weights are of the last T positions."""

    def multiply(_module: nn.Module, _arguments: Any, output: Any) -> Any:
        before = output.log_probs.shape[1] - weights_BT.shape[1]
        output.log_probs = output.log_probs * nn.functional.pad(weights_BT, (before, 0), value=1.0)
        return output

    handles = [model.register_forward_hook(multiply) for model in models]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
