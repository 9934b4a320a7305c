"""Attention rows and credit on this device against slower ways to the same numbers.

Rows recorded under one implementation of attention are compared with those that eager attention returns
(`output_attentions`), with rows computed in double precision on the CPU from the same queries and keys, and with each
other. The distance of two rows is half the sum of their absolute differences: the share of the attention that lies
elsewhere. An implementation that reads the wrong row or forgets the padding would be off by about the distance between
the rows of neighbouring tokens, so that a limit always stays below a part of that.

Shapes: B sequences, H query heads, G key heads, T response tokens, S positions, D head dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, AttentionInterface
from transformers.utils import is_flash_attn_2_available

from atrl_bench.analysis.gpu_check.bench import Bench
from atrl_bench.analysis.gpu_check.checks import Measured, SkipCheckError
from atrl_bench.credit import (
    AttentionRows,
    Credit,
    CreditConfig,
    RowCapture,
    install_row_capture,
    token_credit,
    visual_columns,
)
from atrl_bench.models.attention import attention_of, joins_vision_windows
from atrl_bench.models.vision_windows import join_vision_windows

NUM_SEQUENCES = 4
FLASH = "flash_attention_2"
KEEPING = "keeping_queries_and_keys"
# Of two ways to the same rows. In bfloat16 the layers below round differently under each implementation: by 0.0016
# between eager and sdpa on a CPU, with 36 layers of width 2048.
ROW_LIMITS = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
NEIGHBOUR_SHARE = 0.4  # the part of the distance between neighbouring tokens that a limit never exceeds
DOUBLE_LIMIT = 1e-5  # float32 against double precision, from the same queries and keys
CREDIT_LIMIT = 1e-3


class RowChecks:
    """The checks of one batch, each implementation run once."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._rows: dict[str, list[Tensor]] = {}
        self._oracle: list[Tensor] | None = None

    def against_eager(self, name: str) -> Measured:
        """Return how far rows recorded under this implementation are from those that eager attention returns."""
        if self._oracle is None:
            self._oracle = self._eager()
        return self._compared(self.recorded(name), self._oracle)

    def against_each_other(self) -> Measured:
        """Return how far rows recorded under FlashAttention are from those under sdpa."""
        return self._compared(self.recorded(FLASH), self.recorded("sdpa"))

    def recorded(self, name: str) -> list[Tensor]:
        """Return the recorded rows of each response, (T, S) without padding."""
        if name == FLASH and not (self._bench.device.type == "cuda" and is_flash_attn_2_available()):
            no_gpu = self._bench.device.type != "cuda"
            raise SkipCheckError("no GPU" if no_gpu else "the package flash-attn is not installed")
        if name not in self._rows:
            inputs = self._inputs()
            with _capturing(self._bench.model, name) as capture:
                rows_BTS = _record(self._bench, capture, inputs)
            self._rows[name] = _valid(rows_BTS, inputs)
        return self._rows[name]

    def against_double(self) -> Measured:
        """Return how far recorded rows are from those in double precision, from the same queries and keys."""
        recorded, double = self._from_same_queries()
        distance = max(map(_distance, recorded, double))
        details = {"largest_entry_difference": max(_largest(a, b) for a, b in zip(recorded, double, strict=True))}
        return Measured(distance, "of the attention", DOUBLE_LIMIT, details)

    def credit(self) -> Measured:
        """Return how far the credit of recorded rows is from that of rows in double precision.

        METIS divides a graph whose weights differ by one rounding in another way. A response to which that happens is
        counted and not compared: its clusters are as good, and its credit is another.
        """
        recorded, double = self._from_same_queries()
        ours, theirs = self._credits(recorded), self._credits(double)
        pairs = list(zip(ours, theirs, strict=True))
        alike = [(a, b) for a, b in pairs if torch.equal(a.cluster_T, b.cluster_T)]
        # Where all credit is nearly one, any two agree: the limit stays far below what there is to agree about.
        spread = min(float(credit.credit_T.std()) for credit in theirs)
        details = {
            "responses": len(pairs),
            "with_other_clusters": len(pairs) - len(alike),
            "connectivity_difference": max(_largest(a.connectivity_T, b.connectivity_T) for a, b in pairs),
            "least_spread_of_the_credit": spread,
        }
        difference = max((_largest(a.credit_T, b.credit_T) for a, b in alike), default=0.0)
        wrong = "" if alike else "every response was divided into other clusters"
        return Measured(difference, "of a mean of 1", min(CREDIT_LIMIT, spread / 10), details, wrong=wrong)

    def _credits(self, rows: list[Tensor]) -> list[Credit]:
        inputs = self._inputs()
        visual_BS = visual_columns(self._bench.model.config, inputs["input_ids"]).cpu()
        valid_BS = inputs["attention_mask"].bool().cpu()
        return [
            token_credit(AttentionRows(rows_TS.float(), visual_BS[b][valid_BS[b]])) for b, rows_TS in enumerate(rows)
        ]

    def _inputs(self) -> dict[str, Tensor]:
        return self._bench.sequences(NUM_SEQUENCES)

    def _eager(self) -> list[Tensor]:
        inputs, num_layers = self._inputs(), CreditConfig().num_layers
        model, num_tokens = self._bench.model, self._bench.size.shape.response_tokens
        with implementation(model, "eager"), torch.no_grad():
            layers = model(**inputs, output_attentions=True, use_cache=False, logits_to_keep=1).attentions[-num_layers:]
        rows_BTS = torch.stack([layer.float().mean(1)[:, -num_tokens - 1 : -1] for layer in layers]).mean(0)
        return _valid(rows_BTS.cpu(), inputs)

    def _from_same_queries(self) -> tuple[list[Tensor], list[Tensor]]:
        inputs = self._inputs()
        with _capturing(self._bench.model, "sdpa") as capture, _keeping(self._bench.model) as kept:
            rows_BTS = _record(self._bench, capture, inputs)
            last = sorted(kept)[-len(capture.layer_indices) :]
        num_tokens = self._bench.size.shape.response_tokens
        double_BTS = torch.stack([rows_in_double(*kept[layer], inputs["attention_mask"], num_tokens) for layer in last])
        return _valid(rows_BTS, inputs), _valid(double_BTS.mean(0), inputs)

    def _compared(self, rows: list[Tensor], others: list[Tensor]) -> Measured:
        neighbours = min(_distance(each[1:], each[:-1], typical=True) for each in others)
        limit = min(ROW_LIMITS[self._bench.dtype], NEIGHBOUR_SHARE * neighbours)
        details = {"distance_of_neighbouring_tokens": neighbours, "type": str(self._bench.dtype)}
        return Measured(max(map(_distance, rows, others)), "of the attention", limit, details)


def rows_in_double(query_BHSD: Tensor, key_BGSD: Tensor, attention_mask_BS: Tensor, num_tokens: int) -> Tensor:
    """Return rows_BTS of the queries that predict the last tokens, the mean over heads, as a textbook writes them."""
    query_BHSD, key_BGSD, valid_BS = query_BHSD.cpu().double(), key_BGSD.cpu().double(), attention_mask_BS.bool().cpu()
    num_heads, num_positions, head_size = query_BHSD.shape[1:]
    key_BHSD = key_BGSD.repeat_interleave(num_heads // key_BGSD.shape[1], dim=1)
    rows = torch.arange(num_positions - num_tokens - 1, num_positions - 1)
    scores_BHTS = query_BHSD[:, :, rows] @ key_BHSD.transpose(-1, -2) / head_size**0.5
    allowed_BTS = (torch.arange(num_positions) <= rows[:, None]) & valid_BS[:, None]
    # A row that may look nowhere belongs to padding; it is cut off later and must be no NaN.
    return scores_BHTS.masked_fill(~allowed_BTS[:, None], -1e300).softmax(-1).mean(1)


def _record(bench: Bench, capture: RowCapture, inputs: dict[str, Tensor]) -> Tensor:
    with torch.no_grad(), capture.record(bench.size.shape.response_tokens) as recording:
        bench.model(**inputs, use_cache=False, logits_to_keep=1)
    return recording.rows("predicting")


def _valid(rows_BTS: Tensor, inputs: dict[str, Tensor]) -> list[Tensor]:
    """Return the rows of each response without padding, in double precision."""
    valid_BS = inputs["attention_mask"].bool().cpu()
    valid_BT = valid_BS[:, -rows_BTS.shape[1] :]
    return [rows_BTS[b][valid_BT[b]][:, valid_BS[b]].double() for b in range(len(rows_BTS))]


def _distance(rows: Tensor, others: Tensor, *, typical: bool = False) -> float:
    distance_T = (rows - others).abs().sum(-1) / 2
    return float(distance_T.median() if typical else distance_T.max())


def _largest(values: Tensor, others: Tensor) -> float:
    return float((values.double() - others.double()).abs().max())


@contextmanager
def implementation(model: Any, name: str) -> Iterator[None]:
    """Have all parts of the model use this implementation of attention within the block."""
    before, joins_windows = attention_of(model), joins_vision_windows(model)
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(before)
        if joins_windows:
            join_vision_windows(model)


@contextmanager
def _capturing(model: Any, name: str) -> Iterator[RowCapture]:
    with implementation(model, name):
        capture = install_row_capture(model, CreditConfig().num_layers)
        try:
            yield capture
        finally:
            capture.remove()


@contextmanager
def _keeping(model: Any) -> Iterator[dict[int, tuple[Tensor, Tensor]]]:
    """Yield the queries and keys of each layer of the passes inside the block, whose attention stays what it is."""
    config = model.get_decoder().config
    before, kept = config._attn_implementation, {}
    function = ALL_ATTENTION_FUNCTIONS[before]

    def keep(module: Any, query: Tensor, key: Tensor, *arguments: Any, **options: Any) -> Any:
        kept[module.layer_idx] = (query.detach(), key.detach())
        return function(module, query, key, *arguments, **options)

    AttentionInterface.register(KEEPING, keep)
    AttentionMaskInterface.register(KEEPING, ALL_MASK_ATTENTION_FUNCTIONS[before])
    config._attn_implementation = KEEPING
    try:
        yield kept
    finally:
        config._attn_implementation = before
