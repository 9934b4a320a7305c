"""What a score and a difference between two scores are worth (D11)."""

from atrl_bench.results.statistics.composite import Maker, Statistic, mean_by, plain_mean
from atrl_bench.results.statistics.means import (
    Difference,
    Estimate,
    SeedSpread,
    average_of,
    benjamini_hochberg,
    clustered_mean,
    mcnemar_exact,
    paired_difference,
    problem_scores,
    seed_spread,
)

__all__ = [
    "Difference",
    "Estimate",
    "Maker",
    "SeedSpread",
    "Statistic",
    "average_of",
    "benjamini_hochberg",
    "clustered_mean",
    "mcnemar_exact",
    "mean_by",
    "paired_difference",
    "plain_mean",
    "problem_scores",
    "seed_spread",
]
