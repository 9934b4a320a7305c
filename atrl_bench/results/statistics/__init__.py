"""What a score and a difference between two scores are worth (D11).

`means` has closed formulas for plain means, `composite` the scores that are no plain means, `bootstrap` their standard
errors, and `metrics` puts them together: a metric's name and a cell's samples in, an estimate out.

Here are the names that a task's module takes.
"""

from atrl_bench.results.statistics.composite import Maker, Statistic, mean_by, plain_mean

__all__ = ["Maker", "Statistic", "mean_by", "plain_mean"]
