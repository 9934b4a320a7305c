"""Attention rows of the response tokens, taken from the forward pass that happens anyway.

A model's own attention function (sdpa, flash, eager) is wrapped under a new name in transformers' AttentionInterface.
The wrapper calls the original for the output, which therefore stays what it was to the last bit. While a recording is
on, it also computes softmax(q k^T) once more for the few query rows asked for, in float32, and adds them to a mean
over heads and layers. The T x S mean is all that is ever kept; with a `SketchPlan` not even that.

Shapes: B sequences, H query heads, G key heads, R recorded rows, S positions, K those that some rows look at, C those
of one response, D head dimension.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ParamSpec

import torch
from torch import Tensor, nn

from atrl_bench.credit.config import Reading
from atrl_bench.credit.sketch import BLOCK, SketchPlan, sample_step

P = ParamSpec("P")
_SUFFIX = "_with_rows"
# Scores held at once, in elements: what fits the cache of a core, or keeps a GPU busy.
_MAX_SCORES = {True: 2**18, False: 2**24}


class Recording:
    """The rows of the forward passes made while it is on, in their order; see `RowCapture.record`."""

    def __init__(
        self,
        layers: dict[Any, int],
        num_rows: int,
        clock: Callable[[], float] | None,
        plan: SketchPlan | None = None,
    ) -> None:
        self.num_rows, self.plan = num_rows, plan
        self._clock = clock
        self._asked: list[Asked] = []
        self._passes: list[list[Asked]] = []
        self._responses: list[list[Tensor]] = []
        self._spans: list[tuple[Any, Any]] = []
        self._layers = layers
        self._sum_BRS: Tensor | None = None
        self._seen: set[int] = set()
        self._finished: list[Tensor] = []

    @property
    def seconds(self) -> float:
        """What the recording added to its forward passes; on a GPU this waits for the last of them."""
        total = 0.0
        for start, end in self._spans:
            if isinstance(start, float):
                total += end - start
            else:
                end.synchronize()
                total += start.elapsed_time(end) / 1000
        return total

    def rows(self, reading: Reading) -> Tensor:
        """Returns rows_BTS, float32 on the CPU, one row per response token, averaged over heads and layers.

        `own` is the row of the token's own query; `predicting` that of the query one position before, from whose
        output the token was drawn. Columns that are padding hold zeros.
        """
        return self.rows_on_device(reading).cpu()

    def rows_on_device(self, reading: Reading) -> Tensor:
        """Returns the same where the model computed them, without waiting for that."""
        self._require_whole_passes(len(self._finished))
        if len({chunk.shape[2] for chunk in self._finished}) > 1:
            raise ValueError("The recorded passes have different lengths; read them one recording at a time.")
        rows_BRS = torch.cat(self._finished)
        return rows_BRS[:, 1:] if reading == "own" else rows_BRS[:, :-1]

    def take(self) -> list[Asked]:
        """Returns what each layer was asked in the one pass since the last call, and forgets it."""
        [asked] = self._passes
        self._passes.clear()
        return asked

    def responses(self) -> list[list[Tensor]]:
        """Returns of each response of the plan, where the model computed them, the tensors of a `RowSketch`.

        Or one, its whole rows, where the config wants those.
        """
        self._require_whole_passes(len(self._responses))
        if self.plan is None or len(self._responses) != len(self.plan.rows):
            raise ValueError(f"The passes were over {len(self._responses)} rows; the batch is another.")
        return self._responses

    def _require_whole_passes(self, num_recorded: int) -> None:
        if self._seen:
            raise ValueError(f"A recorded forward pass ended after {len(self._seen)} of {len(self._layers)} layers.")
        if not num_recorded:
            raise ValueError("No forward pass of the model was recorded inside `with capture.record(...)`.")

    def _ask(self, module: nn.Module, asked: Asked) -> None:
        """Keep what a layer was asked until the last one: which columns are sinks only the mean of all layers says."""
        self._asked.append(asked)
        self._seen.add(self._layers[module])
        if len(self._seen) < len(self._layers):
            return
        if self.plan is None:
            self._passes.append(self._asked)
        else:
            for b in range(len(asked.query_BHRD)):
                self._responses.append(self._looked(self.plan, b))
        self._asked = []
        self._seen.clear()

    def _looked(self, plan: SketchPlan, b: int) -> list[Tensor]:
        """Returns what `responses` has of row b of the pass."""
        number = len(self._responses)
        num_positions = self._asked[0].key_BGSD.shape[2]
        if number >= len(plan.rows) or num_positions != plan.num_positions:
            raise ValueError(
                f"The pass has rows of {num_positions} positions; the batch is {len(plan.rows)} rows of "
                f"{plan.num_positions}. Switch padding-free, packed and sequence-parallel passes off, or set "
                "rows='exact'."
            )
        row_T, column_C = plan.rows[number], plan.columns[number]
        if not len(row_T):
            return [torch.zeros(0, len(column_C))]
        start, end, is_own = int(row_T[0]), int(row_T[-1]) + 1, plan.config.reading == "own"

        def rows(first: int, end: int, step: int = 1) -> Tensor:
            """Returns the mean over layers of these tokens' rows, cut to the columns of the response that some see."""
            chosen = slice(first + is_own, end + is_own, step)
            rows_RK = functools.reduce(torch.add, (asked.rows(b, chosen) for asked in self._asked)) / len(self._layers)
            seen_C = column_C[column_C < rows_RK.shape[1]].to(rows_RK.device)
            return rows_RK if len(seen_C) == rows_RK.shape[1] else rows_RK.index_select(1, seen_C)

        def of_tokens(first: int, end: int) -> Tensor:
            """Returns the rows of those that are the response's own, where something may stand between them."""
            token_R = row_T[(row_T >= first) & (row_T < end)] - first
            rows_RC = rows(first, end)
            return rows_RC if len(token_R) == len(rows_RC) else rows_RC.index_select(0, token_R.to(rows_RC.device))

        if not plan.config.sketches(len(row_T)):
            rows_TC = of_tokens(start, end)
            return [nn.functional.pad(rows_TC, (0, len(column_C) - rows_TC.shape[1]))]
        sketcher = plan.sketcher(number, rows(start, end, sample_step(len(row_T))).mean(dim=0))
        for first in range(start, end, BLOCK):
            sketcher.add(of_tokens(first, min(first + BLOCK, end)))
        return sketcher.tensors()

    def _add(self, module: nn.Module, rows_BRS: Tensor) -> None:
        self._sum_BRS = rows_BRS if self._sum_BRS is None else self._sum_BRS + rows_BRS
        self._seen.add(self._layers[module])
        if len(self._seen) == len(self._layers):
            self._finished.append(self._sum_BRS / len(self._layers))
            self._sum_BRS = None
            self._seen.clear()


class RowCapture:
    """A model prepared for recording; made by `install_row_capture`."""

    def __init__(self, layers: list[Any], implementation: str) -> None:
        self._layers: dict[Any, int] = {layer: index for index, layer in enumerate(layers)}
        self._implementation = implementation

    @property
    def layer_indices(self) -> list[int]:
        """The numbers, from 0, of the decoder layers whose rows are averaged."""
        return [layer.layer_idx for layer in self._layers]

    def record(
        self,
        num_response_tokens: int,
        clock: Callable[[], float] = time.perf_counter,
        plan: SketchPlan | None = None,
    ) -> AbstractContextManager[Recording]:
        """Records the rows of the last `num_response_tokens` positions of each forward pass made inside the block.

        That is the layout of teacher-forced scoring: prompts padded on the left, responses on the right, TRL's
        `logits_to_keep`. Several passes (micro-batches) append in their order. Backward passes inside the block
        record nothing, so gradient checkpointing, which runs the forward again, counts once. Outside the block
        nothing is computed: generation and reference passes are as fast as without us.

        Sequences packed into one row (flash attention without a mask) look at their own columns alone. The positions
        are then those of the whole row, to be cut at the sequences by whoever packed them.

        With a `plan`, that of all rows of all passes, the rows of long responses are sketched and never held
        (`Recording.responses`).

        `clock` times what the recording adds on a CPU; on a GPU the device's own does.
        """
        if num_response_tokens < 1:
            raise ValueError(f"num_response_tokens is {num_response_tokens}; it should be at least 1.")
        # One row more in front: that of the query which predicted the first response token.
        return self._record(num_response_tokens + 1, clock, plan)

    def record_next(self) -> AbstractContextManager[Recording]:
        """Records what the last position of each pass asks, from whose output the next token is drawn.

        Passes may go on from a cache that has the keys of all positions before: this is for decoding. Whoever takes
        it, by `Recording.take`, before the next pass, makes rows of it: those of many tokens at once are faster.
        """
        return self._record(1, clock=None)

    @contextmanager
    def _record(
        self, num_rows: int, clock: Callable[[], float] | None, plan: SketchPlan | None = None
    ) -> Iterator[Recording]:
        if _recording.get() is not None:
            raise ValueError("A recording is on already; recordings do not nest.")
        recording = Recording(self._layers, num_rows, clock, plan)
        token = _recording.set(recording)
        try:
            yield recording
        finally:
            _recording.reset(token)

    def remove(self) -> None:
        """Gives the model its original attention function back."""
        for layer in self._layers:
            layer.config._attn_implementation = self._implementation


def install_row_capture(model: nn.Module, num_layers: int = 4) -> RowCapture:
    """Returns a RowCapture for the last `num_layers` attention layers of the model's text decoder.

    Takes any transformers model whose attention goes through AttentionInterface, also inside PEFT or DDP. Only the
    text decoder's implementation is renamed; the vision tower keeps its own. Installing twice is harmless. Layers of
    linear attention have no rows and do not count: the last four of Qwen3.5 are every fourth of its last sixteen.
    """
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, AttentionInterface

    if num_layers < 1:
        raise ValueError(f"num_layers is {num_layers}; it should be at least 1.")
    layers = attention_layers(model)[-num_layers:]
    if not layers:
        raise ValueError(f"{type(model).__name__} has no text decoder with causal self-attention layers.")
    original = str(layers[0].config._attn_implementation).removesuffix(_SUFFIX)
    name = original + _SUFFIX
    if original == "eager":
        function = _call_eager
    elif original in ALL_ATTENTION_FUNCTIONS:
        function = ALL_ATTENTION_FUNCTIONS[original]
    else:
        raise ValueError(f"Attention implementation {original!r} is not in transformers' AttentionInterface.")
    AttentionInterface.register(name, with_rows(function, original))
    # Without its mask function transformers passes no mask at all to an unknown name, and padding is attended to.
    if original in ALL_MASK_ATTENTION_FUNCTIONS:
        AttentionMaskInterface.register(name, ALL_MASK_ATTENTION_FUNCTIONS[original])
    for layer in layers:
        layer.config._attn_implementation = name
    return RowCapture(layers, original)


_recording: ContextVar[Recording | None] = ContextVar("recording", default=None)


def is_recording() -> bool:
    """Returns whether a recording is on."""
    return _recording.get() is not None


def attention_layers(model: Any) -> list[Any]:
    """Returns the decoder's self-attention modules in the order of their layers."""
    while not hasattr(model, "get_decoder") or hasattr(model, "get_base_model"):
        inner = model.get_base_model() if hasattr(model, "get_base_model") else getattr(model, "module", None)
        if inner is None:
            raise ValueError(f"{type(model).__name__} is no transformers model with a text decoder.")
        model = inner
    layers = [
        module
        for module in model.get_decoder().modules()
        if isinstance(getattr(module, "layer_idx", None), int)
        and getattr(module, "is_causal", False)
        and hasattr(module, "config")
    ]
    return sorted(layers, key=lambda layer: layer.layer_idx)


def _call_eager(module: nn.Module, *arguments: Any, **options: Any) -> tuple[Tensor, Tensor | None]:
    # Eager attention is no entry of the interface: each model file has its own function, handed over as a default.
    return sys.modules[type(module).__module__].eager_attention_forward(module, *arguments, **options)


def with_rows(function: Callable[..., Any], original: str = "sdpa") -> Callable[..., Any]:
    """Returns the attention function with the recording of rows; `original` is its name in transformers."""
    is_flash = "flash" in original

    def attention_with_rows(
        module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
    ) -> Any:
        # A recompute of gradient checkpointing runs inside a backward pass, where torch counts a graph task.
        recording = _recording.get()
        if recording is not None and module in recording._layers and torch._C._current_graph_task_id() == -1:
            started = _moment(recording, query)
            _record(recording, module, query, key, attention_mask, options, is_flash=is_flash)
            if started is not None:
                recording._spans.append((started, _moment(recording, query)))
        if not is_flash:
            return function(module, query, key, value, attention_mask, **options)
        # Flash attention looks its kernel up by the name in the config, so it must read the original one.
        module.config._attn_implementation = original
        try:
            return function(module, query, key, value, attention_mask, **options)
        finally:
            module.config._attn_implementation = original + _SUFFIX

    return attention_with_rows


def _moment(recording: Recording, tensor: Tensor) -> Any:
    """Return the time, on a GPU as an event among its kernels: waiting for them would leave it idle."""
    if recording._clock is None:
        return None
    if not tensor.is_cuda:
        return float(recording._clock())
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(tensor.device))
    return event


def left_uncompiled(function: Callable[P, None]) -> Callable[P, None]:
    """Returns the function as `torch.compile` leaves it alone; where nothing is compiled its compiler is not loaded.

    `torch.compiler.disable` alone loads all of it at once, which takes longer than the rest of this module.
    """

    disabled = functools.cache(lambda: torch.compiler.disable(function))

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        (disabled() if "torch._dynamo" in sys.modules else function)(*args, **kwargs)

    run._torchdynamo_disable = True  # type: ignore[attr-defined]  # what torch looks for before it traces a call
    return run


@left_uncompiled
def _record(
    recording: Recording,
    module: Any,
    query_BHSD: Tensor,
    key_BGSD: Tensor,
    attention_mask: Tensor | None,
    options: dict[str, Any],
    *,
    is_flash: bool,
) -> None:
    num_rows, num_positions = recording.num_rows, key_BGSD.shape[2]
    num_queries = query_BHSD.shape[2]
    # Where the last positions alone ask, the mask has to say at which keys each may look: the very last at all.
    says_where = num_rows == 1 or (attention_mask is not None and attention_mask.ndim == 4)
    if num_queries != num_positions and (not says_where or num_rows > num_queries):
        raise ValueError("Record whole sequences: this pass continues from a key-value cache.")
    if num_rows > num_positions:
        raise ValueError(
            f"{num_rows - 1} response tokens and one before them do not fit into {num_positions} positions."
        )
    # Other implementations ignore the lengths and would look across sequences.
    for unsupported in ("s_aux", "position_bias") if is_flash else ("cu_seq_lens_q", "s_aux", "position_bias"):
        if options.get(unsupported) is not None:
            raise ValueError(
                f"Cannot record attention that is packed or not a plain softmax: it came with {unsupported}."
            )
    scaling = options.get("scaling")
    scaling = query_BHSD.shape[-1] ** -0.5 if scaling is None else scaling
    window, softcap = options.get("sliding_window"), options.get("softcap")
    if num_rows == 1:
        recording._ask(module, Asked(query_BHSD[:, :, -1:], key_BGSD, attention_mask, scaling, window, softcap))
        return
    sequence_S = None
    if is_flash and attention_mask is None:
        sequence_S = packed_sequences(
            len(query_BHSD), num_positions, options.get("cu_seq_lens_q"), options.get("position_ids")
        )
    is_causal = options.get("is_causal")
    is_causal = module.is_causal if is_causal is None else is_causal
    # Autocast would turn the float32 products back into bfloat16.
    with torch.no_grad(), torch.autocast(query_BHSD.device.type, enabled=False):
        if recording.plan is not None:
            if sequence_S is not None or not is_causal:
                raise ValueError("Sketches are of causal attention over one sequence a row. Set rows='exact'.")
            query_BHRD = query_BHSD[:, :, -num_rows:]
            recording._ask(module, Asked(query_BHRD, key_BGSD, attention_mask, scaling, window, softcap))
            return
        mask_BHRS = rows_of_mask(
            attention_mask,
            num_rows,
            num_positions,
            query_BHSD.device,
            is_causal=is_causal,
            sliding_window=window,
        )
        if sequence_S is not None:
            same_RS = sequence_S[-num_rows:, None] == sequence_S
            mask_BHRS = same_RS[None, None] if mask_BHRS is None else mask_BHRS & same_RS
        rows_BRS = attention_rows(
            query_BHSD[:, :, -num_rows:],
            key_BGSD,
            mask_BHRS,
            scaling=scaling,
            softcap=softcap,
        )
    recording._add(module, rows_BRS)


@dataclass(frozen=True, eq=False)
class Asked:
    """What a layer was asked: the queries of the recorded rows, the keys of all positions and who may look where."""

    query_BHRD: Tensor
    key_BGSD: Tensor
    mask: Tensor | None
    scaling: float
    sliding_window: int | None
    softcap: float | None

    def rows(self, b: int, chosen: slice) -> Tensor:
        """Returns rows_RK of sequence b, which look at K positions: those up to the last row's."""
        num_behind = self.query_BHRD.shape[2] - chosen.stop
        num_looked_at = self.key_BGSD.shape[2] - num_behind
        mask = self.mask
        if mask is not None:
            mask = mask[b : b + 1] if len(mask) > 1 else mask
            mask = mask[:, :, : mask.shape[2] - num_behind] if mask.ndim == 4 else mask[:, :num_looked_at]
        mask_BHRK = rows_of_mask(
            mask,
            chosen.stop - chosen.start,
            num_looked_at,
            self.query_BHRD.device,
            sliding_window=self.sliding_window,
            step=chosen.step or 1,
        )
        query_1HRD, key_1GKD = self.query_BHRD[b : b + 1, :, chosen], self.key_BGSD[b : b + 1, :, :num_looked_at]
        return attention_rows(query_1HRD, key_1GKD, mask_BHRK, scaling=self.scaling, softcap=self.softcap)[0]


def packed_sequences(
    num_rows: int, num_positions: int, cu_seq_lens: Tensor | None, position_ids: Tensor | None
) -> Tensor | None:
    """Returns sequence_S, which of several sequences laid end to end each position belongs to; None where it is one.

    Flash attention, without a mask, reads that from the lengths or, in a batch of one row, from positions that begin
    again; this is its rule.
    """
    if cu_seq_lens is not None:
        if num_rows > 1:
            raise ValueError(f"Packed sequences should be one row; these are {num_rows} with cu_seq_lens_q.")
        position_S = torch.arange(num_positions, device=cu_seq_lens.device)
        return torch.searchsorted(cu_seq_lens[1:].long(), position_S, right=True)
    if position_ids is None or num_rows > 1:
        return None
    position_S, first = position_ids[0], position_ids.min()
    if torch.equal(position_S, first + torch.arange(num_positions, device=position_S.device)):
        return None
    return (position_S == first).cumsum(0)


def rows_of_mask(
    attention_mask: Tensor | None,
    num_rows: int,
    num_positions: int,
    device: torch.device,
    *,
    is_causal: bool = True,
    sliding_window: int | None = None,
    step: int = 1,
) -> Tensor | None:
    """Returns the mask of the last rows, (B or 1, H or 1, R, S): booleans (True: may look) or numbers to add.

    With a `step` only every so many of them, from the first.

    Attention functions get masks in three forms: four dimensions of booleans (sdpa) or of numbers (eager), which say
    everything; two dimensions of valid columns (flash); or None. In the last two causality and the sliding window
    are the function's own business, hence ours.
    """
    if attention_mask is not None and attention_mask.ndim == 4:
        return attention_mask[:, :, -num_rows::step, :num_positions]
    mask_BHRS = None
    if is_causal:
        column_S = torch.arange(num_positions, device=device)
        distance_RS = column_S[-num_rows::step, None] - column_S
        mask_RS = distance_RS >= 0
        if sliding_window is not None:
            mask_RS &= distance_RS < sliding_window
        mask_BHRS = mask_RS[None, None]
    if attention_mask is not None:
        valid_BHRS = attention_mask.bool()[:, None, None, -num_positions:]
        mask_BHRS = valid_BHRS if mask_BHRS is None else mask_BHRS & valid_BHRS
    return mask_BHRS


def attention_rows(
    query_BHRD: Tensor, key_BGSD: Tensor, mask_BHRS: Tensor | None, *, scaling: float, softcap: float | None = None
) -> Tensor:
    """Returns rows_BRS, the mean over heads of softmax(scaling q k^T) in float32, as many at a time as a cache holds.

    With grouped queries G < H key heads serve H / G query heads each. No more of the keys is copied to float32 than
    what is worked on.
    """
    num_sequences, num_heads, num_rows, _ = query_BHRD.shape
    num_key_heads, num_positions = key_BGSD.shape[1:3]
    heads_per_key = num_heads // num_key_heads
    most = _MAX_SCORES[query_BHRD.device.type == "cpu"]
    if num_sequences * num_heads * num_rows * num_positions <= most:
        return _sum_over_heads(query_BHRD, key_BGSD, mask_BHRS, scaling, softcap).div_(num_heads)
    sum_BRS = torch.zeros(num_sequences, num_rows, num_positions, device=query_BHRD.device)
    for b in _parts(num_sequences, most, num_heads * num_rows * num_positions):
        for g in _parts(num_key_heads, most, heads_per_key * num_rows * num_positions):
            key_bgSD = key_BGSD[b, g].float()
            h = slice(g.start * heads_per_key, g.stop * heads_per_key)
            for r in _parts(num_rows, most, heads_per_key * num_positions):
                mask = None if mask_BHRS is None else _of_mask(mask_BHRS, b, h, r)
                sum_BRS[b, r] += _sum_over_heads(query_BHRD[b, h, r], key_bgSD, mask, scaling, softcap)
    return sum_BRS.div_(num_heads)


def _sum_over_heads(
    query_BHRD: Tensor, key_BGSD: Tensor, mask_BHRS: Tensor | None, scaling: float, softcap: float | None
) -> Tensor:
    query_BHRD = query_BHRD.float() * scaling
    # The query heads of one key head lie behind each other, as if they were rows.
    queries = query_BHRD.unflatten(1, (key_BGSD.shape[1], -1)).flatten(2, 3)
    scores_BHRS = (queries @ key_BGSD.float().transpose(-1, -2)).view(*query_BHRD.shape[:3], key_BGSD.shape[2])
    if softcap is not None:
        scores_BHRS.div_(softcap).tanh_().mul_(softcap)
    if mask_BHRS is not None and mask_BHRS.dtype == torch.bool:
        # Finite numbers, so that the row of a padding token, which may look nowhere, is no NaN. Adding them to the
        # scores of all heads is faster than filling these in, from some dozens of sequences on.
        mask_BHRS = torch.where(mask_BHRS, 0.0, torch.finfo(torch.float32).min)
    if mask_BHRS is not None:
        scores_BHRS += mask_BHRS.float()
    return scores_BHRS.softmax(dim=-1).sum(dim=1)


def _parts(count: int, most: int, size: int) -> Iterator[slice]:
    """Yield `count` things of this size in parts of at most `most` together, or one by one."""
    step = min(count, max(1, most // max(1, size)))
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


def _of_mask(mask_BHRS: Tensor, b: slice, h: slice, r: slice) -> Tensor:
    """Returns these sequences, heads and rows of a mask, which may have one for all of the first two."""
    mask = mask_BHRS if len(mask_BHRS) == 1 else mask_BHRS[b]
    return (mask if mask.shape[1] == 1 else mask[:, h])[:, :, r]
