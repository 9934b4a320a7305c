"""What a score and a difference between two scores are worth (D11).

`means` has closed formulas for plain means, `composite` the scores that are no plain means, `bootstrap` their standard
errors, and `metrics` puts them together: a metric's name and a cell's samples in, an estimate out.
"""

from atrl_bench.results.statistics.bootstrap import bootstrap
from atrl_bench.results.statistics.composite import Maker, Statistic, mean_by, plain_mean
from atrl_bench.results.statistics.means import (
    Difference,
    Estimate,
    Number,
    SeedSpread,
    average_of,
    benjamini_hochberg,
    clustered_mean,
    clustered_score,
    mcnemar_exact,
    mean_of_parts,
    paired_difference,
    seed_spread,
)
from atrl_bench.results.statistics.metrics import (
    ScoredSamples,
    breakdown,
    difference,
    group_residuals,
    parse_metric,
    score,
    suite_difference,
    suite_score,
)
from atrl_bench.results.statistics.reliance import Reliance, reliance

__all__ = [
    "Difference",
    "Estimate",
    "Maker",
    "Number",
    "Reliance",
    "ScoredSamples",
    "SeedSpread",
    "Statistic",
    "average_of",
    "benjamini_hochberg",
    "bootstrap",
    "breakdown",
    "clustered_mean",
    "clustered_score",
    "difference",
    "group_residuals",
    "mcnemar_exact",
    "mean_by",
    "mean_of_parts",
    "paired_difference",
    "parse_metric",
    "plain_mean",
    "reliance",
    "score",
    "seed_spread",
    "suite_difference",
    "suite_score",
]
