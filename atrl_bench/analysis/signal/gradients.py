"""The gradient of one prompt's responses under each of several credit rules, as training would take it.

A prompt's responses are sampled, graded and given their group-relative advantages by the trainer. Its loss is then
asked for once a rule, with the advantages times that rule's credit, without the KL term, which no credit changes.

Shapes: B responses to one prompt, T tokens, R rules, D measured parameters.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from atrl_bench.analysis.signal.rule_choice import RuleChoice
from atrl_bench.credit.anchors import anchor_auc, tokens_of_parts
from atrl_bench.credit.attention_rows import AttentionRows, split_attention_rows, visual_columns
from atrl_bench.credit.capture import RowCapture, install_row_capture
from atrl_bench.credit.config import CreditConfig, Reading
from atrl_bench.credit.rule import Credit, needs_of
from atrl_bench.credit.rules import credit_rule, token_credit
from atrl_bench.credit.trl import TokenInputs
from atrl_bench.errors import InvalidFileError
from atrl_bench.profiles import Profile, Rollouts
from atrl_bench.training.recipe import RolloutRecipe, load_recipe
from atrl_bench.training.rollouts import build
from atrl_bench.training.run import load_inputs

if TYPE_CHECKING:
    from atrl_bench.training.trainer import CreditTrainer


@dataclass(frozen=True)
class PromptGradients:
    """What one prompt's responses give. Where all fail or all succeed there is no gradient."""

    gradient_RD: Tensor | None
    success: float
    top_share_R: list[float]
    """The share of a rule's weight on the 15 % of tokens that have the most of it."""
    repeated_R: list[float]
    """The correlation of a rule's credit with itself under another seed; NaN where it is the same for all tokens."""
    anchor_auc_R: list[float]
    """The chance that a token read from the image has more credit than another one; NaN where none is known."""


class GradientMeter:
    """Takes gradients at a checkpoint, prompt by prompt."""

    def __init__(self, trainer: CreditTrainer, rules: Sequence[str], config: CreditConfig) -> None:
        self.trainer, self.rules, self.config = trainer, [RuleChoice.of(label) for label in rules], config
        trainer.model.train()
        trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps
        self._capture = install_row_capture(trainer.model, config.num_layers)
        needs = frozenset().union(*(needs_of(credit_rule(one.rule)) for one in self.rules))
        self._inputs = TokenInputs(needs, config, trainer.processing_class, trainer.run_seed)
        self._parameters = [weight for weight in trainer.model.parameters() if weight.requires_grad]

    def of_prompt(self, row: int) -> PromptGradients:
        """Return the gradients of problem `row` of the training set."""
        trainer = self.trainer
        batch = trainer._generate_and_score_completions([{"row": row}] * trainer.num_generations)
        success = trainer._metrics["train"]["accuracy"].pop()
        advantage_B1 = batch["advantages"].unsqueeze(1)
        if not advantage_B1.any():
            nothing = [math.nan] * len(self.rules)
            return PromptGradients(None, success, nothing, nothing, nothing)
        mask_BT = batch["completion_mask"].bool()
        attention_B = self._attention(batch, row)
        anchors_B = [
            attention.parts.get("perception", torch.zeros(len(attention.rows_TS))) for attention in attention_B
        ]
        first_RB, second_RB = ([self._credits(rule, attention_B, seed) for rule in self.rules] for seed in (1, 2))
        return PromptGradients(
            torch.stack([self._gradient(batch, advantage_B1 * _padded(first_B, mask_BT)) for first_B in first_RB]),
            success,
            [known_mean(credit.diagnostics["top15_share"] for credit in first_B) for first_B in first_RB],
            [known_mean(map(_agreement, *both)) for both in zip(first_RB, second_RB, strict=True)],
            [
                known_mean(anchor_auc(c.credit_T, anchors) for c, anchors in zip(first_B, anchors_B, strict=True))
                for first_B in first_RB
            ],
        )

    @property
    def num_parameters(self) -> int:
        """How many parameters are measured."""
        return sum(weight.numel() for weight in self._parameters)

    def success(self, rows: Sequence[int], step_D: Tensor | None = None) -> float:
        """Return the share of right responses to these problems, after a step against this gradient if one is given.

        The step is as long as the profile's learning rate. The random numbers are the same for every step; afterwards
        the weights are as before.
        """
        before = [] if step_D is None else [weight.detach().clone() for weight in self._parameters]
        try:
            if step_D is not None:
                parts = step_D.split([weight.numel() for weight in self._parameters])
                with torch.no_grad():
                    for weight, part in zip(self._parameters, parts, strict=True):
                        weight -= self.trainer.args.learning_rate * part.view_as(weight).to(weight)
            groups = self.trainer._generate_together(rows, "held out")
            return float(torch.cat([group.accuracies.clamp(min=0) for group in groups]).mean())
        finally:
            with torch.no_grad():
                for weight, value in zip(self._parameters, before, strict=False):
                    weight.copy_(value)

    def _attention(self, batch: Mapping[str, Any], row: int) -> list[AttentionRows]:
        num_tokens, reading = batch["completion_ids"].shape[1], self.config.reading
        reader = _ReadingModel(self.trainer.model, self._capture, self._inputs, reading, num_tokens)
        self.trainer.score(batch, "old policy", trim=False, model=reader)
        truth, decode = self.trainer.data.problems[row].truth, self.trainer._tokenizer.decode
        ids_B = [
            ids_T[mask_T].tolist()
            for ids_T, mask_T in zip(batch["completion_ids"], batch["completion_mask"].bool(), strict=True)
        ]
        return [
            replace(attention, parts=tokens_of_parts(truth, [decode([token]) for token in ids]))
            for attention, ids in zip(reader.attention_B, ids_B, strict=True)
        ]

    def _credits(self, choice: RuleChoice, attention_B: Sequence[AttentionRows], seed: int) -> list[Credit]:
        # METIS takes the seed 0 for 1, so the first is 1.
        return [
            token_credit(attention, choice.rule, choice.config, 2 * b + seed) for b, attention in enumerate(attention_B)
        ]

    def _gradient(self, batch: Mapping[str, Any], advantages_BT: Tensor) -> Tensor:
        self.trainer.model.zero_grad()
        self.trainer._compute_loss(self.trainer.model, {**batch, "advantages": advantages_BT}).backward()
        return torch.cat([weight.grad.flatten().float().cpu() for weight in self._parameters])


class _ReadingModel:
    """A model whose call leaves the attention rows of the responses in it, and all that the rules read beside them."""

    def __init__(self, model: Any, capture: RowCapture, inputs: TokenInputs, reading: Reading, num_tokens: int) -> None:
        self._model, self._capture, self._inputs = model, capture, inputs
        self._reading, self._num_tokens = reading, num_tokens
        self.attention_B: list[AttentionRows] = []

    def __call__(self, **inputs: Any) -> Any:
        """Return what the model returns."""
        with self._capture.record(self._num_tokens) as recording:
            output = self._model(**inputs)
        visual_BS = visual_columns(self._model.config, inputs["input_ids"], inputs.get("mm_token_type_ids"))
        self.attention_B += split_attention_rows(
            recording.rows(self._reading),
            inputs["attention_mask"],
            visual_BS,
            inputs["attention_mask"][:, -self._num_tokens :],
            **self._inputs.of_pass(self._model, inputs, output, visual_BS, self._num_tokens),
        )
        return output


@contextmanager
def gradient_meter(
    run_dir: Path,
    model: str,
    data_dir: Path | None,
    profile: Profile,
    recipe: str,
    rules: Sequence[str],
    seed: int,
    *,
    data: str | None = None,
) -> Iterator[GradientMeter]:
    """Yield the meter of a checkpoint on a recipe's training set, or on `data`, one prompt at a time."""
    loaded = load_recipe(recipe, kl_coef=0.0, schedule="strict", **({} if data is None else {"data": data}))
    if not isinstance(loaded, RolloutRecipe):
        raise InvalidFileError(
            f"Recipe {recipe} samples no responses.", next_step="atrl-bench signal MODEL --recipe grpo"
        )
    group_size = profile.training.group_size
    one_prompt = {"prompts_per_rollout": 1, "completions_per_device": group_size, "num_rollouts": 1}
    # By the model itself: an engine beside it would not see the step that is tried.
    changes = {"training": profile.training.model_copy(update=one_prompt), "rollouts": Rollouts()}
    profile = profile.model_copy(update=changes)
    with build(load_inputs(run_dir, loaded, profile, model, data_dir, seed)) as trainer:
        yield GradientMeter(trainer, rules, CreditConfig())


def known_mean(values: Iterable[float]) -> float:
    """Return the mean of the values that are numbers; NaN where none is."""
    known = [value for value in values if not math.isnan(value)]
    return statistics.fmean(known) if known else math.nan


def _padded(credit_B: Sequence[Credit], mask_BT: Tensor) -> Tensor:
    credit_BT = torch.ones(mask_BT.shape)
    for credit_T, mask_T, credit in zip(credit_BT, mask_BT.cpu(), credit_B, strict=True):
        credit_T[mask_T] = credit.credit_T
    return credit_BT.to(mask_BT.device)


def _agreement(one: Credit, other: Credit) -> float:
    if len(one.credit_T) < 2 or not one.credit_T.std() or not other.credit_T.std():
        return math.nan
    return float(torch.corrcoef(torch.stack([one.credit_T, other.credit_T]))[0, 1])
