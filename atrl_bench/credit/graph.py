"""The token graph: which tokens look at the same things, and its METIS partition (section 4.2).

Shapes: T response tokens, F footprint columns, E stored edges (each undirected edge is stored in both directions).
"""

from __future__ import annotations

import functools
import math
import warnings
from dataclasses import dataclass

import numpy as np
import pymetis
import torch
from numpy.typing import NDArray
from torch import BoolTensor, Tensor

from atrl_bench.credit.attention_rows import AttentionRows
from atrl_bench.credit.config import CreditConfig

# Up to this many tokens all cosines are computed; beyond, neighbours are looked up in a projection to this size.
_EXACT_TOKENS = 256
_SKETCH_SIZE = 32
# The best neighbours of a token are looked for among the best of so many tokens at a time.
_PARTS = 16
# So many numbers fit the inner cache of a core, with something beside them.
_CACHED = 2**18
# Rows of similarities at a time, where more of them do not fit the cache.
_ROWS_AT_ONCE = 64
_SAMPLED_TOKENS = 8

with warnings.catch_warnings():
    # torch says of the first sparse matrix of a process that they are young.
    warnings.simplefilter("ignore", UserWarning)
    torch.sparse_csr_tensor([0], [], [], (0, 0), check_invariants=False)


@dataclass(frozen=True, eq=False)
class TokenGraph:
    """An undirected weighted graph over T tokens, every edge in both directions, sorted by tail, then by head."""

    num_tokens: int
    tail_E: NDArray[np.int64]
    head_E: NDArray[np.int64]
    weight_E: NDArray[np.float32]

    def degree(self) -> NDArray[np.float64]:
        """Returns the weighted degree of every token."""
        degree_T = np.zeros(self.num_tokens)
        np.add.at(degree_T, self.tail_E, self.weight_E)
        return degree_T

    def by_similarity(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns an order of the edges by tail, then falling weight, and each one's place among those of its tail."""
        # One key instead of a lexsort of two: a cosine spans 2, and a double holds 4 tail - cosine without loss.
        order = np.argsort(4.0 * self.tail_E - self.weight_E, kind="stable")
        return order, np.arange(len(order)) - np.searchsorted(self.tail_E, self.tail_E)

    def cut(self, cluster_T: NDArray[np.integer]) -> float:
        """Returns the share of the edge weight that crosses from one cluster to another."""
        total = float(self.weight_E.sum(dtype=np.float64))
        crossing = cluster_T[self.tail_E] != cluster_T[self.head_E]
        return float(self.weight_E[crossing].sum(dtype=np.float64)) / total if total else 0.0


@dataclass(frozen=True, eq=False)
class ScaledRows:
    """The debiased rows, restricted to the footprint columns, as the raw rows and one factor per column.

    A_ij = raw_ij scale_j, where scale_j is 1 / b_j, or 0 for a column that is left out. The rows of a long response
    take up to a gigabyte: reading them is most of the time, so each is read from start to end as seldom as can be.
    """

    raw_TS: Tensor
    scale_S: Tensor
    norm_T: Tensor
    sketch_TD: Tensor
    """A random projection of each row to length one, of a response too long to compare all rows; else no columns."""
    sampled_TN: Tensor
    """Products of each row with those of the `sampled_tokens`."""

    @classmethod
    def of(cls, attention: AttentionRows, bias_S: Tensor, config: CreditConfig) -> ScaledRows:
        """Returns the attention rows, debiased, with the columns that `config.footprint` names."""
        raw_TS = attention.rows_TS
        num_tokens, num_columns = raw_TS.shape
        scale_S = footprint_columns(attention, config).float() / bias_S
        square_S = scale_S.square()
        sampled = sampled_tokens(num_tokens)
        probes_SN = (raw_TS[sampled] * square_S).T
        if num_tokens > _EXACT_TOKENS and config.max_neighbours is not None:
            probes_SN = torch.cat([probes_SN, _signs(num_columns) * scale_S[:, None]], dim=1)
        blocks = attention.blocks
        # A buffer that is used again; a fresh one would cost more than the arithmetic.
        squares = torch.empty(max(map(len, blocks), default=0) * num_columns)
        norms, products = [torch.empty(0)], [torch.empty(0, probes_SN.shape[1])]
        for block_BS in blocks:
            width = block_BS.shape[1]
            squared_BS = torch.mul(block_BS, block_BS, out=squares[: block_BS.numel()].view(block_BS.shape))
            norms.append(squared_BS @ square_S[:width])
            products.append(block_BS @ probes_SN[:width])
        sampled_TN, sketch_TD = torch.cat(products).tensor_split([len(sampled)], dim=1)
        return cls(
            raw_TS,
            scale_S,
            # A row of zeros has cosine zero with everything, whatever it is divided by.
            norm_T=torch.cat(norms).sqrt().clamp_min(torch.finfo(torch.float32).tiny),
            sketch_TD=torch.nn.functional.normalize(sketch_TD, dim=1) if sketch_TD.shape[1] else sketch_TD,
            sampled_TN=sampled_TN,
        )

    def cosine_matrix(self) -> Tensor:
        """Returns the cosine of every two rows."""
        unit_TS = self.raw_TS * self.scale_S / self.norm_T[:, None]
        return unit_TS @ unit_TS.T

    def cosines(self, tail_E: Tensor, head_E: Tensor) -> Tensor:
        """Returns the cosine of row tail_e with row head_e for each pair e, given by ascending tails."""
        num_tokens, num_columns = self.raw_TS.shape
        square_S = self.scale_S.square()
        at_once = max(1, 2 * _CACHED // num_columns)
        # A buffer that fits the cache and is used again; a fresh one would cost more than the arithmetic.
        buffer = torch.empty(min(at_once, num_tokens), num_columns)
        starts = range(0, num_tokens, at_once)
        ends = torch.searchsorted(tail_E, torch.tensor([start + at_once for start in starts])).tolist()
        products = [torch.empty(0)]
        for start, first, end in zip(starts, [0, *ends], ends, strict=False):
            block_BS = self.raw_TS[start : start + at_once]
            weighted_BS = torch.mul(block_BS, square_S, out=buffer[: len(block_BS)])
            first_B = torch.searchsorted(tail_E[first:end], torch.arange(start, start + len(block_BS) + 1))
            products.append(_products(weighted_BS, self.raw_TS, first_B, head_E[first:end]))
        return torch.cat(products) / (self.norm_T[tail_E] * self.norm_T[head_E])

    def centroid_cosines(self, cluster_T: Tensor) -> Tensor:
        """Returns the cosine of every row with the mean of the rows of its cluster.

        A cosine does not see the division by the cluster's size, so the sum stands for the mean.
        """
        num_tokens, num_columns = self.raw_TS.shape
        square_S = self.scale_S.square()
        order = torch.argsort(cluster_T, stable=True)
        num_clusters = int(cluster_T[order[-1]]) + 1
        first_K = torch.searchsorted(cluster_T[order], torch.arange(num_clusters + 1))
        product_T, norm_T = torch.empty(2, num_tokens)
        at_once = max(1, _CACHED // num_columns)
        for cluster in range(0, num_clusters, at_once):
            bounds = first_K[cluster : cluster + at_once + 1]
            members = order[bounds[0] : bounds[-1]]
            bounds = bounds - bounds[0]
            centroid_KS = torch.nn.functional.embedding_bag(
                members, self.raw_TS, bounds, mode="sum", include_last_offset=True
            )
            weighted_KS = centroid_KS * square_S
            product_T[members] = _products(weighted_KS, self.raw_TS, bounds, members)
            norm_T[members] = centroid_KS.mul_(weighted_KS).sum(1).sqrt().repeat_interleave(bounds.diff())
        return product_T / (self.norm_T * norm_T).clamp_min(torch.finfo(torch.float32).tiny)


def _products(left_NS: Tensor, right_MS: Tensor, first_N: Tensor, right_E: Tensor) -> Tensor:
    """Returns the products of each left row n with the right rows `right_E[first_N[n] : first_N[n + 1]]`.

    The rows are read where they lie. To gather them first would cost more than to multiply them.
    """
    nothing = torch.zeros(len(right_E))
    size = len(left_NS), len(right_MS)
    pairs = torch.sparse_csr_tensor(first_N, right_E, nothing, size, check_invariants=False)
    return torch.sparse.sampled_addmm(pairs, left_NS, right_MS.T, beta=0.0).values()


def _signs(num_columns: int) -> Tensor:
    """Returns the projection: for each column and each of `_SKETCH_SIZE` numbers 1 or -1.

    It is the same for every response: credit must not depend on what was computed before it.
    """
    return _signs_of(math.ceil(num_columns / 4096))[:num_columns]


@functools.lru_cache(maxsize=4)
def _signs_of(num_thousands: int) -> Tensor:
    # A longer draw from the same seed begins with the shorter one.
    generator = torch.Generator().manual_seed(0)
    return torch.randint(2, (4096 * num_thousands, _SKETCH_SIZE), generator=generator) * 2.0 - 1.0


def sampled_tokens(num_tokens: int) -> Tensor:
    """Returns `_SAMPLED_TOKENS` evenly spaced tokens; a few more where they do not come out even."""
    return torch.arange(num_tokens)[:: max(1, num_tokens // _SAMPLED_TOKENS)]


def edge_density(rows: ScaledRows, config: CreditConfig) -> float:
    """Returns the share of token pairs with a cosine above tau_sim, before `max_neighbours`.

    Near 1 the graph says nothing: every partition cuts it alike. Of a long response the `sampled_tokens` are compared
    with all others.
    """
    num_tokens = len(rows.raw_TS)
    some = sampled_tokens(num_tokens)
    cosine_TN = rows.sampled_TN / (rows.norm_T[:, None] * rows.norm_T[some])
    joined_TN = cosine_TN > config.min_edge_similarity
    joined = joined_TN.sum() - joined_TN[some, torch.arange(len(some))].sum()
    return float(joined) / (len(some) * (num_tokens - 1))


def sink_columns(attention: AttentionRows, config: CreditConfig) -> BoolTensor:
    """Returns which columns are attention sinks: text columns with a large share of the average row.

    The paper leaves open whether the cosine sees them. A sink with a fifth of every row makes every cosine exceed
    0.7, the graph complete and its METIS cut as large as a random partition's; below a tenth it does no harm.
    Visual columns are never sinks here, since a response may well look at one patch most of the time.
    """
    return (attention.mean_row >= config.min_sink_share) & ~attention.visual_S  # type: ignore[return-value]


def footprint_columns(attention: AttentionRows, config: CreditConfig) -> Tensor:
    """Returns which columns enter the cosine between two tokens, by `config.footprint`."""
    num_tokens, num_columns = attention.rows_TS.shape
    if config.footprint == "without_sinks":
        return ~sink_columns(attention, config)
    if config.footprint == "visual":
        return attention.visual_S
    if config.footprint == "prompt":
        return torch.arange(num_columns) < num_columns - num_tokens
    return torch.ones(num_columns, dtype=torch.bool)


def cosine_graph(rows: ScaledRows, config: CreditConfig) -> TokenGraph:
    """Returns the graph that joins two tokens if the cosine of their rows is strictly greater than tau_sim.

    w_ij = (A_i . A_j) / (|A_i| |A_j|); a row of zeros has no edges. With `max_neighbours` an edge stays only if it is
    among that many best ones of at least one of its ends. Beyond `_EXACT_TOKENS` tokens these best ones are looked up
    in a random projection of the rows, which mistakes one nearly equal neighbour for another now and then; whether
    two tokens are joined, and the weight, is decided by the cosine of the rows themselves.
    """
    num_tokens, limit = len(rows.raw_TS), config.max_neighbours
    if limit is not None and num_tokens > _EXACT_TOKENS:
        tail_E, head_E = _likely_neighbours(rows.sketch_TD, limit, config.min_edge_similarity)
        weight_E = rows.cosines(tail_E, head_E)
        joined_E = weight_E > config.min_edge_similarity
        return _undirected(num_tokens, tail_E[joined_E], head_E[joined_E], weight_E[joined_E])
    cosine_TT = rows.cosine_matrix()
    # The product is symmetric only up to rounding, so one triangle is read and mirrored.
    tail_E, head_E = (torch.triu(cosine_TT, diagonal=1) > config.min_edge_similarity).nonzero(as_tuple=True)
    graph = _undirected(num_tokens, tail_E, head_E, cosine_TT[tail_E, head_E])
    return graph if limit is None else _best_edges(graph, limit)


def _likely_neighbours(sketch_TD: Tensor, limit: int, min_similarity: float) -> tuple[Tensor, Tensor]:
    """Returns the pairs (tail < head) in which one is probably among the other's `limit` best, and similar enough."""
    num_tokens, size = sketch_TD.shape
    # The estimate of a cosine c has a standard deviation of about (1 - c^2) / sqrt(D).
    slack = 2 * (1 - min_similarity**2) / size**0.5
    num_parts = _PARTS if num_tokens >= _PARTS * limit else 1
    part_size = math.ceil(num_tokens / num_parts)
    others_DT = sketch_TD.T.contiguous()
    # The columns behind the last token are never written again: they are no neighbours.
    at_once = max(_ROWS_AT_ONCE, _CACHED // 2 // num_tokens)
    similarity_BT = torch.full((at_once, num_parts * part_size), -1.0)
    first_P = torch.arange(num_parts) * part_size
    keys = []
    for start in range(0, num_tokens, at_once):
        block_BD = sketch_TD[start : start + at_once]
        block_BT = similarity_BT[: len(block_BD)]
        torch.mm(block_BD, others_DT, out=block_BT[:, :num_tokens])
        block_BT[:, start:].fill_diagonal_(-1.0)
        # The `limit` best columns lie in the `limit` places where the best of all parts are highest.
        best_BQ = block_BT.view(len(block_BD), num_parts, part_size).amax(1)
        place_BL = best_BQ.topk(min(limit, part_size), dim=1, sorted=False).indices
        column_BC = (place_BL[:, :, None] + first_P).flatten(1)
        best_BL = block_BT.gather(1, column_BC).topk(min(limit, num_tokens - 1), dim=1)
        tail_E, nth_E = (best_BL.values > min_similarity - slack).nonzero(as_tuple=True)
        head_E = column_BC[tail_E, best_BL.indices[tail_E, nth_E]]
        tail_E += start
        keys.append(torch.minimum(tail_E, head_E) * num_tokens + torch.maximum(tail_E, head_E))
    key_E = torch.from_numpy(np.unique(torch.cat(keys).numpy()))
    return key_E // num_tokens, key_E % num_tokens


def _undirected(num_tokens: int, tail_E: Tensor, head_E: Tensor, weight_E: Tensor) -> TokenGraph:
    """Returns the graph of these edges, each given in one direction."""
    tails, heads, weights = torch.cat([tail_E, head_E]), torch.cat([head_E, tail_E]), torch.cat([weight_E, weight_E])
    order = torch.argsort(tails * num_tokens + heads)
    return TokenGraph(num_tokens, tails[order].numpy(), heads[order].numpy(), weights[order].numpy())


def _best_edges(graph: TokenGraph, limit: int) -> TokenGraph:
    """Returns the edges that are among the `limit` best ones of at least one of their ends."""
    order, place_E = graph.by_similarity()
    best = np.zeros(len(order), dtype=bool)
    best[order] = place_E < limit
    key_E = graph.tail_E * graph.num_tokens + graph.head_E
    # The edges are sorted by this key, so the position of the opposite direction is found by bisection.
    opposite_E = np.searchsorted(key_E, graph.head_E * graph.num_tokens + graph.tail_E)
    kept = best | best[opposite_E]
    return TokenGraph(graph.num_tokens, graph.tail_E[kept], graph.head_E[kept], graph.weight_E[kept])


def partition(graph: TokenGraph, config: CreditConfig, seed: int) -> NDArray[np.int64]:
    """Returns the METIS cluster of every token, K = max(2, T // tokens_per_cluster) clusters.

    METIS wants whole-number weights, so an edge counts round(1000 w), at least 1. The same seed gives the same
    clusters. METIS balances sizes to a few per cent, so a cluster cannot be as small as a lone anchor unless
    `max_imbalance` allows it; some clusters may stay empty.
    """
    num_clusters = max(2, graph.num_tokens // config.tokens_per_cluster)
    starts = np.zeros(graph.num_tokens + 1, dtype=np.int64)
    np.cumsum(np.bincount(graph.tail_E, minlength=graph.num_tokens), out=starts[1:])
    options = pymetis.Options(seed=seed % 2**31)
    if config.max_imbalance is not None:
        # METIS allows it at each of the about log2(K) bisections, and they multiply.
        levels = math.ceil(math.log2(num_clusters))
        options.ufactor = max(1, round(1000 * ((1 + config.max_imbalance) ** (1 / levels) - 1)))
    result = pymetis.part_graph(
        num_clusters,
        adjacency=pymetis.CSRAdjacency(starts, graph.head_E),
        eweights=np.maximum(1, np.rint(1000 * graph.weight_E)).astype(np.int64),
        options=options,
        # At about ten tokens a cluster METIS's recursive bisection is three times as fast as its k-way scheme, cuts
        # less and balances better; pymetis would take it up to eight clusters only.
        recursive=True,
    )
    return np.asarray(result.vertex_part, dtype=np.int64)


def random_cut(cluster_T: NDArray[np.integer]) -> float:
    """Returns the cut that clusters of these sizes have on average when tokens are dealt to them at random.

    A pair lands in the same cluster of size n with probability n (n - 1) / (T (T - 1)), whatever the weights.
    """
    num_tokens = len(cluster_T)
    sizes = np.bincount(cluster_T).astype(np.float64)
    return 1.0 - float((sizes * (sizes - 1)).sum()) / (num_tokens * (num_tokens - 1))
