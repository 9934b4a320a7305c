"""Making clusters robust: centroid denoising, then neighbourhood propagation (section 4.2, appendix).

Shapes: T tokens of a batch of responses, E stored edges, P promoted pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from atrl_bench.credit.config import CreditConfig
from atrl_bench.credit.token_batch import TokenBatch

if TYPE_CHECKING:
    from atrl_bench.credit.graph import TokenGraph


def start_importance(
    batch: TokenBatch, connectivity_T: NDArray[np.float64], config: CreditConfig
) -> NDArray[np.float64]:
    """Returns the start of phi, which the paper uses but does not define: connectivity over its maximum, or its rank.

    Raw connectivity cannot be meant: with the paper's 15 % threshold at 0.0368 no neighbour could ever reach the
    promotion score of 0.65. Maximum and rank are those within the response.
    """
    if config.importance_start == "rank":
        return (batch.rank(connectivity_T) + 1) / batch.of_tokens(batch.lengths)
    return connectivity_T / batch.of_tokens(np.maximum.reduceat(connectivity_T, batch.bounds[:-1]))


def denoise(
    importance_T: NDArray[np.float64], similarity_T: NDArray[np.float64], config: CreditConfig
) -> NDArray[np.float64]:
    """Returns phi with outliers attenuated: phi_t becomes alpha phi_t where cos(A_t, c_k) < tau_cen.

    The centroid c_k is the mean over the calibrated rows of cluster k (`ScaledRows.centroid_cosines`), not over rows of
    length one, and includes the token itself, as written.
    """
    return np.where(similarity_T < config.min_centroid_similarity, config.outlier_scale, 1.0) * importance_T


def promotions(
    graph: TokenGraph, importance_T: NDArray[np.float64], config: CreditConfig
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Returns the promoted pairs as (hub, neighbour, cosine).

    Hubs are the top q tokens of a response by phi. Each may promote its R most similar graph neighbours t' that satisfy
    lambda_sim cos(A_t', A_t) + lambda_imp phi_t' > tau_nb, with the phi from before any promotion.
    Section 4.2 speaks of "high out-degree" instead, in an undirected graph: `hub_rank="degree"`.
    """
    rank_by_T = graph.degree() if config.hub_rank == "degree" else importance_T
    num_hubs_B = np.ceil(config.hub_fraction * graph.batch.lengths)
    is_hub_T = graph.batch.rank(-rank_by_T) < graph.batch.of_tokens(num_hubs_B)

    near = graph.nearest(is_hub_T, config.num_neighbours)
    hub_P, neighbour_P, cosine_P = graph.tail_E[near], graph.head_E[near], graph.weight_E[near]
    score_P = config.similarity_weight * cosine_P + config.importance_weight * importance_T[neighbour_P]
    promoted = score_P > config.min_neighbour_score
    return hub_P[promoted], neighbour_P[promoted], cosine_P[promoted]


def propagate(
    graph: TokenGraph, importance_T: NDArray[np.float64], cluster_T: NDArray[np.int64], config: CreditConfig
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_]]:
    """Returns phi and clusters after every hub has promoted its neighbours once, and which tokens that changed.

    The paper does not say what a promotion does. `importance`: phi_t' becomes max(phi_t', cos phi_hub).
    `cluster`: t' joins the cluster of its strongest hub.
    """
    hub_P, promoted_P, cosine_P = promotions(graph, importance_T, config)
    offer_P = cosine_P * importance_T[hub_P]
    if config.promotion == "cluster":
        moved_T = cluster_T.copy()
        # Written in ascending order of the offer, so the strongest hub comes last and stays.
        order = np.argsort(offer_P, kind="stable")
        moved_T[promoted_P[order]] = cluster_T[hub_P[order]]
        return importance_T, moved_T, moved_T != cluster_T
    raised_T = importance_T.copy()
    np.maximum.at(raised_T, promoted_P, offer_P)
    return raised_T, cluster_T, raised_T > importance_T
