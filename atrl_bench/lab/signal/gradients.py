"""The gradient of one prompt's responses under each of several credit rules, as training would take it.

A prompt's responses are sampled, graded and given their group-relative advantages by the trainer. Its loss is then
asked for once a rule, with the advantages times that rule's credit, without the KL term, which no credit changes.

Shapes: B responses to one prompt, T tokens, R rules, D measured parameters.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from atrl_bench.credit.anchors import anchor_auc, tokens_of_parts
from atrl_bench.credit.attention_rows import AttentionRows, split_attention_rows, visual_columns
from atrl_bench.credit.capture import RowCapture, install_row_capture
from atrl_bench.credit.config import CreditConfig, Reading
from atrl_bench.credit.rule import Credit, needs_of
from atrl_bench.credit.rules import credit_rule, token_credit
from atrl_bench.credit.trl import TokenInputs
from atrl_bench.data.sets import find_set
from atrl_bench.errors import InvalidFileError
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.lab.signal.request import RuleChoice, SignalRequest
from atrl_bench.profiles import Profile, Rollouts
from atrl_bench.training.rollout import Rollout, per_token
from atrl_bench.training.rollouts import build
from atrl_bench.training.run import load_inputs

if TYPE_CHECKING:
    from atrl_bench.training.loop import Loop


@dataclass(frozen=True)
class PromptGradients:
    """What one prompt's responses give. Where all fail or all succeed there is no gradient."""

    gradient_RD: Tensor | None
    success: float
    top_share_R: list[float]
    """The share of a rule's weight on the 15 % of tokens that have the most of it."""
    reliability_R: list[float]
    """The correlation of a rule's credit with itself under another seed; NaN where it is the same for all tokens."""
    anchor_auc_R: list[float]
    """The chance that a token read from the image has more credit than another one; NaN where none is known."""


class GradientMeter:
    """Takes gradients at a checkpoint, prompt by prompt."""

    def __init__(self, trainer: Loop, rules: Sequence[str], config: CreditConfig, parameters: str = "all") -> None:
        self.trainer, self.rules, self.config = trainer, [RuleChoice.of(label) for label in rules], config
        trainer.model.train()
        self._capture = install_row_capture(trainer.model, config.num_layers)
        needs = frozenset().union(*(needs_of(credit_rule(one.rule)) for one in self.rules))
        self._inputs = TokenInputs(needs, config, trainer.processor, trainer.run_seed)
        self.weights = measured_parameters(trainer.model, parameters)
        self._unlearned = trainer.checkpoints.folder
        self._unlearned.mkdir(parents=True, exist_ok=True)
        trainer.estimator.save(self._unlearned)

    def of_prompt(self, row: int) -> PromptGradients:
        """The gradients of problem `row` of the training set."""
        trainer = self.trainer
        rollout, *_ = trainer.make_rollout([row])
        trainer.estimator.load(self._unlearned)  # a critic has learned from the rollout
        (success, _), advantage_BT = trainer.notes["accuracy"].pop(), per_token(rollout.advantages)
        if not advantage_BT.any():
            nothing = [math.nan] * len(self.rules)
            return PromptGradients(None, success, nothing, nothing, nothing)
        mask_BT = rollout.mask_BT.bool()
        attention_B = self._attention(rollout, row)
        anchors_B = [one.parts.get("perception", torch.zeros(len(one.rows_TS))) for one in attention_B]
        first_RB, second_RB = ([self._credits(rule, attention_B, seed) for rule in self.rules] for seed in (1, 2))
        return PromptGradients(
            torch.stack([self._gradient(rollout, advantage_BT * _padded(first_B, mask_BT)) for first_B in first_RB]),
            success,
            [known_mean(credit.diagnostics["top15_share"] for credit in first_B) for first_B in first_RB],
            [known_mean(map(_agreement, *both)) for both in zip(first_RB, second_RB, strict=True)],
            [known_mean(map(anchor_auc, [one.credit_T for one in first_B], anchors_B)) for first_B in first_RB],
        )

    @property
    def num_parameters(self) -> int:
        return sum(weight.numel() for weight in self.weights)

    @torch.no_grad()
    def success(self, rows: Sequence[int], step_D: Tensor | None = None) -> float:
        """The share of right responses to these problems, after a step against this gradient if one is given.

        The step is as long as the profile's learning rate. The random numbers are the same for every step; afterwards
        the weights are as before.
        """
        before = [] if step_D is None else [weight.clone() for weight in self.weights]
        try:
            if step_D is not None:
                for weight, part in zip(self.weights, step_D.split([one.numel() for one in self.weights]), strict=True):
                    weight.sub_(part.view_as(weight).to(weight), alpha=self.trainer.sizes.learning_rate)
            groups = self.trainer.generate(rows, "held out")
            return float(torch.cat([group.accuracies.clamp(min=0) for group in groups]).mean())
        finally:
            for weight, value in zip(self.weights, before, strict=False):
                weight.copy_(value)

    def _attention(self, rollout: Rollout, row: int) -> list[AttentionRows]:
        num_tokens, reading = rollout.mask_BT.shape[1], self.config.reading
        reader = _ReadingModel(self.trainer.model, self._capture, self._inputs, reading, num_tokens)
        self.trainer.score(rollout, trim=False, model=reader)
        truth, of_responses = self.trainer.data.problems[row].token_truth, []
        for one, ids_T, mask_T in zip(reader.attention_B, rollout.response_ids_BT, rollout.mask_BT, strict=True):
            texts = self.trainer.token_texts(ids_T[mask_T.bool()].tolist())
            of_responses.append(replace(one, parts=tokens_of_parts(truth, texts)))
        return of_responses

    def _credits(self, choice: RuleChoice, attention_B: Sequence[AttentionRows], seed: int) -> list[Credit]:
        # METIS takes the seed 0 for 1, so the first is 1.
        return [token_credit(one, choice.rule, choice.config, 2 * b + seed) for b, one in enumerate(attention_B)]

    def _gradient(self, rollout: Rollout, advantages_BT: Tensor) -> Tensor:
        self.trainer.model.zero_grad()
        counts_BT = self.trainer.counts(rollout, len(rollout))
        self.trainer.loss(replace(rollout, advantages=advantages_BT, counts_BT=counts_BT)).backward()
        # A weight that these responses did not reach, an adapter of the image where there is none, has no gradient.
        grads = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in self.weights]
        return torch.cat([grad.flatten().float().cpu() for grad in grads])


class _ReadingModel:
    """A model whose call leaves the attention rows of the responses in it, and all that the rules read beside them."""

    def __init__(self, model: Any, capture: RowCapture, inputs: TokenInputs, reading: Reading, num_tokens: int) -> None:
        self._model, self._capture, self._inputs = model, capture, inputs
        self._reading, self._num_tokens = reading, num_tokens
        self.attention_B: list[AttentionRows] = []

    def __call__(self, **inputs: Any) -> Any:
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
def gradient_meter(request: SignalRequest, run_dir: RunDir, folder: Path) -> Iterator[GradientMeter]:
    """Yield the meter of a request's checkpoint on its training set; what a trainer writes goes into `folder`."""
    profile, data_dir = measured_profile(run_dir.profile), run_dir.data_dir(find_set(request.data).folder)
    with build(load_inputs(folder, request.measured_recipe, profile, request.model, data_dir, request.seed)) as trainer:
        yield GradientMeter(trainer, request.rules, CreditConfig(), request.parameters)


def measured_profile(profile: Profile) -> Profile:
    """The profile in which a rollout is one group, sampled by the model itself."""
    one_prompt = {"prompts_per_rollout": 1, "completions_per_device": profile.training.group_size, "num_rollouts": 1}
    # By the model itself: an engine beside it would not see the step that is tried.
    changes = {"training": profile.training.model_copy(update=one_prompt), "rollouts": Rollouts()}
    return profile.model_copy(update=changes)


def measured_parameters(model: nn.Module, parameters: str) -> list[Tensor]:
    """The weights that are trained, or those of them whose name has the pattern; the others are frozen."""
    trained: dict[str, Tensor] = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    if parameters in ("all", "lora"):
        return list(trained.values())
    try:
        chosen = {name for name in trained if re.search(parameters, name)}
    except re.error as error:
        raise InvalidFileError(
            f"--parameters {parameters!r} is no pattern.", why=str(error), next_step="write all, lora or a pattern"
        ) from None
    if not chosen:
        raise InvalidFileError(
            f"No weight has {parameters!r} in its name.",
            why=f"Names are like {', '.join(list(trained)[-3:])}.",
            next_step="write all, lora, or a pattern of names, as in --parameters 'layers\\.2[4-7]\\.'",
        )
    for name, weight in trained.items():
        weight.requires_grad_(name in chosen)
    return [trained[name] for name in trained if name in chosen]


def known_mean(values: Iterable[float]) -> float:
    """The mean of the values that are numbers; NaN where none is."""
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
