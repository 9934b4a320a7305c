import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile

from atrl_bench.credit import AttentionRows, CreditConfig
from atrl_bench.credit import graph as graph_module
from atrl_bench.credit.attention_rows import footprint_columns
from atrl_bench.credit.graph import (
    ScaledRows,
    TokenGraph,
    centroid_cosines,
    cosine_graph,
    partition,
    random_cut,
)
from atrl_bench.credit.token_batch import TokenBatch

FLAT = CreditConfig(exp_weight=0.0, cosine_weight=0.0, footprint="all")


def scaled(rows, config=FLAT, bias_S=None):
    rows_TS = torch.as_tensor(rows, dtype=torch.float32)
    attention = AttentionRows(rows_TS, torch.ones(rows_TS.shape[1], dtype=torch.bool))
    return ScaledRows.of(attention, torch.ones(rows_TS.shape[1]) if bias_S is None else bias_S, config)


def edges(graph):
    return {
        (int(i), int(j)): round(float(w), 4) for i, j, w in zip(graph.tail_E, graph.head_E, graph.weight_E, strict=True)
    }


def topics(num_tokens, num_columns, sink=0.0, seed=0):
    """Rows that gather in topics of about ten tokens, with the share `sink` of each on column 0."""
    generator = torch.Generator().manual_seed(seed)
    centre_KS = torch.randn(max(2, num_tokens // 10), num_columns, generator=generator).mul(2.5).exp()
    topic_T = torch.randint(len(centre_KS), (num_tokens,), generator=generator)
    rows_TS = centre_KS[topic_T] * torch.randn(num_tokens, num_columns, generator=generator).mul(0.4).exp()
    rows_TS[:, 0] = 0
    rows_TS *= (1 - sink) / rows_TS.sum(dim=1, keepdim=True)
    rows_TS[:, 0] = sink
    visual_S = torch.zeros(num_columns, dtype=torch.bool)
    visual_S[1 : num_columns // 2] = True
    return AttentionRows(rows_TS, visual_S)


def test_edges_by_hand_are_strictly_above_the_threshold():
    # (3, 4) and (4, 3): 24/25 = 0.96. (3, 4) and (1, 0): 0.6. (4, 3) and (1, 0): 0.8, exactly the threshold.
    graph = cosine_graph([scaled([[3, 4], [4, 3], [1, 0]])], FLAT.replace(min_edge_similarity=0.8))
    assert edges(graph) == {(0, 1): 0.96, (1, 0): 0.96}
    graph = cosine_graph([scaled([[3, 4], [4, 3], [1, 0]])], FLAT.replace(min_edge_similarity=0.79))
    assert edges(graph) == {(0, 1): 0.96, (1, 0): 0.96, (1, 2): 0.8, (2, 1): 0.8}


def test_the_cosine_is_that_of_the_debiased_rows():
    # Divided by (1, 2) the rows are (1, 1) and (1, 0): cosine 1/sqrt(2).
    rows = scaled([[1, 2], [1, 0]], bias_S=torch.tensor([1.0, 2.0]))
    assert rows.cosine_matrix[0, 1] == pytest.approx(0.5**0.5)
    assert rows.cosines(torch.tensor([0]), torch.tensor([1])).item() == pytest.approx(0.5**0.5)


def test_a_row_of_zeros_has_no_edges_and_no_nan():
    graph = cosine_graph([scaled([[0, 0], [1, 0], [1, 0]])], FLAT)
    assert edges(graph) == {(1, 2): 1.0, (2, 1): 1.0}


def test_an_edge_stays_if_it_is_the_best_of_one_of_its_ends():
    # Angles 0, 10, 25 and 50 degrees: nearest neighbours 0-1, 1-0, 2-1, 3-2. The edge 0-2 is the best of neither.
    angles = torch.tensor([0.0, 10.0, 25.0, 50.0]).deg2rad()
    rows = torch.stack([angles.cos(), angles.sin()], dim=1)
    graph = cosine_graph([scaled(rows)], FLAT.replace(max_neighbours=1, min_edge_similarity=0.5))
    assert {(i, j) for i, j in edges(graph) if i < j} == {(0, 1), (1, 2), (2, 3)}


def test_sinks_are_text_columns_with_a_large_share_of_the_average_row():
    rows_TS = torch.tensor([[0.5, 0.4, 0.05, 0.05], [0.3, 0.6, 0.05, 0.05]])
    attention = AttentionRows(rows_TS, torch.tensor([False, True, False, False]))
    # Means 0.4, 0.5, 0.05, 0.05; column 1 is visual.
    assert footprint(attention).tolist() == [False, True, True, True]
    assert footprint(attention, min_sink_share=0.41).tolist() == [True] * 4


def footprint(attention, **settings):
    return footprint_columns(attention.mean_row, attention.visual_S, attention.num_tokens, CreditConfig(**settings))


def test_footprint_columns_by_name():
    attention = AttentionRows(torch.full((2, 5), 0.2), torch.tensor([False, True, True, False, False]))
    columns = {name: footprint(attention, footprint=name).int().tolist() for name in ("all", "visual", "prompt")}
    assert columns == {"all": [1, 1, 1, 1, 1], "visual": [0, 1, 1, 0, 0], "prompt": [1, 1, 1, 0, 0]}
    # All three text columns hold a fifth of the average row.
    assert footprint(attention).int().tolist() == [0, 1, 1, 0, 0]


def test_cut_and_random_cut_by_hand():
    # A path 0-1-2-3 with weights 1, 2, 1, cut in the middle: 2 of 4. Random halves: 1 - 2 (2 * 1) / (4 * 3) = 2/3.
    graph = TokenGraph(
        TokenBatch([4]),
        np.array([0, 1, 1, 2, 2, 3]),
        np.array([1, 0, 2, 1, 3, 2]),
        np.array([1, 1, 2, 2, 1, 1], dtype=np.float32),
    )
    assert graph.cuts(np.array([0, 0, 1, 1]))[0] == pytest.approx(0.5)
    assert random_cut(np.array([0, 0, 1, 1])) == pytest.approx(2 / 3)
    assert graph.degree().tolist() == [1, 3, 3, 1]


@pytest.mark.parametrize(("num_tokens", "num_clusters"), [(2, 2), (5, 2), (19, 2), (29, 2), (30, 3), (125, 12)])
def test_there_is_a_cluster_for_every_ten_tokens_and_at_least_two(num_tokens, num_clusters):
    rows = scaled(topics(num_tokens, 40).rows_TS)
    labels = partition(cosine_graph([rows], FLAT), FLAT, [0])
    assert len(labels) == num_tokens
    assert labels.max() < num_clusters
    assert len(set(labels.tolist())) == num_clusters


def test_metis_finds_groups_that_look_at_different_places():
    rows = torch.zeros(30, 3)
    rows[torch.arange(30), torch.arange(30) % 3] = 1
    labels = partition(cosine_graph([scaled(rows)], FLAT), FLAT, [0])
    assert [set(labels[k::3].tolist()) for k in range(3)] == [{int(labels[k])} for k in range(3)]


def cliques(*sizes):
    """Return a graph of complete groups of these sizes with no edge between them."""
    group_T = np.repeat(np.arange(len(sizes)), sizes)
    tail_E, head_E = np.nonzero((group_T[:, None] == group_T) & ~np.eye(len(group_T), dtype=bool))
    return TokenGraph(TokenBatch([len(group_T)]), tail_E, head_E, np.full(len(tail_E), 0.95, dtype=np.float32))


@pytest.mark.parametrize("max_imbalance", [0.1, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("sizes", [(60, 40, 20, 20, 20), (100, 20, 20, 20), (120, 80, 60, 30, 30), (40, 20, 20)])
def test_the_largest_cluster_is_larger_than_the_average_by_about_the_imbalance_that_is_allowed(sizes, max_imbalance):
    for seed in range(5):
        clusters = partition(cliques(*sizes), CreditConfig(max_imbalance=max_imbalance), [seed])
        # The average is ten tokens; METIS itself may be off by two.
        assert np.bincount(clusters).max() <= 10 * (1 + max_imbalance) + 2


def test_an_empty_graph_and_a_complete_one_are_partitioned_too():
    for rows in (torch.eye(25), torch.ones(25, 4)):
        assert len(set(partition(cosine_graph([scaled(rows)], FLAT), FLAT, [0]).tolist())) == 2


def test_the_partition_depends_on_the_seed_and_on_nothing_else():
    rows = scaled(topics(200, 60, seed=3).rows_TS)
    graph = cosine_graph([rows], FLAT)
    first, again, other = (partition(graph, FLAT, [seed]) for seed in (5, 5, 6))
    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist()


def test_centroid_cosines_by_hand():
    # Cluster 0: rows (2, 0) and (0, 1), centroid (1, 0.5): cosines 2/sqrt(5) and 1/sqrt(5). A cluster of one: 1.
    cosines = centroid_cosines([scaled([[2, 0], [0, 1], [3, 3]])], TokenBatch([3]), np.array([0, 0, 1]))
    assert cosines == pytest.approx([2 / 5**0.5, 1 / 5**0.5, 1.0])


# Long responses: neighbours are looked up in a projection.


def test_the_projection_finds_nearly_the_same_edges_with_the_same_weights(monkeypatch):
    config = CreditConfig()
    rows = ScaledRows.of(topics(700, 900, sink=0.5), torch.ones(900), config)
    found = edges(cosine_graph([rows], config))
    monkeypatch.setattr(graph_module, "_EXACT_TOKENS", 700)
    exact = edges(cosine_graph([rows], config))
    assert len(found.keys() & exact.keys()) >= 0.9 * len(exact)
    # What it misses it replaces by neighbours that are nearly as near.
    assert sum(found.values()) >= 0.97 * sum(exact.values())
    assert all(weight > 0.7 for weight in found.values())
    # The projection only proposes: a weight is the cosine of the rows themselves.
    assert all(abs(found[edge] - exact[edge]) <= 1e-3 for edge in found.keys() & exact.keys())


def test_the_projection_costs_no_cut(monkeypatch):
    config = CreditConfig()
    rows = ScaledRows.of(topics(700, 900, sink=0.5), torch.ones(900), config)
    found = partition(cosine_graph([rows], config), config, [0])
    monkeypatch.setattr(graph_module, "_EXACT_TOKENS", 700)
    every_edge = cosine_graph([rows], config.replace(max_neighbours=None))
    assert every_edge.cuts(found)[0] <= every_edge.cuts(partition(every_edge, config, [0]))[0] + 0.02


def long_rows(num_tokens, num_columns):
    """Scaled causal rows, too many to compare all with all."""
    attention = topics(num_tokens, num_columns, sink=0.5)
    after = torch.arange(num_columns) > num_columns - num_tokens + torch.arange(num_tokens)[:, None]
    return ScaledRows.of(
        AttentionRows(attention.rows_TS.masked_fill(after, 0.0), attention.visual_S),
        torch.ones(num_columns),
        CreditConfig(),
    )


@pytest.mark.parametrize("cached", [2**18, 1000, 1])  # all rows at a time, four, one
def test_cosines_of_pairs_are_those_of_the_matrix_however_many_rows_are_read_at_a_time(monkeypatch, cached):
    monkeypatch.setattr(graph_module, "_CACHED", cached)
    rows, generator = long_rows(300, 500), np.random.default_rng(0)
    # Not every row is in a pair, and some are in many.
    tail_E = torch.from_numpy(np.sort(generator.integers(20, 280, size=400)))
    head_E = torch.from_numpy(generator.integers(300, size=400))
    torch.testing.assert_close(rows.cosines(tail_E, head_E), rows.cosine_matrix[tail_E, head_E])


@pytest.mark.parametrize("cached", [2**18, 5000, 1])  # all clusters at a time, ten, one
def test_cosines_with_centroids_are_those_of_the_means_however_many_clusters_are_read_at_a_time(monkeypatch, cached):
    monkeypatch.setattr(graph_module, "_CACHED", cached)
    rows = long_rows(300, 500)
    cluster_T = np.random.default_rng(0).choice([0, 1, *range(3, 40)], size=300)  # 2 is empty
    scaled_TS = (rows.raw_TS * rows.scale_S).double()
    mean_TS = torch.stack([scaled_TS[torch.from_numpy(cluster_T == cluster)].mean(0) for cluster in cluster_T])
    expected = torch.nn.functional.cosine_similarity(scaled_TS, mean_TS).numpy()
    assert centroid_cosines([rows], TokenBatch([300]), cluster_T) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("num_tokens", [7, 64, 301, 513])
def test_neighbours_by_parts_are_the_best_of_all(num_tokens):
    sketch_TD = torch.nn.functional.normalize(torch.randn(num_tokens, 4, generator=torch.Generator().manual_seed(0)))
    similarity_TT = (sketch_TD @ sketch_TD.T).fill_diagonal_(-1.0)
    best = similarity_TT.topk(6, dim=1)
    # With four dimensions the slack is 0.51, so what counts is above 0.19.
    expected = {
        (min(tail, head), max(tail, head))
        for tail in range(num_tokens)
        for head, value in zip(best.indices[tail].tolist(), best.values[tail].tolist(), strict=True)
        if value > 0.7 - 0.51
    }
    tail_E, head_E = graph_module._likely_neighbours(sketch_TD, 6, 0.7)
    assert set(zip(tail_E.tolist(), head_E.tolist(), strict=True)) == expected
    assert tail_E.tolist() == sorted(tail_E.tolist())


def test_a_long_response_needs_no_matrix_of_all_pairs():
    attention = AttentionRows(long_rows(1500, 1600).raw_TS[:, -200:].clone(), torch.arange(200) < 100)
    rows = ScaledRows.of(attention, torch.ones(200), CreditConfig())
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        cosine_graph([rows], CreditConfig())
    events = profiler.profiler.kineto_results.events()
    assert 0 < max(event.nbytes() for event in events if event.name() == "[memory]") < 1500 * 1500 * 4 / 4


def test_blocks_of_a_long_response_leave_out_only_zeros():
    raw_TS = long_rows(600, 800).raw_TS
    visual_S = torch.zeros(800, dtype=torch.bool)
    causal = AttentionRows(raw_TS, visual_S)
    assert sum(block.numel() for block in causal.blocks) < 0.85 * raw_TS.numel()
    padded = [torch.nn.functional.pad(block, (0, 800 - block.shape[1])) for block in causal.blocks]
    assert torch.equal(torch.cat(padded), raw_TS)
    torch.testing.assert_close(causal.mean_row, raw_TS.mean(dim=0))
    raw_TS = raw_TS.clone()
    raw_TS[3, 799] = 0.1  # a look ahead
    assert AttentionRows(raw_TS, visual_S).blocks[0].shape[1] == 800


@settings(max_examples=25)
@given(st.integers(2, 60), st.integers(0, 1000), st.sampled_from([None, 1, 3]))
def test_a_graph_is_symmetric_sorted_and_without_loops(num_tokens, seed, max_neighbours):
    config = FLAT.replace(max_neighbours=max_neighbours)
    graph = cosine_graph([scaled(topics(num_tokens, 30, seed=seed).rows_TS)], config)
    pairs = edges(graph)
    assert all(pairs[j, i] == weight and i != j for (i, j), weight in pairs.items())
    assert list(pairs) == sorted(pairs)
    assert len(pairs) == len(graph.tail_E)
