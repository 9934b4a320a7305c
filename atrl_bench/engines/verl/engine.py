"""verl's FSDP engine, which leaves the credit of each token in the pass that computes old log-probabilities.

A batch asks for credit with `REQUEST`; `TokenCreditTrainer` puts it there for that pass alone. Every other pass, and
every run that chooses no credit, is verl's own.

Shapes: B sequences; T positions that hold all responses, the last of S, the batch being padded on the right; N tokens
of all sequences together.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils import tensordict_utils
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from atrl_bench.credit.attention_rows import visual_columns
from atrl_bench.credit.capture import install_row_capture
from atrl_bench.credit.rule import needs_of
from atrl_bench.credit.rules import credit_rule
from atrl_bench.credit.trl import CreditWeights
from atrl_bench.engines.verl.rows import PACKED_MODELS, PackedRowCapture
from atrl_bench.engines.verl.settings import KEY, ULYSSES, VerlCredit, conditions
from atrl_bench.errors import InvalidFileError

REQUEST = "token_credit_of_pass"
_OF_TOKENS = {"entropy": "entropy", "logprob": "log_probs"}  # what rules read, by verl's names for it
BACKENDS = ["fsdp", "fsdp2"]


# verl asks for the device together with its maker before it asks for the device, which is its own engine's name.
@EngineRegistry.register(model_type="language_model", backend=BACKENDS, device="cuda", vendor="nvidia")
@EngineRegistry.register(model_type="language_model", backend=BACKENDS, device="cpu")
class TokenCreditEngine(FSDPEngineWithLMHead):
    """verl's engine; `token_credit` lies among a pass's outputs as `log_probs` does, a token's at the one before it."""

    _weights: CreditWeights | None = None

    def forward_step(
        self, micro_batch: TensorDict, loss_function: Callable[..., Any] | None, forward_only: bool
    ) -> Any:
        request = tensordict_utils.get_non_tensor_data(micro_batch, REQUEST, None)
        if request is None or not forward_only:
            return super().forward_step(micro_batch, loss_function, forward_only)
        sequences = _Sequences(micro_batch)
        weights = self._weights_of(VerlCredit(**request), sequences)
        with self._record(weights, sequences) as recording:
            loss, output = super().forward_step(micro_batch, loss_function, forward_only)
        outputs = output["model_output"]
        of_tokens = {f"{name}_BT": sequences.of_responses(outputs[_OF_TOKENS[name]]) for name in weights.inputs.needs}
        credit_BT = weights.begin(
            recording,
            attention_mask_BS=sequences.is_token_BS,
            visual_BS=visual_columns(self.module.config, sequences.ids_BS) & sequences.is_token_BS,
            response_ids_BT=sequences.ids_BS[:, -sequences.num_rows :],
            response_mask_BT=sequences.response_mask_BT,
            of_tokens=of_tokens,
            needed_B=sequences.response_mask_BT.any(1).tolist(),
        )()
        outputs[KEY] = sequences.as_output(credit_BT, like=micro_batch["input_ids"])
        return loss, output

    def _weights_of(self, credit: VerlCredit, sequences: _Sequences) -> CreditWeights:
        """What turns into credit this engine's attention rows, prepared at the first pass that asks."""
        if self._weights is None:
            self._refuse()
            rule = credit_rule(credit.rule)
            if missing := [need for need in needs_of(rule) if need not in _OF_TOKENS]:
                raise InvalidFileError(
                    f"verl's engine cannot compute the credit {credit.rule!r}.",
                    why=f"It reads {', '.join(sorted(missing))}, from a second pass over changed images.",
                    next_step="train it without --rollouts verl, or choose another rule",
                )
            config = credit.credit_config()
            capture: Any = (
                PackedRowCapture(self.module, config.num_layers)
                if self.use_remove_padding
                else install_row_capture(self.module, config.num_layers)
            )
            self._weights = CreditWeights(
                rule, config, self.module, self.model_config.get_processor(), credit.seed, capture=capture
            )
        return self._weights

    def _refuse(self) -> None:
        kind = self.module.config.model_type
        if self.use_ulysses_sp:
            what, why = "verl cannot give token credit under Ulysses.", conditions()[ULYSSES]["why"]
            raise InvalidFileError(what, why=why, next_step=f"set {ULYSSES}=1")
        if self.use_remove_padding and kind not in PACKED_MODELS:
            raise InvalidFileError(
                f"verl cannot give token credit to {kind} with its padding removed.",
                why=f"Attention rows of packed sequences are known for {' and '.join(PACKED_MODELS)}.",
                next_step="set actor_rollout_ref.model.use_remove_padding=False",
            )

    def _record(self, weights: CreditWeights, sequences: _Sequences) -> AbstractContextManager[Any]:
        capture: Any = weights.capture
        if isinstance(capture, PackedRowCapture):
            return capture.record(sequences.prompt_lengths, sequences.lengths)
        return capture.record(sequences.num_rows)


class _Sequences:
    """The sequences of a micro-batch, prompt and response each, as a batch padded on the right."""

    def __init__(self, micro_batch: TensorDict) -> None:
        ids, response_mask = micro_batch["input_ids"], micro_batch["response_mask"]
        self.lengths: list[int] = ids.offsets().diff().tolist()
        responses: list[int] = response_mask.offsets().diff().tolist()
        self.prompt_lengths = [length - own for length, own in zip(self.lengths, responses, strict=True)]
        num_positions = max(self.lengths)
        self.first = min(self.prompt_lengths)  # position of the first of the T
        self.num_rows = num_positions - self.first
        self.ids_BS = torch.nested.to_padded_tensor(ids, 0)
        position_S = torch.arange(num_positions, device=self.ids_BS.device)
        self.is_token_BS = position_S < torch.tensor(self.lengths, device=position_S.device)[:, None]
        self.response_mask_BT = torch.zeros_like(self.is_token_BS[:, self.first :])
        for b, mask in enumerate(response_mask.unbind()):
            self.response_mask_BT[b, self._rows_of(b)] = mask.bool()

    def _rows_of(self, b: int) -> slice:
        return slice(self.prompt_lengths[b] - self.first, self.lengths[b] - self.first)

    def of_responses(self, output: Tensor) -> Tensor:
        """values_BT of one of verl's outputs, whose value for a token lies at the one before it."""
        values_BT = torch.zeros(self.response_mask_BT.shape, device=self.ids_BS.device)
        for b, value in enumerate(output.unbind()):
            values_BT[b, self._rows_of(b)] = value[self.prompt_lengths[b] - 1 : -1].float()
        return values_BT

    def as_output(self, values_BT: Tensor, *, like: Any) -> Tensor:
        """The values as one of verl's outputs, one at every prompt token but the last."""
        values_N = torch.ones(sum(self.lengths), device=self.ids_BS.device)
        end = 0
        for b, (prompt, length) in enumerate(zip(self.prompt_lengths, self.lengths, strict=True)):
            values_N[end + prompt - 1 : end + length - 1] = values_BT[b, self._rows_of(b)]
            end += length
        return torch.nested.nested_tensor_from_jagged(values_N, like.offsets())
