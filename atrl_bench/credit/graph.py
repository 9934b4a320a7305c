"""The token graph: which tokens look at the same things, and its METIS partition (section 4.2).

Shapes: T response tokens, F footprint columns, E stored edges (each undirected edge is stored in both directions).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
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
# So many tokens at most are compared pair by pair with one product.
_GROUP = 32
# So many numbers fit the inner cache of a core, with something beside them; so many the outer one.
_CACHED, _ALL_CACHED = 2**18, 2**21
# Rows of a product at a time: of long rows with few others a few are twice as fast as more, otherwise many.
_FEW, _MANY = 8, 64
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
    take up to a gigabyte: reading them is most of the time, so each is read from start to end as seldom as can be.
    """

    raw_TS: Tensor
    scale_S: Tensor
    norm_T: Tensor
    num_columns_T: NDArray[np.int64]
    """How many columns of each row to read; behind them all are zero."""
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
            # The same projection for every response: credit must not depend on what was computed before it.
            generator = torch.Generator().manual_seed(0)
            sign_SD = torch.randint(2, (num_columns, _SKETCH_SIZE), generator=generator) * 2.0 - 1.0
            probes_SN = torch.cat([probes_SN, sign_SD.mul_(scale_S[:, None])], dim=1)
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
            num_columns_T=np.repeat([block.shape[1] for block in blocks], [len(block) for block in blocks]),
            sketch_TD=torch.nn.functional.normalize(sketch_TD, dim=1) if sketch_TD.shape[1] else sketch_TD,
            sampled_TN=sampled_TN,
        )

    def cosine_matrix(self) -> Tensor:
        """Returns the cosine of every two rows."""
        unit_TS = self.raw_TS * self.scale_S / self.norm_T[:, None]
        return unit_TS @ unit_TS.T

    def cosines(self, tail_E: Tensor, head_E: Tensor) -> Tensor:
        """Returns the cosine of row tail_e with row head_e for each pair e."""
        square_S = self.scale_S.square()
        at_once = min(_MANY, max(1, _CACHED // self.raw_TS.shape[1]))
        # Two buffers that fit the cache and are used again; fresh ones would cost more than the arithmetic.
        left, right = torch.empty(2, min(at_once, len(tail_E)), self.raw_TS.shape[1])
        products = [torch.empty(0)]
        for tail, head in zip(tail_E.split(at_once), head_E.split(at_once), strict=True):
            torch.index_select(self.raw_TS, 0, tail, out=left[: len(tail)])
            torch.index_select(self.raw_TS, 0, head, out=right[: len(head)])
            products.append(left[: len(tail)].mul_(right[: len(head)]) @ square_S)
        return torch.cat(products) / (self.norm_T[tail_E] * self.norm_T[head_E])

    def cosines_in_groups(self, tail_E: Tensor, head_E: Tensor, group_T: NDArray[np.int64]) -> Tensor:
        """Returns the same as `cosines`, at the cost of one reading of the rows where most pairs share a group.

        All pairs of a group are one small matrix product; what lies between two groups is computed pair by pair.
        """
        tail, head = tail_E.numpy(), head_E.numpy()
        place_T, first_T = np.empty_like(group_T), np.empty_like(group_T)
        products, num_products = [torch.empty(0)], 0
        for tokens, rows_GS in self._grouped(group_T):
            place_T[tokens], first_T[tokens] = np.arange(len(tokens)), num_products
            num_products += len(tokens) ** 2
            rows_GS.mul_(self.scale_S[: rows_GS.shape[1]])
            products += [(few_GS @ rows_GS.T).flatten() for few_GS in rows_GS.split(_FEW)]
        inside_E = group_T[tail] == group_T[head]
        tails, heads = tail[inside_E], head[inside_E]
        sizes_T = np.bincount(group_T)[group_T]
        number_E = torch.from_numpy(first_T[tails] + place_T[tails] * sizes_T[tails] + place_T[heads])
        cosine_E = torch.empty(len(tail))
        cosine_E[inside_E] = torch.cat(products)[number_E] / (self.norm_T[tails] * self.norm_T[heads])
        cosine_E[~inside_E] = self.cosines(tail_E[~inside_E], head_E[~inside_E])
        return cosine_E

    def centroid_cosines(self, cluster_T: Tensor) -> Tensor:
        """Returns the cosine of every row with the mean of the rows of its cluster.

        A cosine does not see the division by the cluster's size, so the sum stands for the mean.
        """
        square_S = self.scale_S.square()
        product_T, norm_T = torch.empty(2, len(cluster_T))
        clusters, most = cluster_T.numpy(), min(_MANY, _CACHED // self.raw_TS.shape[1])
        is_short = len(clusters) <= most  # then all rows are one group as they stand
        all_rows = [(np.arange(len(clusters)), self.raw_TS)]
        for tokens, rows_GS in all_rows if is_short else self._grouped(_packed(clusters, most)):
            at = torch.from_numpy(tokens)
            # A group holds clusters of consecutive numbers.
            cluster_G = torch.from_numpy(clusters[tokens] - clusters[tokens].min())
            is_of_GK = torch.nn.functional.one_hot(cluster_G).float()
            centroid_KS = is_of_GK.T @ rows_GS
            weighted_KS = centroid_KS * square_S[: rows_GS.shape[1]]
            product_T[at] = ((rows_GS @ weighted_KS.T) * is_of_GK).sum(1)
            norm_T[at] = (weighted_KS * centroid_KS).sum(1).sqrt()[cluster_G]
        return product_T / (self.norm_T * norm_T).clamp_min(torch.finfo(torch.float32).tiny)

    def _grouped(self, group_T: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
        """Yield the tokens of each group and a copy of their rows, which the next one overwrites."""
        order = np.argsort(group_T, kind="stable")
        sizes = np.bincount(group_T)
        # A buffer that fits the cache and is used again; fresh ones would cost more than the arithmetic.
        buffer = torch.empty(int(sizes.max(initial=0)) * self.raw_TS.shape[1])
        for tokens in np.split(order, np.cumsum(sizes[sizes > 0])[:-1]):
            width = int(self.num_columns_T[tokens].max(initial=0))
            rows_GS = buffer[: len(tokens) * width].view(len(tokens), width)
            torch.index_select(self.raw_TS[:, :width], 0, torch.from_numpy(tokens), out=rows_GS)
            yield tokens, rows_GS


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
    share_S = _mean_row(attention)
    return (share_S >= config.min_sink_share) & ~attention.visual_S  # type: ignore[return-value]


def _mean_row(attention: AttentionRows) -> Tensor:
    num_tokens, num_columns = attention.rows_TS.shape
    if num_tokens <= _EXACT_TOKENS:
        return attention.rows_TS.mean(dim=0)
    sum_S = torch.zeros(num_columns)
    for block_BS in attention.blocks:
        # A product with ones is a third of the time of a sum.
        sum_S[: block_BS.shape[1]] += torch.ones(len(block_BS)) @ block_BS
    return sum_S / num_tokens


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
        tail_E, head_E, estimate_E = _likely_neighbours(rows.sketch_TD, limit, config.min_edge_similarity)
        if rows.raw_TS.numel() <= _ALL_CACHED:
            weight_E = rows.cosines(tail_E, head_E)
        else:
            group_T = _groups_of_neighbours(num_tokens, tail_E.numpy(), head_E.numpy(), estimate_E.numpy())
            weight_E = rows.cosines_in_groups(tail_E, head_E, group_T)
        joined_E = weight_E > config.min_edge_similarity
        return _undirected(num_tokens, tail_E[joined_E], head_E[joined_E], weight_E[joined_E])
    cosine_TT = rows.cosine_matrix()
    # The product is symmetric only up to rounding, so one triangle is read and mirrored.
    tail_E, head_E = (torch.triu(cosine_TT, diagonal=1) > config.min_edge_similarity).nonzero(as_tuple=True)
    graph = _undirected(num_tokens, tail_E, head_E, cosine_TT[tail_E, head_E])
    return graph if limit is None else _best_edges(graph, limit)


def _likely_neighbours(sketch_TD: Tensor, limit: int, min_similarity: float) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the pairs (tail < head) in which one is probably among the other's `limit` best, and similar enough.

    Third are their similarities as the projection has them.
    """
    num_tokens, size = sketch_TD.shape
    # The estimate of a cosine c has a standard deviation of about (1 - c^2) / sqrt(D).
    slack = 2 * (1 - min_similarity**2) / size**0.5
    num_parts = _PARTS if num_tokens >= _PARTS * limit else 1
    part_size = math.ceil(num_tokens / num_parts)
    others_DT = sketch_TD.T.contiguous()
    # The columns behind the last token are never written again: they are no neighbours.
    similarity_BT = torch.full((_MANY, num_parts * part_size), -1.0)
    first_P = torch.arange(num_parts) * part_size
    tails, heads, estimates = [], [], []
    for start in range(0, num_tokens, _MANY):
        block_BD = sketch_TD[start : start + _MANY]
        block_BT = similarity_BT[: len(block_BD)]
        torch.mm(block_BD, others_DT, out=block_BT[:, :num_tokens])
        block_BT[:, start:].fill_diagonal_(-1.0)
        # The `limit` best columns lie in the `limit` places where the best of all parts are highest.
        best_BQ = block_BT.view(len(block_BD), num_parts, part_size).amax(1)
        place_BL = best_BQ.topk(min(limit, part_size), dim=1, sorted=False).indices
        column_BC = (place_BL[:, :, None] + first_P).flatten(1)
        best_BL = block_BT.gather(1, column_BC).topk(min(limit, num_tokens - 1), dim=1)
        tail_E, nth_E = (best_BL.values > min_similarity - slack).nonzero(as_tuple=True)
        tails.append(tail_E + start)
        heads.append(column_BC[tail_E, best_BL.indices[tail_E, nth_E]])
        estimates.append(best_BL.values[tail_E, nth_E])
    tail_E, head_E = torch.cat(tails), torch.cat(heads)
    keys = (torch.minimum(tail_E, head_E) * num_tokens + torch.maximum(tail_E, head_E)).numpy()
    key_E, first_E = (torch.from_numpy(each) for each in np.unique(keys, return_index=True))
    return key_E // num_tokens, key_E % num_tokens, torch.cat(estimates)[first_E]


def _groups_of_neighbours(
    num_tokens: int, tail_E: NDArray[np.int64], head_E: NDArray[np.int64], similarity_E: NDArray[np.float32]
) -> NDArray[np.int64]:
    """Returns the group of each token, of at most `_GROUP` ones, such that most of these pairs lie within a group.

    Every token joins its most similar neighbour; what has come together so joins once more.
    """
    order = np.argsort(similarity_E, kind="stable")
    # Both directions of an edge one after the other: of what is written to one place the last, hence the best, stays.
    ends = np.stack([tail_E[order], head_E[order]], axis=1)
    group_T = np.arange(num_tokens)
    for _ in range(2):
        between = group_T[ends]
        between = between[between[:, 0] != between[:, 1]]
        best = np.arange(num_tokens)
        best[between.ravel()] = between[:, ::-1].ravel()
        # Two that name each other: the first of them stays where it is.
        itself = np.arange(num_tokens)
        best = np.where((best[best] == itself) & (itself < best), itself, best)
        for _ in range(num_tokens.bit_length()):
            best = best[best]
        group_T = best[group_T]
    return _packed(group_T, _GROUP, cut=True)


def _packed(group_T: NDArray[np.int64], most: int, *, cut: bool = False) -> NDArray[np.int64]:
    """Returns groups of about `most` tokens at most: small ones taken together, and large ones cut if `cut` says so."""
    order = np.argsort(group_T, kind="stable")
    sizes = np.bincount(group_T)
    packs, size, number = np.empty(len(sizes), dtype=np.int64), 0, 0
    for group, of_group in enumerate(sizes.tolist()):
        if size + of_group > most and size:
            size, number = 0, number + 1
        packs[group], size = number, size + of_group
    packed_T = packs[group_T]
    if not cut:
        return packed_T
    sorted_T = packed_T[order]
    place = np.arange(len(order)) - np.searchsorted(sorted_T, sorted_T)
    starts = place % most == 0
    packed_T[order] = np.cumsum(starts) - 1
    return packed_T


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
