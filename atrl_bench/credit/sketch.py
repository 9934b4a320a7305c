"""A response known without its attention rows: the nearest neighbours of each token, its connectivity, a few numbers.

Rows come a block at a time, in order, and are forgotten, so that no T x S matrix is ever there. Cosines within a block
and with the one before are exact. All others, of tokens far apart, are estimated from a random projection of each row.

Most edges of real attention are between near tokens. Exact cosines of those are what brings the credit as near to that
of all cosines as another seed of METIS is (benchmarks/row_sketch.py); with projections alone, as many false edges come
in as true ones are lost, since the highest of T estimates is too high.

Shapes: T response tokens, S columns, C those that a block may look at, B tokens of a block, D numbers of a projection,
L neighbours of a token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from atrl_bench.credit.attention_rows import AttentionRows, footprint_columns
from atrl_bench.credit.config import CreditConfig
from atrl_bench.credit.connectivity import bias_curve
from atrl_bench.credit.neighbours import best_columns, most_similar, random_signs

BLOCK = 128
"""Rows that are there at a time; and as many of the block before."""
SKETCH_SIZE = 256
"""Numbers of a projection, of which some propose neighbours and some are kept for the centroids of clusters."""
_PROPOSING, _KEPT = 32, 128
# So many times `max_neighbours` are proposed.
_PROPOSED = 2
# The columns that are sinks are found from so many rows of a response, the share of joined tokens from so many others.
_SAMPLED_ROWS, _SAMPLED_TOKENS = 128, 8
_NOBODY = -1.0
_TINY = torch.finfo(torch.float32).tiny


@dataclass(frozen=True, eq=False)
class RowSketch:
    """One response, where a rule takes `AttentionRows`: all that those say but the rows themselves."""

    connectivity_T: NDArray[np.float32]
    """C_i, exactly."""
    values_TD: NDArray[np.float16]
    """A projection of each debiased row, for cosines with centroids."""
    weight_TL: NDArray[np.float32]
    """The highest cosines of each token, falling; those that are no edge are -1."""
    head_TL: NDArray[np.int32]
    """With whom."""
    edge_density: float
    num_dropped: int
    """How many columns the footprint leaves out."""
    entropy_T: Tensor | None = None
    logprob_T: Tensor | None = None
    blackened_logprob_T: Tensor | None = None
    parts: Mapping[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, attention: AttentionRows | RowSketch, config: CreditConfig) -> RowSketch:
        """Returns the sketch of whole rows; what is one already stays."""
        if isinstance(attention, RowSketch):
            return attention
        mean_row_S = attention.rows_TS[:: sample_step(attention.num_tokens)].mean(dim=0)
        sketcher = RowSketcher(mean_row_S, attention.visual_S, attention.num_tokens, config)
        for rows_BS in attention.rows_TS.split(BLOCK):
            sketcher.add(rows_BS)
        return replace(
            cls.of_tensors(sketcher.tensors()),
            entropy_T=attention.entropy_T,
            logprob_T=attention.logprob_T,
            blackened_logprob_T=attention.blackened_logprob_T,
            parts=attention.parts,
        )

    @classmethod
    def of_tensors(cls, tensors: Sequence[Tensor]) -> RowSketch:
        """Returns what the tensors of a `RowSketcher` say, once they have left the device."""
        connectivity_T, values_TD, weight_TL, head_TL, facts = (tensor.numpy() for tensor in tensors)
        return cls(connectivity_T, values_TD, weight_TL, head_TL, float(facts[0]), int(facts[1]))

    @property
    def rows_TS(self) -> Tensor:  # noqa: N802
        """Nothing: whoever asks needs whole rows."""
        raise ValueError("This credit rule reads whole attention rows, and a sketch has none. Set rows='exact'.")

    @property
    def num_tokens(self) -> int:
        """How many tokens the response has."""
        return len(self.connectivity_T)

    def connectivity(self, config: CreditConfig) -> Tensor:
        """Returns C_i of each token; this is exact."""
        return torch.from_numpy(self.connectivity_T)

    def looks_at_the_image(self) -> bool:
        """Returns whether any token did."""
        return bool((self.connectivity_T > 0).any())

    def even(self) -> AttentionRows:
        """Returns the response as if all tokens looked at one thing alike, the image."""
        return AttentionRows(torch.ones(self.num_tokens, 1), torch.ones(1, dtype=torch.bool))

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
        """Returns the edges (tail < head), each once, and their cosines."""
        tail_E, nth_E = np.nonzero(self.weight_TL != _NOBODY)
        head_E = self.head_TL[tail_E, nth_E].astype(np.int64)
        key_E = np.minimum(tail_E, head_E) * self.num_tokens + np.maximum(tail_E, head_E)
        key_E, first_E = np.unique(key_E, return_index=True)
        return key_E // self.num_tokens, key_E % self.num_tokens, self.weight_TL[tail_E, nth_E][first_E]


class RowSketcher:
    """Takes the rows of one response a block at a time and leaves the tensors of a `RowSketch`, where the rows are.

    With u the direction of the mean row, a debiased row scaled to length one is a = (a u) u + r. The sketch is x =
    [a u, r R / sqrt(D)], R random signs: x_t x_s is unbiased for cos(a_t, a_s), and `estimated_cosine` has a standard
    deviation of at most about (1 - c^2) / sqrt((1 + c^2) D), 0.026 at c = 0.7. For any one pair |x_t x_s - c| < e but
    with probability 4 exp(-D (e^2 / 4 - e^3 / 6)) (Achlioptas 2003, for sum and difference). Were the part along u not
    exact, one error in the length of u would be in all cosines alike. The signs are the same for every response:
    credit depends on nothing computed before it.
    """

    def __init__(self, mean_row_S: Tensor, visual_S: Tensor, num_tokens: int, config: CreditConfig) -> None:
        """`mean_row_S`: of some rows, which tells what are sinks."""
        device, limit = visual_S.device, config.max_neighbours
        assert limit is not None  # CreditConfig
        bias_S = bias_curve(len(visual_S), config).to(device)
        kept_S = footprint_columns(mean_row_S, visual_S, num_tokens, config)
        self._scale_S, self._visual_S = kept_S / bias_S, visual_S / bias_S
        common_S1 = torch.nn.functional.normalize(mean_row_S * self._scale_S, dim=0)[:, None]
        signs_SD = random_signs(len(visual_S), SKETCH_SIZE).to(device)
        rest_SD = signs_SD - common_S1 * (common_S1.T @ signs_SD)
        self._probes_SD = torch.cat([common_S1 * SKETCH_SIZE**0.5, rest_SD], dim=1) / SKETCH_SIZE**0.5
        self._num_dropped = (~kept_S).sum()
        self._weight_TL = torch.full((num_tokens, limit), _NOBODY, device=device)
        self._head_TL = torch.zeros(num_tokens, limit, dtype=torch.int64, device=device)
        self._min_similarity, self._limit = config.min_edge_similarity, limit
        self._blocks: list[slice] = []
        self._before_BC: Tensor | None = None
        self._connectivity: list[Tensor] = []
        self._values: list[Tensor] = []
        self._projected: list[Tensor] = []

    def add(self, rows_BC: Tensor) -> None:
        """Take the next rows: of all columns, or of those up to the last that one of them may look at."""
        width = rows_BC.shape[1]
        unit_BC = rows_BC * self._scale_S[:width]
        norm_B1 = torch.linalg.vector_norm(unit_BC, dim=1, keepdim=True).clamp_min(_TINY)
        unit_BC /= norm_B1
        x_BD = unit_BC @ self._probes_SD[:width]
        self._connectivity.append(rows_BC @ self._visual_S[:width])
        self._values.append((_first(x_BD, _KEPT) * norm_B1).half())
        self._projected.append(x_BD)
        start = self._blocks[-1].stop if self._blocks else 0
        block = slice(start, start + len(rows_BC))
        self._offer(block, block, (unit_BC @ unit_BC.T).fill_diagonal_(_NOBODY))
        if self._before_BC is not None:
            before = self._blocks[-1]
            cosine_BP = unit_BC[:, : self._before_BC.shape[1]] @ self._before_BC.T
            self._offer(block, before, cosine_BP)
            self._offer(before, block, cosine_BP.T)
        self._blocks.append(block)
        self._before_BC = unit_BC

    def tensors(self) -> list[Tensor]:
        """Returns the fields of a `RowSketch`, the last two numbers in one tensor, once all rows were added."""
        x_TD, self._before_BC = torch.cat(self._projected), None
        square_T1 = x_TD.square().sum(dim=1, keepdim=True)
        self._join_far(x_TD, square_T1)
        num_tokens = len(x_TD)
        some = slice(None, None, max(1, num_tokens // _SAMPLED_TOKENS))
        joined_TN = estimated_cosine(x_TD @ x_TD[some].T, square_T1, square_T1[some, 0]) > self._min_similarity
        joined = joined_TN.sum() - joined_TN[some].diagonal().sum()
        density = joined / (joined_TN.shape[1] * max(1, num_tokens - 1))
        facts = torch.stack([density, self._num_dropped.to(density.dtype)])
        connectivity_T, values_TD = torch.cat(self._connectivity), torch.cat(self._values)
        return [connectivity_T, values_TD, self._weight_TL, self._head_TL.int(), facts]

    def _join_far(self, x_TD: Tensor, square_T1: Tensor) -> None:
        """Offer each token those of other blocks than its own and the next ones that look most alike."""
        num_tokens = len(x_TD)
        if len(self._blocks) <= 2:  # all are near
            return
        bounds = [0, *(block.start for block in self._blocks), num_tokens, num_tokens]
        near = {block.start: slice(bounds[k], bounds[k + 3]) for k, block in enumerate(self._blocks)}

        def hide(cosine_BT: Tensor, block: slice) -> None:
            cosine_BT[:, near[block.start]] = _NOBODY

        proposing_TD = torch.nn.functional.normalize(_first(x_TD, _PROPOSING), dim=1)
        # Of all tokens at once what is small: for each block it would cost more to ask for than to do.
        head_TL = self._head_TL.new_empty(num_tokens, _PROPOSED * self._limit)
        product_TL, proposed_TL = x_TD.new_empty(2, *head_TL.shape)
        row_PD = x_TD.new_empty(BLOCK * head_TL.shape[1], x_TD.shape[1])
        for block, proposed_BL, head_BL in most_similar(proposing_TD, _PROPOSED * self._limit, self._blocks, hide):
            torch.clamp(head_BL, max=num_tokens - 1, out=head_TL[block])
            proposed_TL[block] = proposed_BL
            head_P = head_TL[block].flatten()
            torch.index_select(x_TD, 0, head_P, out=row_PD[: len(head_P)])
            row_BLD = row_PD[: len(head_P)].view(*head_BL.shape, -1)
            torch.sum(row_BLD.mul_(x_TD[block, None]), dim=2, out=product_TL[block])
        cosine_TL = estimated_cosine(product_TL, square_T1, square_T1[head_TL, 0])
        self._take(slice(num_tokens), head_TL, cosine_TL.masked_fill(proposed_TL == _NOBODY, _NOBODY))

    def _offer(self, block: slice, others: slice, cosine_BN: Tensor) -> None:
        best_BL, column_BL = best_columns(cosine_BN, self._limit)
        self._take(block, column_BL + others.start, best_BL)

    def _take(self, block: slice, head_BL: Tensor, cosine_BL: Tensor) -> None:
        """Keep the best of what the tokens of a block have and of what they are offered, where that is an edge."""
        cosine_BL = cosine_BL.masked_fill(~(cosine_BL > self._min_similarity), _NOBODY)
        best_BL = torch.cat([self._weight_TL[block], cosine_BL], dim=1).topk(self._limit, dim=1)
        self._weight_TL[block] = best_BL.values
        self._head_TL[block] = torch.cat([self._head_TL[block], head_BL], dim=1).gather(1, best_BL.indices)


def _first(x_TD: Tensor, size: int) -> Tensor:
    """Returns what is known exactly and the first `size` random numbers, in the proportion of the whole."""
    return torch.cat([x_TD[:, :1] * (size / SKETCH_SIZE) ** 0.5, x_TD[:, 1 : size + 1]], dim=1)


def estimated_cosine(product: Tensor, square: Tensor, other_square: Tensor) -> Tensor:
    """Returns the most likely cosine c of two rows of length one, of whose projections these are the mean products.

    c^3 - m c^2 + (m_t + m_u - 1) c - m = 0 (Li, Hastie and Church 2006). That both lengths are known makes the variance
    1 / (1 + c^2) of that of the projections' own cosine, from which Newton's steps start.
    """
    excess = square + other_square - 1
    cosine = product / (square * other_square).clamp_min(_TINY).sqrt()
    for _ in range(4):
        value = ((cosine - product) * cosine + excess) * cosine - product
        slope = (3 * cosine - 2 * product) * cosine + excess
        cosine = (cosine - value / slope.clamp_min(0.1)).clamp(-1, 1)
    return cosine


def sample_step(num_tokens: int) -> int:
    """Returns of how many rows one is looked at for sinks."""
    return max(1, num_tokens // _SAMPLED_ROWS)


class SketchPlan:
    """What a recording has to know of a batch to sketch its rows: where each response is, and each image."""

    def __init__(self, config: CreditConfig, mask_BS: Tensor, visual_BS: Tensor, response_mask_BT: Tensor) -> None:
        self.config, self.num_positions = config, mask_BS.shape[1]
        self.rows = [row_T.nonzero()[:, 0] for row_T in response_mask_BT.bool().cpu()]
        """The numbers of each response's tokens among the T."""
        self.columns = [column_S.nonzero()[:, 0] for column_S in mask_BS.bool().cpu()]
        """The positions of each response and its prompt that are no padding."""
        self._visual_BS = visual_BS.bool().cpu()

    def sketcher(self, b: int, mean_row_C: Tensor) -> RowSketcher:
        """Returns what takes the rows of a response, given the mean of some up to the last column that these see."""
        visual_S = self._visual_BS[b][self.columns[b]].to(mean_row_C.device)
        mean_row_S = torch.nn.functional.pad(mean_row_C, (0, len(visual_S) - len(mean_row_C)))
        return RowSketcher(mean_row_S, visual_S, len(self.rows[b]), self.config)
