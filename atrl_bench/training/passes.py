"""Passes of a model over the responses of a rollout: what they say of each token, and its attention rows on the way.

A prompt that several responses share goes through once (shared_prompts.py); where that cannot be, responses of similar
length go through together and are cut to their longest: on the mini profile a third of all positions were padding. The
result is that of a padded batch, row by row, up to rounding.

Shapes: B responses, T response tokens, S positions; b and t of one call of the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from atrl_bench.credit.trl import CreditedModel, CreditWeights
from atrl_bench.engines.processes import launched
from atrl_bench.training.rollout import Rollout, ScoredTokens, joined_visuals
from atrl_bench.training.sharding import put_away
from atrl_bench.training.shared_prompts import SharedPrompts, unwrapped, why_not

# Two passes over shorter rows beat one over longer ones from about here on.
MIN_ROWS_TO_HALVE = 16


def computing_in(dtype: torch.dtype, device: torch.device) -> torch.autocast:
    """A context in which a model whose weights are float32 computes in this type."""
    return torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16)


class Passes:
    """Makes them, `size` responses at a time, computing in this type."""

    def __init__(self, computes_in: torch.dtype, size: int) -> None:
        self._computes_in, self._size = computes_in, size
        self.trim_padding = True

    def score(
        self,
        model: Any,
        rollout: Rollout,
        credit: CreditWeights | None = None,
        needed_B: Sequence[bool] | None = None,
        *,
        trim: bool = True,
    ) -> ScoredTokens:
        """A pass without gradients; with `credit`, the credit of the responses that need one begins in it."""
        shares = trim and self.trim_padding and why_not(unwrapped(model)) is None
        with torch.no_grad():
            scored = self._through(model, rollout, self._size, credit, needed_B, shares, by_prompt=shares, trim=trim)
        put_away(model)
        return scored

    def train(
        self,
        model: Any,
        rollout: Rollout,
        credit: CreditWeights | None = None,
        needed_B: Sequence[bool] | None = None,
    ) -> ScoredTokens:
        """The pass of a micro-batch, with gradients."""
        shares, size = self.trim_padding and why_not(unwrapped(model)) is None, len(rollout)
        if not shares and self.trim_padding and launched().count == 1 and size >= MIN_ROWS_TO_HALVE:
            size = math.ceil(size / 2)  # which costs no second reduction
        return self._through(model, rollout, size, credit, needed_B, shares)

    def _through(
        self,
        model: Any,
        rollout: Rollout,
        size: int,
        credit: CreditWeights | None,
        needed_B: Sequence[bool] | None,
        shares: bool,
        *,
        by_prompt: bool = False,
        trim: bool = True,
    ) -> ScoredTokens:
        num_tokens = rollout.mask_BT.shape[1]
        batch = {"input_ids": rollout.input_ids, "attention_mask": rollout.attention_mask, **rollout.token_fields}
        parts = parts_of(batch, num_tokens, size, trim=trim and self.trim_padding, by_prompt=by_prompt)
        # Who hides parts of an image looks for its pixels in the call.
        shows = credit is not None and "blackened_logprob" in credit.inputs.needs
        logprobs: list[Tensor] = []
        entropies: list[Tensor] = []
        watching: list[CreditedModel] = []
        for part in parts:
            rows = part.rows.tolist()
            visuals_b = [rollout.visuals_B[row] for row in rows]
            shown = joined_visuals(visuals_b, rollout.mask_BT.device) if shows or not shares else {}
            called = model
            if shares:
                called = SharedPrompts(model, unwrapped(model), part.num_tokens, () if shows else visuals_b)
            if credit is not None:
                needed_b = None if needed_B is None else [needed_B[row] for row in rows]
                truths_b = [rollout.truths_B[row] for row in rows]
                called = CreditedModel(called, credit, part.num_tokens, needed_b, truths_b)
                watching.append(called)
            labels = part.batch["input_ids"].masked_fill(part.batch["attention_mask"] == 0, -100)
            labels[:, : -part.num_tokens] = -100  # of response tokens alone
            with self.computing(rollout.mask_BT.device):
                output = called(**part.batch, **shown, labels=labels, fused_lm_head=True)
            logprobs.append(output.log_probs[:, -part.num_tokens :])
            if output.entropy is not None:  # the reference's is not asked for
                entropies.append(output.entropy[:, -part.num_tokens :])
        together = partial(joined, parts=parts, num_tokens=num_tokens)
        scored = ScoredTokens(together(logprobs), together(entropies) if entropies else None)
        if watching:
            scored.credit_BT = lambda: together([one.credit_BT for one in watching], fill=1.0)
            scored.seconds["attention_rows"] = sum(one.row_seconds for one in watching)
            scored.seconds["credit"] = sum(one.credit_seconds for one in watching)
        return scored

    def computing(self, device: torch.device) -> torch.autocast:
        return computing_in(self._computes_in, device)

    def prompts_read(self, model: Any) -> str:
        """How often these passes read a prompt that several responses share."""
        reason = why_not(unwrapped(model))
        return "once in a micro-batch" if reason is None else f"with each response: {reason}"


# Padding that no row of a pass needs is not computed ------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """Some rows of a batch, cut to their longest prompt and response."""

    rows: Tensor
    batch: dict[str, Tensor]
    num_tokens: int


def parts_of(
    batch: Mapping[str, Tensor], num_tokens: int, size: int, *, trim: bool, by_prompt: bool = False
) -> list[Part]:
    """The batch in parts of `size` rows: by length and cut if `trim`, else as they come.

    By the length of the prompt if `by_prompt`: responses to the same prompt that come together stay together.

    `batch` has a value per position, of which the last `num_tokens` are the responses.
    """
    mask_BS = batch["attention_mask"]
    num_rows, length = mask_BS.shape
    # The row of every real batch is whole on both sides of the seam, so its valid positions are one stretch.
    sorted_by_BS = mask_BS[:, : length - num_tokens] if by_prompt else mask_BS
    order_B = sorted_by_BS.sum(1).argsort(stable=True) if trim else torch.arange(num_rows)
    parts = []
    for rows in order_B.cpu().split(size):
        fields = {name: value[rows.to(value.device)] for name, value in batch.items()}
        valid_S = fields["attention_mask"].any(0)
        if trim:
            start, stop = int(valid_S.int().argmax()), length - int(valid_S.flip(0).int().argmax())
        else:
            start, stop = 0, length
        # One response token at least: a part of empty responses still has the shape of one.
        stop = max(stop, length - num_tokens + 1)
        cut = {name: value[:, start:stop] for name, value in fields.items()}
        parts.append(Part(rows, cut, num_tokens - (length - stop)))
    return parts


def joined(values_Bt: Sequence[Tensor], parts: Sequence[Part], num_tokens: int, *, fill: float = 0.0) -> Tensor:
    """The parts' values per response token in the order and shape of the whole batch."""
    pad = torch.nn.functional.pad
    padded = [pad(value, (0, num_tokens - value.shape[1]), value=fill) for value in values_Bt]
    whole_BT = torch.cat(padded)
    rows = torch.cat([part.rows for part in parts])
    if torch.equal(rows, torch.arange(len(rows))):
        return whole_BT
    return whole_BT[rows.argsort().to(whole_BT.device)]
