"""A prompt that several responses share goes through the model once: its images, its tokens, its keys and values.

A padded batch has each response behind a prompt of its own, and encodes an image once a row. Here the
distinct prompts of a batch and its responses are written into one row of tokens without padding. Every layer but the
attention works on tokens one by one and never notices. In the attention a prompt looks at itself, and a response at its
prompt and itself: calls of the model's own attention function, which see masks like those of a padded batch. The
gradient flows back through the copies of the prompt's keys and values. The head sees response tokens alone.

The numbers are those of a padded batch up to rounding. What is recorded of the attention has its rows and columns.

Shapes: B rows of a padded batch (b of them), P distinct prompts, T response tokens, U = T + 1: with the last token of
the prompt, which predicts the first of the response and is read with each (u: of the longest of b); S prompt tokens
without it, k = S + u keys; N tokens in the one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, AttentionInterface

from atrl_bench.credit.capture import is_recording, with_rows
from atrl_bench.training.rollout import Visual, joined_visuals

NAME = "shared_prompts"  # of the attention function, in transformers' AttentionInterface
FAMILIES = (
    "qwen2_vl",
    "qwen2_5_vl",
    "qwen3_vl",
    "qwen3_vl_moe",
)  # whose layers but the attention take each token by itself
RECORDED = "_with_rows"
ATTENTION = ("sdpa", "sdpa" + RECORDED)  # flash attention takes no mask, in which prompts of a batch differ
# A medium's own tensors: of patches, and with an entry per image or video.
KINDS = {
    "image_token_id": ("pixel_values", "image_grid_thw", ()),
    "video_token_id": ("pixel_values_videos", "video_grid_thw", ("second_per_grid_ts",)),
}
_OTHERS = frozenset({"input_ids", "attention_mask", "mm_token_type_ids", "labels", "fused_lm_head"})
_KNOWN = _OTHERS | {name for pixels, grid, more in KINDS.values() for name in (pixels, grid, *more)}


def unwrapped(model: Any) -> Any:
    """The model itself, without what PEFT has put around it."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def why_not(model: Any) -> str | None:
    """Why prompts cannot be shared in this model, which is not wrapped; None where they can."""
    config = model.config
    if config.model_type not in FAMILIES:
        return f"not written for {config.model_type}"
    if set(getattr(config.get_text_config(), "layer_types", None) or ()) - {"full_attention"}:
        return "sliding attention"
    implementation = config.get_text_config()._attn_implementation
    return None if implementation in ATTENTION else f"the attention is {implementation}"


@dataclass(frozen=True, eq=False)
class Layout:
    """Where each token of a padded batch stands in the one row: first of all prompts, then of all responses."""

    prompt_B: Tensor  # the prompt of each row of the batch
    rows_P: list[int]  # a row that has it
    prompt_PS: Tensor  # which positions of a prompt are no padding
    response_BU: Tensor  # and of a response

    @property
    def num_prompt_tokens(self) -> int:
        return int(self.prompt_PS.sum())

    def packed(self, prompt_PS: Tensor, response_BU: Tensor) -> Tensor:
        """values_N of values per position of the padded prompts and responses."""
        return torch.cat([prompt_PS[self.prompt_PS], response_BU[self.response_BU]])


class Attention:
    """The attention of tokens in the one row, by functions for padded batches, in layers with this config.

    Responses go in two batches, short ones and long ones, or in one where rows are recorded.
    """

    def __init__(self, layout: Layout, config: Any) -> None:
        self._config, implementation = config, config._attn_implementation
        records = implementation.endswith(RECORDED) and is_recording()
        self._of_responses = _function(implementation, layout.prompt_B.device)
        # What is recorded are responses.
        self._of_prompts = _function(implementation.removesuffix(RECORDED), layout.prompt_B.device)
        self._slot_PS, slot_BU = _slots(layout.prompt_PS, 0), _slots(layout.response_BU, layout.num_prompt_tokens)
        causal_PSS = _causal(layout.prompt_PS)
        # A position of padding looks at itself, for one that may look nowhere has no softmax; nobody looks at it.
        itself_SS = torch.eye(causal_PSS.shape[-1], dtype=torch.bool, device=causal_PSS.device)
        self._mask_P1SS = (causal_PSS | itself_SS)[:, None]
        self._batches: list[tuple[Tensor, Tensor, Tensor]] = []
        places = [(self._slot_PS, layout.prompt_PS)]
        for rows_b in [torch.arange(len(slot_BU))] if records else by_length(layout.response_BU.sum(1).tolist()):
            prompt_b, response_bU = layout.prompt_B[rows_b], layout.response_BU[rows_b]
            longest = response_bU.shape[1] if records else int(response_bU.sum(1).max())
            response_bu = response_bU[:, :longest]
            seen_buS = layout.prompt_PS[prompt_b][:, None].expand(-1, longest, -1)
            mask_b1uk = torch.cat([seen_buS, _causal(response_bu)], dim=-1)[:, None]
            slot_bu = slot_BU[rows_b][:, :longest]
            self._batches.append((prompt_b, slot_bu, mask_b1uk))
            places.append((slot_bu, response_bu))
        self._outputs_N = _inverse(places)

    def __call__(self, module: Any, query: Tensor, key: Tensor, value: Tensor, **options: Any) -> tuple[Tensor, None]:
        prompt_q, prompt_k, prompt_v = (_padded(states, self._slot_PS) for states in (query, key, value))
        prompts, _ = self._of_prompts(module, prompt_q, prompt_k, prompt_v, self._mask_P1SS, **options)
        outputs = [prompts.flatten(0, 1)]
        for prompt_b, slot_bu, mask_b1uk in self._batches:
            keys = torch.cat([prompt_k[prompt_b], _padded(key, slot_bu)], dim=2)
            values = torch.cat([prompt_v[prompt_b], _padded(value, slot_bu)], dim=2)
            responses, _ = self._of_responses(module, _padded(query, slot_bu), keys, values, mask_b1uk, **options)
            outputs.append(responses.flatten(0, 1))
        return torch.cat(outputs).index_select(0, self._outputs_N)[None], None

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Have the layers attend by it inside the block."""
        before, token = self._config._attn_implementation, _attention.set(self)
        self._config._attn_implementation = NAME
        try:
            yield
        finally:
            self._config._attn_implementation = before
            _attention.reset(token)


def by_length(lengths_B: Sequence[int]) -> list[Tensor]:
    """The rows in the one or two batches that have the least padding; a batch has as many positions as rows
    times its longest."""
    order_B = torch.tensor(lengths_B).argsort(stable=True)
    count, longest = len(lengths_B), max(lengths_B)

    def positions(cut: int) -> int:
        return cut * lengths_B[int(order_B[cut - 1])] + (count - cut) * longest

    cut = min(range(count, 0, -1), key=positions)  # of equals one batch
    return [rows for rows in (order_B[:cut], order_B[cut:]) if len(rows)]


def _function(implementation: str, device: torch.device) -> Callable[..., Any]:
    """A layer's attention function; on a CPU one that does not copy the keys of grouped queries."""
    if device.type != "cpu":
        return ALL_ATTENTION_FUNCTIONS[implementation]  # its kernels want the copies
    return with_rows(_grouped_attention) if implementation.endswith(RECORDED) else _grouped_attention


def _grouped_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor, **options: Any
) -> tuple[Tensor, None]:
    output = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attention_mask, options["dropout"], scale=options["scaling"], enable_gqa=True
    )
    return output.transpose(1, 2), None


def _inverse(places: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Where in the outputs of some padded batches, one behind the other, each token of the one row stands."""
    slots = torch.cat([slots[valid] for slots, valid in places])
    positions = torch.cat([valid.flatten() for _, valid in places]).nonzero().flatten()
    return positions[slots.argsort()]


def _slots(valid: Tensor, first: int) -> Tensor:
    """Where in the one row each padded position is taken from; padding is taken from anywhere."""
    slots = torch.zeros(valid.shape, dtype=torch.long, device=valid.device)
    slots[valid] = torch.arange(first, first + int(valid.sum()), device=valid.device)
    return slots


def _causal(valid: Tensor) -> Tensor:
    """Which positions of its row each position may look at."""
    length = valid.shape[1]
    earlier = torch.ones(length, length, dtype=torch.bool, device=valid.device).tril()
    return earlier & valid[:, None]


def _padded(states_1HND: Tensor, slots: Tensor) -> Tensor:
    """States (rows, heads, positions, size of a head) of those in the one row."""
    states_NHD = states_1HND[0].transpose(0, 1)
    taken = states_NHD.index_select(0, slots.flatten())
    return taken.view(*slots.shape, *taken.shape[1:]).transpose(1, 2)


_attention: ContextVar[Attention | None] = ContextVar("attention", default=None)


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, Tensor | None]:
    attention = _attention.get()
    assert attention is not None
    return attention(module, query, key, value, **options)


AttentionInterface.register(NAME, _attend)


def recompute(model: Any) -> None:
    """Have the layers of a model compute activations again in a backward pass, with the prompts of the first time.

    They do so while it trains, and keep keys and values while it does not.
    """
    # transformers renamed it.
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False, "context_fn": _contexts})


def _contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """What torch's checkpoint is to compute a layer in: now, and again in the backward pass."""
    attention = _attention.get()
    return nullcontext(), nullcontext() if attention is None else attention.in_use()


class SharedPrompts:
    """A model as it is called to score a batch, which reads each distinct prompt of the batch once.

    `base` is the model itself, `model` what is called: the same, or with PEFT's around it.
    The last `num_tokens` positions of each row are its response. What the prompts show is in the call, or beside it in
    `visuals_B`. A batch that shares nothing goes through as it is.
    """

    def __init__(self, model: Callable[..., Any], base: Any, num_tokens: int, visuals_B: Sequence[Visual] = ()) -> None:
        self._model, self._base, self._num_tokens, self._visuals_B = model, base, num_tokens, visuals_B

    def __call__(self, **inputs: Any) -> Any:
        """The log-probabilities and entropies of the response tokens, zero at padding."""
        device, visuals_B = inputs["input_ids"].device, self._visuals_B or self._visual_by_row(inputs)
        layout = self._layout(inputs, visuals_B)
        if layout is None:
            return self._model(**inputs, **joined_visuals(self._visuals_B, device))
        ids_BU = inputs["input_ids"][:, -self._num_tokens - 1 :]
        ids_PS = inputs["input_ids"][layout.rows_P, : -self._num_tokens - 1]
        is_token_BT = layout.response_BU[:, 1:]
        before_token_M = _slots(layout.response_BU, layout.num_prompt_tokens)[:, :-1][is_token_BT]
        config = self._base.config.get_text_config()
        attention = Attention(layout, config)
        visual = joined_visuals([visuals_B[row] for row in layout.rows_P], device)
        with attention.in_use(), _hidden_states_at(before_token_M, self._base.base_model):
            output = self._model(
                input_ids=layout.packed(ids_PS, ids_BU)[None],
                attention_mask=None,  # the attention function has its own
                position_ids=self._positions(inputs, layout, visual),
                shift_labels=ids_BU[:, 1:][is_token_BT][None],
                fused_lm_head=True,
                **visual,
            )
        return SimpleNamespace(
            log_probs=_per_token(output.log_probs, is_token_BT), entropy=_per_token(output.entropy, is_token_BT)
        )

    def _layout(self, inputs: Mapping[str, Any], visuals_B: Sequence[Visual]) -> Layout | None:
        """Where the tokens go; None if that saves nothing or the batch has what is not known here."""
        ids_BS, mask_BS = inputs["input_ids"], inputs["attention_mask"].bool()
        num_prompt = ids_BS.shape[1] - self._num_tokens - 1
        media_ids = [value for name in KINDS if (value := getattr(self._base.config, name, None)) is not None]
        outside = torch.isin(ids_BS[:, num_prompt:], torch.tensor(media_ids, device=ids_BS.device)).any()
        if num_prompt < 1 or not inputs.keys() <= _KNOWN or bool(outside) or not mask_BS[:, num_prompt + 1 :].any():
            return None
        rows_P, prompt_B = _distinct(inputs, visuals_B, num_prompt)
        if len(rows_P) == len(ids_BS):
            return None
        prompts = torch.tensor(prompt_B, device=ids_BS.device)
        return Layout(prompts, rows_P, mask_BS[rows_P, :num_prompt], mask_BS[:, num_prompt:])

    def _visual_by_row(self, inputs: Mapping[str, Any]) -> list[Visual]:
        visuals: list[Visual] = [{} for _ in inputs["input_ids"]]
        for token_name, (pixels, grid, more) in KINDS.items():
            if inputs.get(pixels) is None:
                continue
            num_tokens_B = (inputs["input_ids"] == getattr(self._base.config, token_name)).sum(1)
            num_patches = inputs[grid].prod(1)
            merged = self._base.config.vision_config.spatial_merge_size**2
            ends_B = torch.searchsorted((num_patches // merged).cumsum(0), num_tokens_B.cumsum(0), right=True).tolist()
            patches = [0, *num_patches.cumsum(0).tolist()]
            for visual, start, stop in zip(visuals, [0, *ends_B[:-1]], ends_B, strict=True):
                visual[pixels] = inputs[pixels][patches[start] : patches[stop]]
                visual |= {name: inputs[name][start:stop] for name in (grid, *more) if inputs.get(name) is not None}
        return visuals

    def _positions(self, inputs: Mapping[str, Any], layout: Layout, visual: Visual) -> Tensor:
        """positions_31N, which are those of the padded batch: the model's own for a prompt, then one by one."""
        rows, num_prompt = layout.rows_P, layout.prompt_PS.shape[1]
        mask_PS = inputs["attention_mask"][rows, : num_prompt + 1]
        kinds_BS = inputs.get("mm_token_type_ids")
        grids = {name: value for name, value in visual.items() if not name.startswith("pixel")}
        if kinds_BS is not None and grids:
            positions_3PS, _ = self._base.base_model.get_rope_index(
                inputs["input_ids"][rows, : num_prompt + 1],
                mm_token_type_ids=kinds_BS[rows, : num_prompt + 1],
                attention_mask=mask_PS,
                **grids,
            )
        else:
            positions_3PS = (mask_PS.long().cumsum(1) - 1).clamp(min=0).expand(3, -1, -1)
        last_3B1 = positions_3PS[:, :, -1:][:, layout.prompt_B]
        steps_U = torch.arange(layout.response_BU.shape[1], device=last_3B1.device)
        axes = zip(positions_3PS[:, :, :-1], last_3B1 + steps_U, strict=True)
        return torch.stack([layout.packed(prompts_PS, responses_BU) for prompts_PS, responses_BU in axes])[:, None]


def _distinct(inputs: Mapping[str, Any], visuals_B: Sequence[Visual], num_prompt: int) -> tuple[list[int], list[int]]:
    """A row of each prompt, and the prompt of each row: the same tokens, the same pixels."""
    ids_BS = inputs["input_ids"][:, : num_prompt + 1].cpu()
    mask_BS = inputs["attention_mask"][:, : num_prompt + 1].bool().cpu()
    rows_P: list[int] = []
    prompt_B: list[int] = []
    candidates: dict[bytes, list[int]] = {}
    for row, (ids_S, mask_S) in enumerate(zip(ids_BS, mask_BS, strict=True)):
        alike = candidates.setdefault(ids_S[mask_S].numpy().tobytes(), [])
        same = (prompt for prompt in alike if _equal(visuals_B[rows_P[prompt]], visuals_B[row]))
        if (prompt := next(same, None)) is None:
            prompt = len(rows_P)
            rows_P.append(row)
            alike.append(prompt)
        prompt_B.append(prompt)
    return rows_P, prompt_B


def _equal(left: Visual, right: Visual) -> bool:
    return left is right or (left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left))


def _per_token(values_1M: Tensor | None, is_token_BT: Tensor) -> Tensor | None:
    if values_1M is None:
        return None
    return values_1M.new_zeros(is_token_BT.shape).masked_scatter(is_token_BT, values_1M)


@contextmanager
def _hidden_states_at(positions: Tensor, backbone: Any) -> Iterator[None]:
    """Have the backbone return the states at these positions alone: the head is not asked about any other."""

    def choose(_module: Any, _arguments: Any, output: Any) -> None:
        output.last_hidden_state = output.last_hidden_state[:, positions]

    handle = backbone.register_forward_hook(choose)
    try:
        yield
    finally:
        handle.remove()
