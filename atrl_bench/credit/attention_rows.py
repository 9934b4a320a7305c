"""What one response looked at: an attention row for each of its tokens, and which columns are what.

Shapes: B responses in a batch, T response tokens, S positions of prompt and response together; N tokens whose product
is nearly another's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import BoolTensor, Tensor

from atrl_bench.credit.config import CreditConfig
from atrl_bench.credit.connectivity import bias_curve, connectivity

# So many numbers stay in the cache of a core while they are worked on.
_CACHED = 2**18
# A response of at most so many tokens is short: it is read in larger blocks, each as a whole.
_MOST_OF_SHORT, _BLOCK = 256, 64
_ROUNDING = 1e-6  # relative: eight units of the last place


@dataclass(frozen=True, eq=False)
class AttentionRows:
    """One response: T attention rows over its S valid columns (prompt, then response; no padding)."""

    rows_TS: Tensor
    """Head- and layer-mean attention on the CPU, the row of token t in line t; kept as float32, whatever is given."""
    visual_S: Tensor
    """True where a column is an image or video token."""
    entropy_T: Tensor | None = None
    """Entropy of the distribution each token was drawn from."""
    logprob_T: Tensor | None = None
    """Log-probability of each token."""
    blackened_logprob_T: Tensor | None = None
    """The same where the model sees the images with some of their patches black (blackening.py)."""
    parts: Mapping[str, Tensor] = field(default_factory=dict)
    """Which tokens belong to a part of the response, where data knows it (`truth.TokenTruth`): only oracles ask."""

    def __post_init__(self) -> None:
        if self.rows_TS.ndim != 2 or not self.rows_TS.is_floating_point():
            raise ValueError(f"rows_TS should be a float matrix, not {self.rows_TS.dtype} {tuple(self.rows_TS.shape)}.")
        object.__setattr__(self, "rows_TS", self.rows_TS.float())
        num_tokens, num_columns = self.rows_TS.shape
        if self.visual_S.shape != (num_columns,) or self.visual_S.dtype != torch.bool:
            raise ValueError(
                f"visual_S should be {num_columns} booleans, one per column of rows_TS, "
                f"not {self.visual_S.dtype} {tuple(self.visual_S.shape)}."
            )
        for name in ("entropy_T", "logprob_T", "blackened_logprob_T"):
            value = getattr(self, name)
            if value is not None and value.shape != (num_tokens,):
                raise ValueError(f"{name} should have {num_tokens} values, not shape {tuple(value.shape)}.")
        if self.rows_TS.numel():
            least, greatest = (float(bound) for bound in torch.aminmax(self.rows_TS))
            # aminmax carries a NaN through, and a comparison with NaN is false.
            if not (least >= 0 and greatest < float("inf")):
                raise ValueError(
                    f"Attention rows should be finite and not negative; these reach from {least} to {greatest}. "
                    "A NaN usually means that the forward pass itself overflowed."
                )

    @property
    def num_tokens(self) -> int:
        """How many tokens the response has."""
        return self.rows_TS.shape[0]

    @property
    def num_columns(self) -> int:
        """How many columns a row has."""
        return self.rows_TS.shape[1]

    def connectivity(self, config: CreditConfig) -> Tensor:
        """Returns C_i of each token."""
        density_T = connectivity(self.rows_TS, self.visual_S, bias_curve(self.num_columns, config))
        first_T = first_equal(density_T, self.rows_TS, self.visual_S)
        return density_T if first_T is None else density_T[first_T]

    def looks_at_the_image(self) -> bool:
        """Returns whether any token did; the first usually tells."""
        is_visual_S = self.visual_S.numpy().astype(np.float32)
        return any(row_S @ is_visual_S > 0 for row_S in self.rows_TS.numpy())

    def even(self) -> AttentionRows:
        """Returns the response as if all tokens looked at all columns alike, and all columns were image."""
        even_TS = torch.ones_like(self.rows_TS)
        return replace(self, rows_TS=even_TS / even_TS.shape[1], visual_S=torch.ones_like(self.visual_S))

    @property
    def blocks(self) -> list[Tensor]:
        """The rows, a few at a time; those of a long response without the zeros of what comes after their tokens."""
        return self._blocks_and_mean[0]

    @property
    def mean_row(self) -> Tensor:
        """The mean of all rows."""
        return self._blocks_and_mean[1]

    @cached_property
    def _blocks_and_mean(self) -> tuple[list[Tensor], Tensor]:
        """Both, from one reading of the rows."""
        num_tokens, num_columns = self.rows_TS.shape
        if num_tokens <= _MOST_OF_SHORT:
            starts = range(0, num_tokens, _BLOCK)  # `split` has a wrapper in Python that takes longer than the rest
            return [self.rows_TS[start : start + _BLOCK] for start in starts], self.rows_TS.mean(dim=0)
        blocks, end, sum_S = [], num_columns - num_tokens, torch.zeros(num_columns)
        for block_BS in self.rows_TS.split(max(8, _CACHED // num_columns)):
            end += len(block_BS)
            # A product with ones is a third of the time of a sum.
            of_block_S = torch.ones(len(block_BS)) @ block_BS
            sum_S += of_block_S
            is_causal = end >= num_columns or not of_block_S[end:].max() > 0
            blocks.append(block_BS[:, :end] if is_causal else block_BS)
        return blocks, sum_S / num_tokens


def split_attention_rows(
    rows_BTS: Tensor,
    attention_mask_BS: Tensor,
    visual_BS: Tensor,
    response_mask_BT: Tensor,
    entropy_BT: Tensor | None = None,
    logprob_BT: Tensor | None = None,
    blackened_logprob_BT: Tensor | None = None,
) -> list[AttentionRows]:
    """Returns the AttentionRows of each response of a padded batch, cut to its valid rows and columns.

    The response tokens are the last T of the S positions, as in every trainer that pads prompts on the left and
    completions on the right. `response_mask_BT` marks the rows that are trained on, `attention_mask_BS` the columns
    that are no padding; a column may be valid without being trained on (a tool's output).
    """
    of_tokens = {"entropy_T": entropy_BT, "logprob_T": logprob_BT, "blackened_logprob_T": blackened_logprob_BT}
    attention_B = []
    for b, rows_TS in enumerate(rows_BTS):
        row_T = response_mask_BT[b].bool().cpu()
        column_S = attention_mask_BS[b].bool().cpu()
        known: dict[str, Any] = {
            name: value_BT[b].detach().float().cpu()[row_T]
            for name, value_BT in of_tokens.items()
            if value_BT is not None
        }
        rows_TC, visual_C = rows_TS[row_T][:, column_S].float().cpu(), visual_BS[b].bool().cpu()[column_S]
        attention_B.append(AttentionRows(rows_TC, visual_C, **known))
    return attention_B


def visual_columns(config: object, input_ids_BS: Tensor, kinds_BS: Tensor | None = None) -> BoolTensor:
    """Returns which positions hold an image or video token.

    Where the processor tells the kind of each token, as Qwen's does in `mm_token_type_ids`, those kinds say it; else
    the placeholder ids that the model's config names. The tokens that mark where an image starts and ends are text.
    """
    if kinds_BS is not None:
        return kinds_BS != 0  # type: ignore[return-value]
    ids = visual_token_ids(config)
    if not ids:
        raise ValueError(f"{type(config).__name__} names no image token: it is of a model of text alone.")
    return torch.isin(input_ids_BS, torch.tensor(ids, device=input_ids_BS.device))  # type: ignore[return-value]


def visual_token_ids(config: object) -> list[int]:
    """Returns the placeholders of images and videos that a model's config names; none where it knows text alone."""
    names = ("image_token_id", "image_token_index", "video_token_id", "video_token_index")
    return sorted({value for name in names if isinstance(value := getattr(config, name, None), int)})


def first_equal(product_T: Tensor, rows_TS: Tensor, scale_S: Tensor) -> Tensor | None:
    """Returns for each token the first whose row, times the scale, is the same; None where all differ.

    A matrix product sums in another order at the end of a block: equal rows get products that differ by rounding, and
    the order of ties would be that of rounding. Read from the first of the equal ones, ties are broken by position.

    Only rows are compared whose products, of those rows with anything, are equal but for rounding.
    """
    products_T = product_T.numpy()
    sorted_T = np.sort(products_T)
    above_T = sorted_T[1:]
    near_T = (above_T - sorted_T[:-1] <= _ROUNDING * above_T) & (above_T > 0)  # zeros are exact
    if not near_T.any():
        return None
    order_T = np.argsort(products_T, kind="stable")
    is_near_T = np.append(near_T, False) | np.insert(near_T, 0, False)
    near_N = torch.from_numpy(np.sort(order_T[is_near_T]))
    scaled_NS = (rows_TS[near_N] * scale_S).numpy()
    whole_N = scaled_NS.view(np.dtype((np.void, scaled_NS.strides[0]))).ravel()
    _, first_N, same_N = np.unique(whole_N, return_index=True, return_inverse=True)
    first_T = torch.arange(len(rows_TS))
    first_T[near_N] = near_N[torch.from_numpy(first_N[same_N])]
    return first_T if len(first_N) < len(near_N) else None


# Which columns of the rows enter a cosine -----------------------------------------------------------------------------


def footprint_columns(mean_row_S: Tensor, visual_S: Tensor, num_tokens: int, config: CreditConfig) -> Tensor:
    """Returns which columns enter the cosine between two tokens, by `config.footprint`.

    A text column with a large share of the average row is an attention sink. The paper leaves open whether the cosine
    sees them. A sink with a fifth of every row makes every cosine exceed 0.7, the graph complete and its METIS cut as
    large as a random partition's; below a tenth it does no harm. Visual columns are never sinks here, since a response
    may well look at one patch most of the time.
    """
    if config.footprint == "without_sinks":
        return visual_S | (mean_row_S < config.min_sink_share)
    if config.footprint == "visual":
        return visual_S
    if config.footprint == "prompt":
        return torch.arange(len(visual_S), device=visual_S.device) < len(visual_S) - num_tokens
    return torch.ones_like(visual_S)
