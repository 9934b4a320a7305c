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
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from atrl_bench.credit.anchors import anchor_auc, tokens_of_parts
from atrl_bench.credit.attention_rows import visual_columns, visual_token_ids
from atrl_bench.credit.blackening import Blackening
from atrl_bench.credit.capture import Recording, RowCapture, install_row_capture
from atrl_bench.credit.config import CreditConfig
from atrl_bench.credit.rule import Credit, CreditRule, TokenInput, looks_at_images, needs_of
from atrl_bench.credit.rules import RULES, credit_rule, with_rows_of
from atrl_bench.credit.sketch import RowSketch, SketchPlan
from atrl_bench.credit.truth import TokenTruth
from atrl_bench.credit.workers import CreditTask, CreditWorkers

if TYPE_CHECKING:
    from trl import GRPOTrainer as _Trainer
else:
    _Trainer = object  # whichever class `with_credit` is given; this module loads none


# Metrics that count rows, of which each process has its own; those of all are their sum.
COUNTS = frozenset({"credit/num_with_anchors", "credit/num_empty_visual", "credit/num_non_finite_rows"})


def joined(name: str, noted: Sequence[tuple[float, float]]) -> float:
    """Returns one value of a metric for what processes and micro-batches noted: means, and over how many each is.

    It is the mean over all of these, so that it does not depend on how they were divided; of `COUNTS` it is the sum.
    """
    defined = [(value, count) for value, count in noted if not math.isnan(value)]
    if name in COUNTS:
        return sum(value for value, _ in defined)
    total = sum(count for _, count in defined)
    return sum(value * count for value, count in defined) / total if total else math.nan


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
        """Keep what the credits of all processes are like, as TRL does with its own metrics."""
        from accelerate.utils import gather_object

        noted = self._metrics["train" if self.model.training else "eval"]
        told = gather_object([self.token_credit.pop_diagnostics()])
        for name in dict.fromkeys(name for one in told for name in one):
            noted[name].append(joined(name, [one[name] for one in told if name in one]))


class _Pass:
    """A scoring pass whose attention rows become credit; with `loss_inputs`, TRL's loss reads its advantages there."""

    def __init__(self, needed_B: Sequence[bool] | None = None, loss_inputs: dict[str, Any] | None = None) -> None:
        self.needed_B, self.loss_inputs = needed_B, loss_inputs
        self.credit_BT: Tensor | None = None


class CreditedModel:
    """A model whose calls leave the credit of the responses in them: the last `num_tokens` positions of each row.

    It is called once for all rows or for one part of them after the other, as TRL scores a batch. With workers the
    credit of one part is computed while the next goes through the model; `credit_BT` waits for all.
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
        self._credits: list[Callable[[], Tensor]] = []
        self._recordings: list[Recording] = []
        self._num_rows = 0
        self.credit_seconds = 0.0  # what the passes waited for the credit

    def __call__(self, **inputs: Any) -> Any:
        """Returns what the model returns."""
        visual_BS = self._weights.visual_columns(inputs["input_ids"], inputs.get("mm_token_type_ids"))
        response_mask_BT = inputs["attention_mask"][:, -self._num_tokens :]
        plan = self._weights.plan(inputs["attention_mask"], visual_BS, response_mask_BT)
        with self._weights.capture.record(self._num_tokens, self._weights.clock, plan) as recording:
            output = self._model(**inputs)
        started = self._weights.clock()
        part = slice(self._num_rows, self._num_rows + len(inputs["input_ids"]))
        self._num_rows = part.stop
        pending = self._weights.begin(
            recording,
            attention_mask_BS=inputs["attention_mask"],
            visual_BS=visual_BS,
            response_ids_BT=inputs["input_ids"][:, -self._num_tokens :],
            response_mask_BT=response_mask_BT,
            of_tokens=self._weights.inputs.of_pass(self._model, inputs, output, visual_BS, self._num_tokens),
            needed_B=None if self._needed_B is None else self._needed_B[part],
            truths=None if self._truths_B is None else self._truths_B[part],
        )
        self._credits.append(pending)
        self._recordings.append(recording)
        self.credit_seconds += self._weights.clock() - started
        return output

    @property
    def row_seconds(self) -> float:
        """What the attention rows took."""
        return sum(recording.seconds for recording in self._recordings)

    @property
    def credit_BT(self) -> Tensor:  # noqa: N802
        """The credit of all responses so far, one at the positions of padding."""
        return torch.cat([credit() for credit in self._credits])


class TokenInputs:
    """What rules read beside the attention rows, taken from the scoring pass that leaves those, or from one more."""

    def __init__(self, needs: frozenset[TokenInput], config: CreditConfig, processor: Any, run_seed: int) -> None:
        self.needs = needs
        self._blackening = None
        if "blackened_logprob" in needs:
            image_processor = getattr(processor, "image_processor", None)
            self._blackening = Blackening(image_processor, config.black_probability, run_seed)

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
            # Also where nothing is shown, and nothing depends on it: processes that share a model take passes together.
            with torch.no_grad():
                second = model(**inputs if pixels is None else {**inputs, "pixel_values": pixels})
            found["blackened_logprob_BT"] = (output if pixels is None else second).log_probs[:, -num_tokens:]
        return found


class SampledRows(NamedTuple):
    """A response with the attention rows that its sampling left, over the columns of its prompt and its own."""

    rows_TS: Tensor
    visual_S: Tensor
    ids: Sequence[int]
    truth: TokenTruth | None
    times: int
    """How many responses are this one."""


class CreditWeights:
    """Makes token weights of the attention rows that a model's scoring passes leave, and says what they are like."""

    def __init__(
        self,
        rule: str | CreditRule,
        config: CreditConfig,
        model: nn.Module,
        processor: Any,
        run_seed: int,
        num_workers: int = 0,
        capture: RowCapture | None = None,
        classes: Mapping[str, Callable[[Sequence[str]], Tensor]] = MappingProxyType({}),
    ) -> None:
        """`classes` say of a response's tokens, by their texts, which are of a class that diagnostics tell apart."""
        self.rule, self.model = credit_rule(rule), model
        self.config = with_rows_of(self.rule, config)
        self._shows_images = bool(visual_token_ids(model.config))
        if not self._shows_images and looks_at_images(self.rule):
            others = [name for name, one in RULES.items() if not looks_at_images(one)]
            raise ValueError(
                f"A {type(model).__name__} is a model of text alone, and this credit rule asks how tokens look at an "
                f"image. Take a model that is shown images, or one of the rules that read none: {', '.join(others)}."
            )
        self.inputs = TokenInputs(needs_of(self.rule), config, processor, run_seed)
        self.workers = CreditWorkers(num_workers)
        self.clock: Callable[[], float] = time.perf_counter
        tokenizer = getattr(processor, "tokenizer", processor)
        self.num_non_finite = 0  # responses whose rows overflowed, since diagnostics were last taken
        self.graph_seconds = 0.0  # of all token graphs so far that this process computed
        self.capture = capture or install_row_capture(model, config.num_layers)
        # Token by token, special tokens too: texts and weights stay aligned.
        self._text = cache(lambda token: tokenizer.decode([token]))
        self._run_seed, self._classes = run_seed, classes
        self._totals: dict[str, float] = defaultdict(float)
        self._counts: dict[str, int] = defaultdict(int)

    def visual_columns(self, input_ids_BS: Tensor, kinds_BS: Tensor | None = None) -> Tensor:
        """Returns which positions hold an image or video token: none in a model of text alone."""
        if not self._shows_images:
            return torch.zeros_like(input_ids_BS, dtype=torch.bool)
        return visual_columns(self.model.config, input_ids_BS, kinds_BS)

    def plan(self, attention_mask_BS: Tensor, visual_BS: Tensor, response_mask_BT: Tensor) -> SketchPlan | None:
        """Returns what a recording of this batch needs beforehand; nothing where it leaves whole rows."""
        if not self.config.sketches(response_mask_BT.shape[1]):
            return None
        return SketchPlan(self.config, attention_mask_BS, visual_BS, response_mask_BT)

    def of_pass(
        self,
        run: Callable[[], Any],
        input_ids_BS: Tensor,
        attention_mask_BS: Tensor,
        response_mask_BT: Tensor,
    ) -> Tensor:
        """Returns credit_BT from the forward pass over a batch that `run` makes, for trainers that are not TRL's.

        The T columns of the mask are the last T positions; what it leaves out, padding or a prompt, gets a credit of
        one. `run` may go through the batch in parts, one after the other.
        """
        if self.inputs.needs:
            raise ValueError(
                f"This credit rule reads {', '.join(sorted(self.inputs.needs))} of each token beside attention rows, "
                "which a pass of another trainer does not give. Choose one that reads attention alone, such as atrl."
            )
        num_tokens, visual_BS = response_mask_BT.shape[1], self.visual_columns(input_ids_BS)
        plan = self.plan(attention_mask_BS, visual_BS, response_mask_BT)
        with torch.no_grad(), self.capture.record(num_tokens, self.clock, plan) as recording:
            run()
        if plan is None:
            recorded = recording.rows_on_device(self.config.reading).shape
            if recorded != (*response_mask_BT.shape, input_ids_BS.shape[1]):
                raise ValueError(
                    f"The pass was over {recorded[0]} rows of {recorded[2]} positions; the batch is "
                    f"{len(input_ids_BS)} rows of {input_ids_BS.shape[1]}. Switch padding-free, packed and "
                    "sequence-parallel passes off."
                )
        return self.begin(
            recording,
            attention_mask_BS=attention_mask_BS,
            visual_BS=visual_BS,
            response_ids_BT=input_ids_BS[:, -num_tokens:],
            response_mask_BT=response_mask_BT,
        )()

    def begin(
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
    ) -> Callable[[], Tensor]:
        """Begin to compute the credit of each response that is `needed`; None needs all.

        Returns a function that waits for weights_BT: that credit, and one everywhere else.

        A response whose advantage is zero needs none: whatever it is multiplied by, nothing comes of it. `of_tokens` is
        what the rule reads beside the rows (`TokenInputs`); `truths` say what the tokens of each response are for,
        where that is known. What is on a device leaves it once, while the device goes on.
        """
        columns = [attention_mask_BS.bool(), visual_BS.bool(), response_mask_BT.bool(), response_ids_BT]
        columns += [value_BT.detach().float() for value_BT in of_tokens.values()]
        arrays, looked = _LeavingDevice(columns), self._looked(recording)
        names = [name.replace("_BT", "_T") for name in of_tokens]
        numbers = [b for b in range(len(response_ids_BT)) if needed_B is None or needed_B[b]]
        parts: list[Mapping[str, Any]] = []

        def prepare() -> list[CreditTask]:
            column_BS, visual_BS, row_BT, ids_BT, *beside = arrays.arrived()
            tasks = []
            for b in numbers:
                row_T, visual_S = row_BT[b], visual_BS[b][column_BS[b]]
                truth = None if truths is None else truths[b]
                of_tokens = {name: value_BT[b][row_T].numpy() for name, value_BT in zip(names, beside, strict=True)}
                found = looked(b, column_BS, row_BT)
                tasks.append(self._task(found, visual_S, ids_BT[b][row_T].tolist(), truth, of_tokens=of_tokens))
            parts.extend(task.parts for task in tasks)
            return tasks

        credits = self.workers.begin(prepare)

        @cache
        def joined() -> Tensor:
            found = credits()
            column_BS, visual_BS, row_BT, ids_BT, *_ = arrays.arrived()
            self.note_without_visual(int((~(visual_BS & column_BS).any(1)).sum()))
            weights_BT = torch.ones(ids_BT.shape, dtype=torch.float32)
            for b, credit, of_response in zip(numbers, found, parts, strict=True):
                weights_BT[b, row_BT[b]] = credit.credit_T
                self.note_credit(credit, of_response)
            return weights_BT.to(response_ids_BT.device)

        return joined

    def of_sampled(self, responses: Sequence[SampledRows]) -> list[Tensor]:
        """Returns credit_T of each response, by the rows that sampling left of it."""
        tasks = [self._task([one.rows_TS], one.visual_S, one.ids, one.truth, one.times) for one in responses]
        credits = self.workers.begin(lambda: tasks)()
        for credit, task, response in zip(credits, tasks, responses, strict=True):
            self.note_credit(credit, task.parts, response.times)
        return [credit.credit_T for credit in credits]

    def _parts(self, ids: Sequence[int], truth: TokenTruth | None) -> dict[str, Any]:
        """Returns which tokens of a response belong to each part of it that is known."""
        if truth is None and not self._classes:  # then no text is needed either
            return {}
        texts = [self._text(token) for token in ids]
        known = tokens_of_parts(truth, texts) | {name: is_of(texts) for name, is_of in self._classes.items()}
        return {name: is_part_T.numpy() for name, is_part_T in known.items()}

    def _looked(self, recording: Recording) -> Callable[[int, Tensor, Tensor], list[Tensor]]:
        """Returns a function to the tensors of the sketch of response b, or to one, its rows cut to tokens and columns.

        They leave the device apart from the rest, which stays until all credits are joined.
        """
        if getattr(recording, "plan", None) is None:  # a recording may be of somebody else's
            whole = _LeavingDevice([recording.rows_on_device(self.config.reading)])

            def cut(b: int, column_BS: Tensor, row_BT: Tensor) -> list[Tensor]:
                return [_chosen(_chosen(whole.arrived()[0][b], 0, row_BT[b]), 1, column_BS[b])]

            return cut
        leaving = [_LeavingDevice(tensors) for tensors in recording.responses()]
        return lambda b, column_BS, row_BT: leaving[b].arrived()

    def _task(
        self,
        looked: Sequence[Tensor],
        visual_S: Tensor,
        ids: Sequence[int],
        truth: TokenTruth | None,
        times: int = 1,
        of_tokens: Mapping[str, Any] = MappingProxyType({}),
    ) -> CreditTask:
        """Returns the task of one response: `looked` is its rows, or the tensors of their sketch."""
        sketch, rows_TS = None, looked[0]
        if not math.isfinite(float(rows_TS.sum())):
            # Rows of a pass that overflowed say nothing; without attention every rule gives each token the same.
            rows_TS, visual_S = torch.zeros(len(rows_TS), 1), torch.zeros(1, dtype=torch.bool)
            self.num_non_finite += times
        elif len(looked) > 1:
            rows_TS, visual_S = torch.zeros(0, 0), torch.zeros(0, dtype=torch.bool)
            sketch = RowSketch.of_tensors(looked)
        # The seed follows the response and not its place, so a shuffled batch gets the same credit.
        seed = zlib.crc32(str((self._run_seed, list(ids))).encode())
        arguments = (rows_TS.numpy(), visual_S.numpy(), self.rule, self.config, seed)
        return CreditTask(*arguments, dict(of_tokens), self._parts(ids, truth), sketch)

    def note_without_visual(self, num_responses: int) -> None:
        """Count responses whose prompt shows nothing."""
        self._counts["empty_visual"] += num_responses

    def note_credit(self, credit: Credit, parts: Mapping[str, Any], times: int = 1) -> None:
        """Keep what the credit of so many responses is like, and whether it is on the right tokens: boolean arrays."""
        if not self.workers.num_workers:
            self.graph_seconds += credit.graph_seconds
        for name, value in credit.diagnostics.items():
            self._note(name, value, times)
        if "perception" in parts:
            is_anchor_T = torch.from_numpy(parts["perception"])
            self._note("anchor_auc", anchor_auc(credit.credit_T, is_anchor_T), times)
            self._note("anchor_auc_connectivity", anchor_auc(credit.connectivity_T, is_anchor_T), times)
        for name in self._classes.keys() & parts.keys():
            if (is_of_class_T := torch.from_numpy(parts[name])).any():
                self._note(f"{name}_share", float(credit.credit_T[is_of_class_T].sum() / credit.credit_T.sum()), times)
                self._note(f"{name}_tokens", float(is_of_class_T.double().mean()), times)

    def pop_diagnostics(self) -> dict[str, tuple[float, float]]:
        """Returns means since the last call, and over how many responses each is, and `COUNTS`.

        Those of `anchor_auc` are the responses that transcribe their image.
        """
        totals, counts = self._totals, self._counts
        told = {f"credit/{name}": (total / counts[name], float(counts[name])) for name, total in totals.items()}
        told["credit/num_with_anchors"] = (float(counts["anchor_auc"]), 1.0)
        told["credit/num_empty_visual"] = (float(counts["empty_visual"]), 1.0)
        told["credit/num_non_finite_rows"] = (float(self.num_non_finite), 1.0)
        self.num_non_finite = 0
        self._totals.clear()
        self._counts.clear()
        return told

    def _note(self, name: str, value: float, times: int) -> None:
        if not math.isnan(value):
            self._totals[name] += value * times
            self._counts[name] += times


def _chosen(values: Tensor, dim: int, is_chosen: Tensor) -> Tensor:
    """Returns the chosen rows or columns; all of them without a copy."""
    return values if bool(is_chosen.all()) else values.index_select(dim, is_chosen.nonzero()[:, 0])


class _LeavingDevice:
    """Tensors on their way to the CPU; the device does not wait for them."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._event: torch.cuda.Event | None = None
        if not tensors[0].is_cuda:
            self._copies = [tensor.cpu() for tensor in tensors]
            return
        self._copies = [torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True) for tensor in tensors]
        for copy, tensor in zip(self._copies, tensors, strict=True):
            copy.copy_(tensor, non_blocking=True)
        self._event = torch.cuda.Event()
        self._event.record(torch.cuda.current_stream(tensors[0].device))

    def arrived(self) -> list[Tensor]:
        """Returns them, once they are there."""
        if self._event is not None:
            self._event.synchronize()
        return self._copies


def credited(advantages: Tensor, credit_BT: Tensor) -> Tensor:
    """Returns advantages_BT: those of responses, or of tokens already, times the credit of each token."""
    return (advantages.unsqueeze(1) if advantages.ndim == 1 else advantages) * credit_BT
