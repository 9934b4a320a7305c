"""The token graph: which tokens look at the same things, and its METIS partition (section 4.2).

Shapes: T response tokens, F footprint columns, E stored edges (each undirected edge is stored in both directions).
"""

from __future__ import annotations

import math
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
_BLOCK = 64
_SAMPLED_TOKENS = 8


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
    are tens of megabytes: not copying them is most of the speed.
    """

    raw_TS: Tensor
    scale_S: Tensor
    norm_T: Tensor

    @classmethod
    def of(cls, attention: AttentionRows, bias_S: Tensor, config: CreditConfig) -> ScaledRows:
        """Returns the attention rows, debiased, with the columns that `config.footprint` names."""
        scale_S = footprint_columns(attention, config).float() / bias_S
        square_S = scale_S.square()
        norm_T = torch.cat([block_TS.square() @ square_S for block_TS in attention.rows_TS.split(_BLOCK)]).sqrt()
        # A row of zeros has cosine zero with everything, whatever it is divided by.
        return cls(attention.rows_TS, scale_S, norm_T.clamp_min(torch.finfo(torch.float32).tiny))

    def cosine_matrix(self) -> Tensor:
        """Returns the cosine of every two rows."""
        unit_TS = self.raw_TS * self.scale_S / self.norm_T[:, None]
        return unit_TS @ unit_TS.T

    def cosines(self, tail_E: Tensor, head_E: Tensor) -> Tensor:
        """Returns the cosine of row tail_e with row head_e for each pair e."""
        return self._products(self.raw_TS, tail_E, head_E) / (self.norm_T[tail_E] * self.norm_T[head_E])

    def centroid_cosines(self, cluster_T: Tensor) -> Tensor:
        """Returns the cosine of every row with the mean of the rows of its cluster.

        A cosine does not see the division by the cluster's size, so the sum stands for the mean.
        """
        centroid_KS = torch.zeros(int(cluster_T.max()) + 1, self.raw_TS.shape[1])
        centroid_KS.index_add_(0, cluster_T, self.raw_TS)
        norm_K = (centroid_KS.square() @ self.scale_S.square()).sqrt()
        product_T = self._products(centroid_KS, torch.arange(len(cluster_T)), cluster_T)
        return product_T / (self.norm_T * norm_K[cluster_T]).clamp_min(torch.finfo(torch.float32).tiny)

    def _products(self, other_KS: Tensor, tail_E: Tensor, head_E: Tensor) -> Tensor:
        square_S = self.scale_S.square()
        # Two buffers that fit the cache and are used again; fresh ones would cost more than the arithmetic.
        left, right = torch.empty(2, min(_BLOCK, len(tail_E)), self.raw_TS.shape[1])
        products = [torch.empty(0)]
        for tail, head in zip(tail_E.split(_BLOCK), head_E.split(_BLOCK), strict=True):
            torch.index_select(self.raw_TS, 0, tail, out=left[: len(tail)])
            torch.index_select(other_KS, 0, head, out=right[: len(head)])
            products.append(left[: len(tail)].mul_(right[: len(head)]) @ square_S)
        return torch.cat(products)


def edge_density(rows: ScaledRows, config: CreditConfig) -> float:
    """Returns the share of token pairs with a cosine above tau_sim, before `max_neighbours`.

    Near 1 the graph says nothing: every partition cuts it alike. Of a long response `_SAMPLED_TOKENS` evenly spaced
    tokens are compared with all others.
    """
    num_tokens = len(rows.raw_TS)
    some = torch.arange(num_tokens)[:: max(1, num_tokens // _SAMPLED_TOKENS)]
    weighted_TS = rows.raw_TS[some] * rows.scale_S.square()
    cosine_TT = weighted_TS @ rows.raw_TS.T / (rows.norm_T[some][:, None] * rows.norm_T)
    joined = (cosine_TT > config.min_edge_similarity).sum() - (
        cosine_TT[range(len(some)), some] > config.min_edge_similarity
    ).sum()
    return float(joined) / (len(some) * (num_tokens - 1))


def sink_columns(attention: AttentionRows, config: CreditConfig) -> BoolTensor:
    """Returns which columns are attention sinks: text columns with a large share of the average row.

    The paper leaves open whether the cosine sees them. A sink with a fifth of every row makes every cosine exceed
    0.7, the graph complete and its METIS cut as large as a random partition's; below a tenth it does no harm.
    Visual columns are never sinks here, since a response may well look at one patch most of the time.
    """
    share_S = attention.rows_TS.mean(dim=0)
    return (share_S >= config.min_sink_share) & ~attention.visual_S  # type: ignore[return-value]


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
        tail_E, head_E = _likely_neighbours(rows, limit, config.min_edge_similarity)
        weight_E = rows.cosines(tail_E, head_E)
        joined_E = weight_E > config.min_edge_similarity
        return _undirected(num_tokens, tail_E[joined_E], head_E[joined_E], weight_E[joined_E])
    cosine_TT = rows.cosine_matrix()
    # The product is symmetric only up to rounding, so one triangle is read and mirrored.
    tail_E, head_E = (torch.triu(cosine_TT, diagonal=1) > config.min_edge_similarity).nonzero(as_tuple=True)
    graph = _undirected(num_tokens, tail_E, head_E, cosine_TT[tail_E, head_E])
    return graph if limit is None else _best_edges(graph, limit)


def _likely_neighbours(rows: ScaledRows, limit: int, min_similarity: float) -> tuple[Tensor, Tensor]:
    """Returns the pairs (tail < head) in which one is probably among the other's `limit` best, and similar enough."""
    num_tokens, num_columns = rows.raw_TS.shape
    # The same projection for every response: credit must not depend on what was computed before it.
    generator = torch.Generator().manual_seed(0)
    sign_SD = torch.randint(2, (num_columns, _SKETCH_SIZE), generator=generator) * 2.0 - 1.0
    sketch_TD = torch.nn.functional.normalize(rows.raw_TS @ (rows.scale_S[:, None] * sign_SD), dim=1)
    best_TN = (sketch_TD @ sketch_TD.T).fill_diagonal_(-1.0).topk(min(limit, num_tokens - 1), dim=1)
    # The estimate of a cosine c has a standard deviation of about (1 - c^2) / sqrt(D).
    slack = 2 * (1 - min_similarity**2) / _SKETCH_SIZE**0.5
    tail_E, place_E = (best_TN.values > min_similarity - slack).nonzero(as_tuple=True)
    head_E = best_TN.indices[tail_E, place_E]
    key_E = torch.unique(torch.minimum(tail_E, head_E) * num_tokens + torch.maximum(tail_E, head_E))
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
