"""The token graph: which tokens look at the same things, and its METIS partition (section 4.2).

Shapes: T response tokens, F footprint columns, E stored edges (each undirected edge is stored in both directions).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pymetis
import torch
from numpy.typing import NDArray
from torch import BoolTensor, Tensor

from atrl_bench.credit.config import CreditConfig
from atrl_bench.credit.footprint import Footprint


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

    def density(self) -> float:
        """Returns the share of all token pairs that are joined."""
        pairs = self.num_tokens * (self.num_tokens - 1)
        return len(self.tail_E) / pairs if pairs else 0.0

    def cut(self, cluster_T: NDArray[np.integer]) -> float:
        """Returns the share of the edge weight that crosses from one cluster to another."""
        total = float(self.weight_E.sum(dtype=np.float64))
        crossing = cluster_T[self.tail_E] != cluster_T[self.head_E]
        return float(self.weight_E[crossing].sum(dtype=np.float64)) / total if total else 0.0


def sink_columns(footprint: Footprint, config: CreditConfig) -> BoolTensor:
    """Returns which columns are attention sinks: text columns with a large share of the average row.

    The paper leaves open whether the cosine sees them. A sink with a fifth of every row makes every cosine exceed
    0.7, the graph complete and its METIS cut as large as a random partition's; below a tenth it does no harm.
    Visual columns are never sinks here, since a response may well look at one patch most of the time.
    """
    share_S = footprint.rows_TS.mean(dim=0)
    return (share_S >= config.min_sink_share) & ~footprint.visual_S  # type: ignore[return-value]


def footprint_columns(footprint: Footprint, config: CreditConfig) -> Tensor:
    """Returns which columns enter the cosine between two tokens, by `config.footprint`."""
    num_tokens, num_columns = footprint.rows_TS.shape
    if config.footprint == "without_sinks":
        return ~sink_columns(footprint, config)
    if config.footprint == "visual":
        return footprint.visual_S
    if config.footprint == "prompt":
        return torch.arange(num_columns) < num_columns - num_tokens
    return torch.ones(num_columns, dtype=torch.bool)


def cosine_graph(unit_TF: Tensor, config: CreditConfig) -> TokenGraph:
    """Returns the graph that joins two tokens if the cosine of their rows is strictly greater than tau_sim.

    w_ij = (A_i . A_j) / (|A_i| |A_j|), here the product of rows of length one (a zero row has no edges).
    With `max_neighbours` an edge stays only if it is among that many best ones of at least one of its ends.
    """
    cosine_TT = unit_TF @ unit_TF.T
    cosine_TT.fill_diagonal_(-1.0)
    num_tokens = len(cosine_TT)
    kept_TT = cosine_TT > config.min_edge_similarity
    limit = config.max_neighbours
    if limit is not None and limit < num_tokens - 1:
        best_TK = cosine_TT.topk(limit, dim=1).indices
        among_best_TT = torch.zeros_like(kept_TT).scatter_(1, best_TK, value=True)
        kept_TT &= among_best_TT | among_best_TT.T
    # The product is symmetric only up to rounding: read the upper triangle and mirror it.
    tail_E, head_E = torch.triu(kept_TT | kept_TT.T, diagonal=1).nonzero(as_tuple=True)
    return _mirrored(num_tokens, tail_E.numpy(), head_E.numpy(), cosine_TT[tail_E, head_E].numpy())


def _mirrored(
    num_tokens: int, tail_E: NDArray[np.int64], head_E: NDArray[np.int64], weight_E: NDArray[np.float32]
) -> TokenGraph:
    tails, heads = np.concatenate([tail_E, head_E]), np.concatenate([head_E, tail_E])
    order = np.argsort(tails * num_tokens + heads, kind="stable")
    return TokenGraph(num_tokens, tails[order], heads[order], np.concatenate([weight_E, weight_E])[order])


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
        options.ufactor = max(1, round(1000 * config.max_imbalance))
    result = pymetis.part_graph(
        num_clusters,
        adjacency=pymetis.CSRAdjacency(starts, graph.head_E),
        eweights=np.maximum(1, np.rint(1000 * graph.weight_E)).astype(np.int64),
        options=options,
    )
    return np.asarray(result.vertex_part, dtype=np.int64)


def random_cut(cluster_T: NDArray[np.integer]) -> float:
    """Returns the cut that clusters of these sizes have on average when tokens are dealt to them at random.

    A pair lands in the same cluster of size n with probability n (n - 1) / (T (T - 1)), whatever the weights.
    """
    num_tokens = len(cluster_T)
    sizes = np.bincount(cluster_T).astype(np.float64)
    return 1.0 - float((sizes * (sizes - 1)).sum()) / (num_tokens * (num_tokens - 1))
