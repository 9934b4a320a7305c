import numpy as np
import pytest

from atrl_bench.credit import CreditConfig
from atrl_bench.credit.graph import TokenGraph
from atrl_bench.credit.refinement import denoise, promotions, propagate, start_importance
from atrl_bench.credit.token_batch import TokenBatch


def graph_of(num_tokens, weights):
    """A graph from {(i, j): weight}, i < j."""
    pairs = sorted([(i, j, w) for (i, j), w in weights.items()] + [(j, i, w) for (i, j), w in weights.items()])
    tail, head, weight = zip(*pairs, strict=True)
    return TokenGraph(TokenBatch([num_tokens]), np.array(tail), np.array(head), np.array(weight, dtype=np.float32))


def test_importance_starts_at_connectivity_over_its_maximum_or_its_rank():
    assert start_importance(TokenBatch([3]), np.array([0.1, 0.4, 0.2]), CreditConfig()).tolist() == [0.25, 1.0, 0.5]
    ranks = start_importance(TokenBatch([3]), np.array([0.1, 0.4, 0.2]), CreditConfig(importance_start="rank"))
    assert ranks == pytest.approx([1 / 3, 1.0, 2 / 3])


def test_outliers_are_attenuated_and_a_token_on_the_threshold_is_none():
    phi = denoise(np.array([1.0, 0.5, 0.5]), np.array([0.9, 0.75, 0.74]), CreditConfig())
    assert phi.tolist() == [1.0, 0.5, 0.3]


def test_a_hub_promotes_the_neighbour_that_scores_above_the_threshold():
    # One hub, token 0 (q = 0.15 of 4 tokens, rounded up). Scores 0.5 cos + 0.5 phi: 0.5 * 0.9 + 0.5 * 0.45 = 0.675 for
    # token 1; 0.5 * 0.9 + 0.5 * 0.4 = 0.65 for token 2, not strictly above 0.65; token 3 is no neighbour of 0.
    phi = np.array([1.0, 0.45, 0.4, 0.9])
    graph = graph_of(4, {(0, 1): 0.9, (0, 2): 0.9, (2, 3): 0.95})
    raised, clusters, is_promoted = propagate(graph, phi, np.array([0, 1, 1, 1]), CreditConfig())
    assert raised == pytest.approx([1.0, 0.9, 0.4, 0.9])
    assert clusters.tolist() == [0, 1, 1, 1]
    assert is_promoted.sum() == 1


def test_a_promotion_never_lowers_importance():
    phi = np.array([1.0, 0.95])
    raised, _, is_promoted = propagate(graph_of(2, {(0, 1): 0.9}), phi, np.array([0, 0]), CreditConfig())
    assert raised.tolist() == [1.0, 0.95]
    assert not is_promoted.any()


def test_only_the_most_similar_neighbours_are_asked():
    phi = np.array([1.0, 0.8, 0.8, 0.8])
    graph = graph_of(4, {(0, 1): 0.80, (0, 2): 0.95, (0, 3): 0.90})
    hubs, promoted, _ = promotions(graph, phi, CreditConfig(num_neighbours=2))
    assert hubs.tolist() == [0, 0]
    assert promoted.tolist() == [2, 3]


def test_hubs_can_be_ranked_by_degree():
    phi = np.array([1.0, 0.7, 0.7])
    graph = graph_of(3, {(0, 1): 0.9, (1, 2): 0.9})
    hubs, promoted, _ = promotions(graph, phi, CreditConfig(hub_rank="degree"))
    assert hubs.tolist() == [1, 1]
    assert promoted.tolist() == [0, 2]


def test_a_promoted_token_can_join_the_cluster_of_its_strongest_hub_instead():
    config = CreditConfig(promotion="cluster", hub_fraction=0.5)
    phi = np.array([0.9, 1.0, 0.6, 0.1])
    graph = graph_of(4, {(0, 2): 0.8, (1, 2): 0.8})
    # Offers to token 2: 0.72 by hub 0 and 0.8 by hub 1.
    same, clusters, is_promoted = propagate(graph, phi, np.array([0, 1, 2, 2]), config)
    assert same.tolist() == phi.tolist()
    assert clusters.tolist() == [0, 1, 1, 2]
    assert is_promoted.sum() == 1
