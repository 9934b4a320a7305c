"""From attention rows to credit; peer: the dense cosine graph of whole rows, cut by METIS as pymetis calls it.

    python benchmarks/graph_to_credit.py [--tokens 256 512 1024 2048] [--repeats 5]
    python benchmarks/graph_to_credit.py --growth --tokens 512 2048 8192 16384

The rows are synthetic, causal and sink-heavy: topics of about twenty tokens, 60 % of every row on column 0. The cut of
both partitions is measured on the same two graphs: that of the whole rows, which the sink makes complete, and that of
the rows without the sink. One thread, processor time (a busy machine then matters less); medians of interleaved runs.
`--growth` leaves the peer out and sets the least time beside that of METIS and of reading all rows once.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable

import numpy as np
import pymetis
import torch

from atrl_bench.credit import AttentionRows, CreditConfig, token_credit
from atrl_bench.credit.connectivity import bias_curve
from atrl_bench.credit.graph import ScaledRows, cosine_graph, partition, random_cut

CONFIG = CreditConfig()
EVERY_EDGE = CONFIG.replace(max_neighbours=None)


def sink_heavy(num_tokens: int, num_prompt: int, sink: float = 0.6) -> AttentionRows:
    generator = torch.Generator().manual_seed(0)
    num_columns = num_prompt + num_tokens
    num_topics = max(2, num_tokens // 20)
    centre_KS = torch.randn(num_topics, num_columns, generator=generator).mul(3).exp()
    topic_T = torch.randint(num_topics, (num_tokens,), generator=generator)
    rows_TS = centre_KS[topic_T] * torch.randn(num_tokens, num_columns, generator=generator).mul(0.5).exp()
    rows_TS.masked_fill_(torch.arange(num_columns) > num_prompt + torch.arange(num_tokens)[:, None], 0.0)
    rows_TS *= (1 - sink) / rows_TS.sum(dim=1, keepdim=True)
    rows_TS[:, 0] += sink
    visual_S = torch.zeros(num_columns, dtype=torch.bool)
    visual_S[20 : 20 + num_prompt // 2] = True
    return AttentionRows(rows_TS, visual_S)


def peer(attention: AttentionRows) -> tuple[torch.Tensor, np.ndarray]:
    """The method as the paper writes it down, with the tools it names, and nothing done for speed."""
    rows_TS = attention.rows_TS / bias_curve(attention.rows_TS.shape[1], CONFIG)
    connectivity_T = rows_TS[:, attention.visual_S].sum(dim=1)
    unit_TS = torch.nn.functional.normalize(rows_TS, dim=1)
    cosine_TT = (unit_TS @ unit_TS.T).fill_diagonal_(0)
    joined_TT = cosine_TT > CONFIG.min_edge_similarity
    starts = np.concatenate([[0], joined_TT.sum(dim=1).cumsum(0).numpy()])
    heads = joined_TT.nonzero()[:, 1].numpy()
    weights = (1000 * cosine_TT[joined_TT]).round().long().numpy()
    num_clusters = max(2, len(rows_TS) // CONFIG.tokens_per_cluster)
    adjacency = pymetis.CSRAdjacency(starts, heads)
    cluster_T = np.array(pymetis.part_graph(num_clusters, adjacency, eweights=weights).vertex_part)
    labels_T = torch.from_numpy(cluster_T)

    centroid_KS = torch.zeros(num_clusters, rows_TS.shape[1]).index_add_(0, labels_T, rows_TS)
    similarity_T = torch.nn.functional.cosine_similarity(rows_TS, centroid_KS[labels_T])
    importance_T = connectivity_T / connectivity_T.max()
    importance_T[similarity_T < CONFIG.min_centroid_similarity] *= CONFIG.outlier_scale
    raised_T = importance_T.clone()
    for hub in importance_T.topk(int(np.ceil(CONFIG.hub_fraction * len(rows_TS)))).indices.tolist():
        nearest = cosine_TT[hub].topk(CONFIG.num_neighbours)
        for cosine, neighbour in zip(nearest.values.tolist(), nearest.indices.tolist(), strict=True):
            score = CONFIG.similarity_weight * cosine + CONFIG.importance_weight * importance_T[neighbour]
            if joined_TT[hub, neighbour] and score > CONFIG.min_neighbour_score:
                raised_T[neighbour] = max(raised_T[neighbour], cosine * importance_T[hub])
    weight_K = torch.zeros(num_clusters).index_add_(0, labels_T, raised_T)
    return weight_K[labels_T] / weight_K[labels_T].mean(), cluster_T


def growth(lengths: list[int], num_prompt: int, repeats: int) -> None:
    """Print how the time grows, beside that of METIS alone and of one reading of all rows."""
    print(f"{'T':>6} {'ms':>9} {'exponent':>9} {'METIS':>9} {'one reading':>12} {'rows, MB':>9}")
    before: tuple[int, float] | None = None
    for num_tokens in lengths:
        attention, took = sink_heavy(num_tokens, num_prompt), []
        rows = ScaledRows.of(attention, bias_curve(attention.rows_TS.shape[1], CONFIG), CONFIG)
        graph = cosine_graph([rows], CONFIG)
        metis = fastest(lambda graph=graph: partition(graph, CONFIG, [0]), repeats)
        reading = fastest(attention.rows_TS.sum, repeats)
        del rows, graph
        for _ in range(repeats * max(1, 4096 // num_tokens)):  # a response is new each time: nothing of it is kept
            fresh = AttentionRows(attention.rows_TS, attention.visual_S)
            took.append(fastest(lambda fresh=fresh: token_credit(fresh), 1))
        seconds = min(took)
        exponent = math.log(seconds / before[1]) / math.log(num_tokens / before[0]) if before else math.nan
        print(
            f"{num_tokens:6d} {1e3 * seconds:9.1f} {exponent:9.2f} {1e3 * metis:9.1f} {1e3 * reading:12.1f} "
            f"{attention.rows_TS.nbytes / 2**20:9.0f}",
            flush=True,
        )
        before = num_tokens, seconds


def fastest(run: Callable[[], object], repeats: int) -> float:
    """Returns the least processor time of one thread: what the machine does beside it only adds."""
    best = math.inf
    for _ in range(repeats):
        started = time.thread_time()
        run()
        best = min(best, time.thread_time() - started)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[256, 512, 1024, 2048])
    parser.add_argument("--prompt", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--growth", action="store_true", help="ours alone, with exponents and bounds")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.growth:
        growth(arguments.tokens, arguments.prompt, arguments.repeats)
        return
    print(f"{'T':>5} {'ours':>9} {'peer':>9} {'ratio':>7}   cut without the sink    cut with it             random")
    print(f"{'':>5} {'ms':>9} {'ms':>9} {'':>7}   {'ours':>10} {'peer':>10}   {'ours':>10} {'peer':>10}")
    for num_tokens in arguments.tokens:
        attention = sink_heavy(num_tokens, arguments.prompt)
        ours_seconds, peer_seconds = [], []
        credit = token_credit(attention)
        for _ in range(arguments.repeats):
            started = time.process_time()
            credit = token_credit(attention)
            between = time.process_time()
            _, peer_cluster_T = peer(attention)
            ours_seconds.append(between - started)
            peer_seconds.append(time.process_time() - between)
        ratio = statistics.median(b / a for a, b in zip(ours_seconds, peer_seconds, strict=True))
        cuts = []
        for footprint_columns in ("without_sinks", "all"):
            config = EVERY_EDGE.replace(footprint=footprint_columns)
            bias_S = bias_curve(attention.rows_TS.shape[1], config)
            graph = cosine_graph([ScaledRows.of(attention, bias_S, config)], config)
            cuts += [*graph.cuts(credit.cluster_T.numpy()), *graph.cuts(peer_cluster_T)]
        ours_ms, peer_ms = (1e3 * statistics.median(seconds) for seconds in (ours_seconds, peer_seconds))
        print(
            f"{num_tokens:5d} {ours_ms:9.1f} {peer_ms:9.1f} "
            f"{ratio:6.1f}x   {cuts[0]:10.4f} {cuts[1]:10.4f}   {cuts[2]:10.4f} {cuts[3]:10.4f}   "
            f"{random_cut(credit.cluster_T.numpy()):10.4f}"
        )


if __name__ == "__main__":
    main()
