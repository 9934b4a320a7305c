"""Token credit in a TRL trainer of your own, in three lines:

    from atrl_bench.credit.trl import with_credit
    Trainer = with_credit(GRPOTrainer, rule="atrl")
    Trainer(model=..., reward_funcs=..., args=GRPOConfig(...), train_dataset=...).train()

Every model that TRL's GRPOTrainer trains on images will do, with LoRA too, and with responses that vLLM samples. The
attention rows come from a forward pass that TRL makes in any case: the one for the old log-probabilities or, with one
update a rollout, where TRL has none, the training pass, which is the same policy. The advantages of the loss become
(B, T), which TRL's loss takes from subclasses; nothing else of TRL changes, and a credit of one for every token is
plain TRL to the last bit.

Shapes: B responses, T response tokens padded on the right, S positions of prompt and response together.
"""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from atrl_bench.credit.anchors import anchor_auc, tokens_of_parts
from atrl_bench.credit.attention_rows import split_attention_rows, visual_columns
from atrl_bench.credit.blackening import Blackening
from atrl_bench.credit.capture import Recording, install_row_capture, now
from atrl_bench.credit.config import CreditConfig
from atrl_bench.credit.rule import CreditRule, TokenInput, needs_of
from atrl_bench.credit.rules import credit_rule, token_credit
from atrl_bench.credit.truth import TokenTruth

if TYPE_CHECKING:
    from trl import GRPOTrainer as _Trainer
else:
    _Trainer = object  # whichever class `with_credit` is given; this module loads none


def with_credit(trainer: type, rule: str | CreditRule = "atrl", config: CreditConfig | None = None) -> type:
    """Returns a subclass of this GRPOTrainer, TRL's or your own, that multiplies advantages by token credit.

    `rule` is a name of `atrl-bench list rules`, or a function `(attention, config, seed) -> Credit`. The trainer is
    used as before; its metrics also have `credit/...`.
    """
    fields = {"rule": staticmethod(credit_rule(rule)), "credit_config": config or CreditConfig()}
    return type(f"{trainer.__name__}WithCredit", (TokenCreditMixin, trainer), fields)


class TokenCreditMixin(_Trainer):
    """A mixin before TRL's GRPOTrainer; `with_credit` sets its rule and settings."""

    rule: Callable[..., Any]
    credit_config: CreditConfig

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.importance_sampling_level == "sequence":
            raise ValueError(
                "With importance_sampling_level='sequence' all tokens of a response move as one, so that a credit "
                "would change nothing. Set 'token' in the GRPOConfig; GSPO's own token form is our recipe gspo."
            )
        self.token_credit = CreditWeights(
            self.rule, self.credit_config, self.model, self.processing_class, self.args.seed
        )
        self._about_to_credit: _Pass | None = None

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        old_policy = _Pass() if self._scores_old_policy() else None
        self._about_to_credit = old_policy
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if "tool_mask" in batch:
            raise ValueError("Token credit is not defined where tools write a part of the response.")
        if (old_policy is not None) != ("old_per_token_logps" in batch):
            raise RuntimeError("This version of TRL scores the old policy under other conditions than TRL 1.16.")
        if old_policy is not None:
            batch["credit"] = old_policy.credit_BT
            self._note_credit()
        return batch

    def _scores_old_policy(self) -> bool:
        """Whether TRL makes a pass of its own for the old log-probabilities; this is its rule."""
        every = self.args.steps_per_generation * self.num_iterations
        corrects_vllm = self.use_vllm and self.vllm_importance_sampling_correction
        return bool(self.args.gradient_accumulation_steps % every) or corrects_vllm

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        *arguments: Any,
        **options: Any,
    ) -> Any:
        called, self._about_to_credit = self._about_to_credit, None
        if called is not None:
            model = CreditedModel(model, self.token_credit, logits_to_keep, called.needed_B)
        scored = super()._get_per_token_logps_and_entropies(
            model, input_ids, attention_mask, logits_to_keep, *arguments, **options
        )
        if called is not None:
            called.credit_BT = model.credit_BT
            if called.loss_inputs is not None:
                called.loss_inputs["advantages"] = credited(called.loss_inputs["advantages"], model.credit_BT)
        return scored

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        inputs = dict(inputs)  # the batch is kept for reuse, with the advantages that TRL gave it
        if "credit" in inputs:
            inputs["advantages"] = credited(inputs["advantages"], inputs["credit"])
        else:
            needed_B = (inputs["advantages"] != 0).tolist()
            self._about_to_credit = _Pass(needed_B, loss_inputs=inputs)
        loss: Tensor = super()._compute_loss(model, inputs)
        if "credit" not in inputs:
            self._note_credit()
        return loss

    def _note_credit(self) -> None:
        mode = "train" if self.model.training else "eval"
        for name, value in self.token_credit.pop_diagnostics().items():
            self._metrics[mode][name].append(value)


class _Pass:
    """A scoring pass whose attention rows become credit; with `loss_inputs`, TRL's loss reads its advantages there."""

    def __init__(self, needed_B: Sequence[bool] | None = None, loss_inputs: dict[str, Any] | None = None) -> None:
        self.needed_B, self.loss_inputs = needed_B, loss_inputs
        self.credit_BT: Tensor | None = None


class CreditedModel:
    """A model whose calls leave the credit of the responses in them: the last `num_tokens` positions of each row.

    It is called once for all rows or for one part of them after the other, as TRL scores a batch.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        weights: CreditWeights,
        num_tokens: int,
        needed_B: Sequence[bool] | None = None,
        truths_B: Sequence[TokenTruth | None] | None = None,
    ) -> None:
        self._model, self._weights, self._num_tokens = model, weights, num_tokens
        self._needed_B, self._truths_B = needed_B, truths_B
        self._credits: list[Tensor] = []
        self._num_rows = 0
        self.row_seconds = 0.0  # what the attention rows took
        self.credit_seconds = 0.0  # what the credit of them took

    def __call__(self, **inputs: Any) -> Any:
        """Returns what the model returns."""
        with self._weights.capture.record(self._num_tokens) as recording:
            output = self._model(**inputs)
        started = now(inputs["input_ids"])
        part = slice(self._num_rows, self._num_rows + len(inputs["input_ids"]))
        self._num_rows = part.stop
        visual_BS = visual_columns(self._weights.model.config, inputs["input_ids"], inputs.get("mm_token_type_ids"))
        weights_BT = self._weights.weights(
            recording,
            attention_mask_BS=inputs["attention_mask"],
            visual_BS=visual_BS,
            response_ids_BT=inputs["input_ids"][:, -self._num_tokens :],
            response_mask_BT=inputs["attention_mask"][:, -self._num_tokens :],
            of_tokens=self._weights.inputs.of_pass(self._model, inputs, output, visual_BS, self._num_tokens),
            needed_B=None if self._needed_B is None else self._needed_B[part],
            truths=None if self._truths_B is None else self._truths_B[part],
        )
        self._credits.append(weights_BT)
        self.row_seconds += recording.seconds
        self.credit_seconds += now(inputs["input_ids"]) - started
        return output

    @property
    def credit_BT(self) -> Tensor:  # noqa: N802
        """The credit of all responses so far, one at the positions of padding."""
        return torch.cat(self._credits)


class TokenInputs:
    """What rules read beside the attention rows, taken from the scoring pass that leaves those, or from one more."""

    def __init__(self, needs: frozenset[TokenInput], config: CreditConfig, processor: Any, run_seed: int) -> None:
        self.needs = needs
        self._blackening = None
        if "blackened_logprob" in needs:
            image_processor = getattr(processor, "image_processor", None)
            self._blackening = Blackening.of(image_processor, config.black_probability, run_seed)

    def of_pass(
        self,
        model: Callable[..., Any],
        inputs: Mapping[str, Any],
        output: Any,
        visual_BS: Tensor,
        num_tokens: int,
    ) -> dict[str, Tensor]:
        """Returns the further arguments of `split_attention_rows`: numbers of the last T positions of each row."""
        found = {}
        if "entropy" in self.needs:
            found["entropy_BT"] = output.entropy[:, -num_tokens:]
        if "logprob" in self.needs:
            found["logprob_BT"] = output.log_probs[:, -num_tokens:]
        if self._blackening is not None:
            pixels = self._blackening.pixels(inputs, visual_BS, num_tokens)
            if pixels is None:  # no image: nothing depends on it
                found["blackened_logprob_BT"] = output.log_probs[:, -num_tokens:]
            else:
                with torch.no_grad():
                    second = model(**{**inputs, "pixel_values": pixels})
                found["blackened_logprob_BT"] = second.log_probs[:, -num_tokens:]
        return found


class CreditWeights:
    """Makes token weights of the attention rows that a model's scoring passes leave, and says what they are like."""

    def __init__(
        self, rule: str | CreditRule, config: CreditConfig, model: nn.Module, processor: Any, run_seed: int
    ) -> None:
        self.rule, self.config, self.model = credit_rule(rule), config, model
        self.inputs = TokenInputs(needs_of(self.rule), config, processor, run_seed)
        tokenizer = getattr(processor, "tokenizer", processor)
        self.graph_seconds = 0.0  # of all token graphs so far
        self.capture = install_row_capture(model, config.num_layers)
        # Token by token, special tokens too: texts and weights stay aligned.
        self._text = cache(lambda token: tokenizer.decode([token]))
        self._run_seed = run_seed
        self._totals: dict[str, float] = defaultdict(float)
        self._counts: dict[str, int] = defaultdict(int)

    @torch.autocast("cpu", enabled=False)  # that of a loss on a CPU would turn a rule's products into bfloat16
    def weights(
        self,
        recording: Recording,
        *,
        attention_mask_BS: Tensor,
        visual_BS: Tensor,
        response_ids_BT: Tensor,
        response_mask_BT: Tensor,
        of_tokens: Mapping[str, Tensor] = MappingProxyType({}),
        needed_B: Sequence[bool] | None = None,
        truths: Sequence[TokenTruth | None] | None = None,
    ) -> Tensor:
        """Returns weights_BT: the credit of each response that is `needed`, one everywhere else; None needs all.

        A response whose advantage is zero needs none: whatever it is multiplied by, nothing comes of it. `of_tokens` is
        what the rule reads beside the rows (`TokenInputs`); `truths` say what the tokens of each response are for,
        where that is known.
        """
        weights_BT = torch.ones(response_ids_BT.shape, dtype=torch.float32)
        rows_BTS = recording.rows(self.config.reading)
        # Rows of a pass that overflowed say nothing; without attention every rule gives each token the same.
        finite_B = rows_BTS.isfinite().all(-1).all(-1)
        self._counts["non_finite_rows"] += int((~finite_B).sum())
        rows_BTS = torch.where(finite_B[:, None, None], rows_BTS, 0.0)
        attention_B = split_attention_rows(rows_BTS, attention_mask_BS, visual_BS, response_mask_BT, **of_tokens)
        ids_BT = response_ids_BT.cpu()
        for b, attention in enumerate(attention_B):
            row_T = response_mask_BT[b].bool().cpu()
            self._counts["empty_visual"] += not bool(attention.visual_S.any())
            if needed_B is not None and not needed_B[b]:
                continue
            token_ids = ids_BT[b][row_T].tolist()
            # The seed follows the response and not its place, so a shuffled batch gets the same credit.
            seed = zlib.crc32(str((self._run_seed, token_ids)).encode())
            truth = None if truths is None else truths[b]
            parts = tokens_of_parts(truth, [self._text(token) for token in token_ids])
            credit = token_credit(replace(attention, parts=parts), self.rule, self.config, seed)
            weights_BT[b, row_T] = credit.credit_T
            self.graph_seconds += credit.graph_seconds
            for name, value in credit.diagnostics.items():
                self._note(name, value)
            if "perception" in parts:
                self._note("anchor_auc", anchor_auc(credit.credit_T, parts["perception"]))
                self._note("anchor_auc_connectivity", anchor_auc(credit.connectivity_T, parts["perception"]))
        return weights_BT.to(response_ids_BT.device)

    def pop_diagnostics(self) -> dict[str, float]:
        """Returns means since the last call (`anchor_auc`: over responses that transcribe their image), and counts."""
        means = {f"credit/{name}": total / self._counts[name] for name, total in self._totals.items()}
        means["credit/num_with_anchors"] = float(self._counts["anchor_auc"])
        for name in ("empty_visual", "non_finite_rows"):
            means[f"credit/num_{name}"] = float(self._counts[name])
        self._totals.clear()
        self._counts.clear()
        return means

    def _note(self, name: str, value: float) -> None:
        if not math.isnan(value):
            self._totals[name] += value
            self._counts[name] += 1


def credited(advantages: Tensor, credit_BT: Tensor) -> Tensor:
    """Returns advantages_BT: those of responses, or of tokens already, times the credit of each token."""
    return (advantages.unsqueeze(1) if advantages.ndim == 1 else advantages) * credit_BT
