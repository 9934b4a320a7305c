"""From recorded attention rows to the weight of each response token, with what a report wants to know about it.

Shapes: B responses, T response tokens padded on the right, S positions of prompt and response together.
"""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from atrl_bench.credit import (
    RULES,
    CreditConfig,
    Recording,
    anchor_auc,
    install_row_capture,
    split_attention_rows,
    token_credit,
    transcribed_tokens,
)
from atrl_bench.errors import InvalidFileError, UnknownNameError
from atrl_bench.training.recipe import CreditChoice


def credit_config(choice: CreditChoice) -> CreditConfig:
    """Return the credit hyperparameters that a recipe chose; an unknown rule or field is the recipe's error."""
    if choice.rule not in RULES:
        raise UnknownNameError("credit rule", choice.rule, RULES, next_step="atrl-bench list credit")
    try:
        return CreditConfig.preset(choice.preset).replace(**choice.settings)
    except (TypeError, ValueError) as error:
        raise InvalidFileError(
            f"credit {choice.rule}: {error}", next_step="give settings that are fields of CreditConfig"
        ) from None


class CreditWeights:
    """Records the attention rows of scoring passes and turns them into token weights."""

    def __init__(self, choice: CreditChoice, model: nn.Module, tokenizer: Any, run_seed: int) -> None:
        self.config = credit_config(choice)
        self.rule = choice.rule
        self.needs_entropy = choice.rule == "high_entropy"
        self.graph_seconds = 0.0  # of all token graphs so far
        self.capture = install_row_capture(model, self.config.num_layers)
        # Token by token, special tokens too: texts and weights stay aligned.
        self._text = cache(lambda token: tokenizer.decode([token]))
        self._run_seed = run_seed
        self._totals: dict[str, float] = defaultdict(float)
        self._counts: dict[str, int] = defaultdict(int)

    def weights(
        self,
        recording: Recording,
        *,
        attention_mask_BS: Tensor,
        visual_BS: Tensor,
        response_ids_BT: Tensor,
        response_mask_BT: Tensor,
        entropy_BT: Tensor | None,
        needed_B: Sequence[bool],
        transcriptions: Sequence[str | None],
    ) -> Tensor:
        """Return weights_BT: the credit of each response that is `needed`, one everywhere else.

        A response whose advantage is zero needs none: whatever it is multiplied by, nothing comes of it.
        """
        weights_BT = torch.ones(response_ids_BT.shape, dtype=torch.float32)
        rows_BTS = recording.rows(self.config.reading)
        # Rows of a pass that overflowed say nothing; without attention every rule gives each token the same.
        finite_B = rows_BTS.isfinite().all(-1).all(-1)
        self._counts["non_finite_rows"] += int((~finite_B).sum())
        rows_BTS = torch.where(finite_B[:, None, None], rows_BTS, 0.0)
        attention_B = split_attention_rows(rows_BTS, attention_mask_BS, visual_BS, response_mask_BT, entropy_BT)
        ids_BT = response_ids_BT.cpu()
        for b, attention in enumerate(attention_B):
            row_T = response_mask_BT[b].bool().cpu()
            self._counts["empty_visual"] += not bool(attention.visual_S.any())
            if not needed_B[b]:
                continue
            token_ids = ids_BT[b][row_T].tolist()
            # The seed follows the response and not its place, so a shuffled batch gets the same credit.
            seed = zlib.crc32(str((self._run_seed, token_ids)).encode())
            credit = token_credit(attention, self.rule, self.config, seed)
            weights_BT[b, row_T] = credit.credit_T
            self.graph_seconds += credit.graph_seconds
            for name, value in credit.diagnostics.items():
                self._note(name, value)
            if transcriptions[b]:
                is_anchor_T = transcribed_tokens([self._text(token) for token in token_ids], str(transcriptions[b]))
                self._note("anchor_auc", anchor_auc(credit.credit_T, is_anchor_T))
                self._note("anchor_auc_connectivity", anchor_auc(credit.connectivity_T, is_anchor_T))
        return weights_BT.to(response_ids_BT.device)

    def pop_diagnostics(self) -> dict[str, float]:
        """Return means since the last call (`anchor_auc`: over responses that transcribe their image), and counts."""
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
