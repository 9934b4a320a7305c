"""How often a 95 % interval holds the truth, and how often "no difference" is rejected where there is none.

Benchmarks are drawn whose true accuracy is known: problems of a group rise and fall together (beta-binomial, the
correlation within a group is `icc`). The peer in the same run is the formula that is usual for clustered errors: CR1,
mean -+ t SE with G - 1 degrees of freedom.

    python benchmarks/interval_coverage.py [--benchmarks 4000] [--shape "one group of half"]
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from scipy.special import stdtr, stdtrit

from atrl_bench.results.statistics.means import clustered_mean, clustered_score

SHAPES = {
    "150 problems, no groups": [1] * 150,
    "40 groups of 5": [5] * 40,
    "10 groups of 15": [15] * 10,
    "40 unequal groups": [1] * 8 + [2] * 8 + [3] * 6 + [4] * 4 + [5] * 3 + [6, 6, 7, 8, 9, 10, 12, 14, 17, 22, 32],
    "one group of a third": [50] + [3] * 33,
    "one group of half": [100] + [5] * 20,
}
ACCURACIES = (0.5, 0.8, 0.95)
CORRELATIONS = (0.0, 0.1, 0.3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benchmarks", type=int, default=4000, help="how many are drawn for each line")
    parser.add_argument("--shape", choices=SHAPES, action="append", help="these alone; may be given again")
    arguments = parser.parse_args()
    print(f"{'':24} true  icc   interval holds the truth   false differences at 5 %")
    print(f"{'':24}             CR1      ours            CR1      ours")
    for shape in arguments.shape or SHAPES:
        for accuracy in ACCURACIES:
            for icc in CORRELATIONS if max(SHAPES[shape]) > 1 else CORRELATIONS[:1]:
                shares = measured(SHAPES[shape], accuracy, icc, arguments.benchmarks)
                text = "    ".join(f"{share:5.3f}" for share in shares)
                print(f"{shape:24} {accuracy:4.2f}  {icc:3.1f}    {text}", flush=True)


def measured(sizes: list[int], accuracy: float, icc: float, num_benchmarks: int) -> np.ndarray:
    """Return the shares of intervals that hold the accuracy (CR1, ours) and of differences that seem real (CR1, ours).

    Differences are between two models of the same accuracy, on the same problems.
    """
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(len(sizes)), sizes)
    groups = {str(i): str(code) for i, code in enumerate(codes)}
    counts = np.zeros(4)
    for _ in range(num_benchmarks):
        one, other = (_answers(codes, len(sizes), accuracy, icc, rng) for _ in range(2))
        low, high = clustered_score(dict(zip(groups, one, strict=True)), groups).interval()
        gain = clustered_mean(dict(zip(groups, one - other, strict=True)), groups)
        counts += (
            abs(one.mean() - accuracy) <= stdtrit(len(sizes) - 1, 0.975) * _cr1(one, codes),
            low <= accuracy <= high,
            _p_value((one - other).mean(), _cr1(one - other, codes), len(sizes) - 1) < 0.05,
            gain.p_value() < 0.05,
        )
    return counts / num_benchmarks


def _answers(codes: np.ndarray, num_groups: int, accuracy: float, icc: float, rng: np.random.Generator) -> np.ndarray:
    chances = np.full(num_groups, accuracy)
    if icc:
        strength = (1 - icc) / icc
        chances = rng.beta(accuracy * strength, (1 - accuracy) * strength, num_groups)
    return (rng.random(len(codes)) < chances[codes]).astype(float)


def _cr1(scores: np.ndarray, codes: np.ndarray) -> float:
    residuals = np.bincount(codes, scores - scores.mean())
    return math.sqrt(len(residuals) / (len(residuals) - 1) * float(residuals @ residuals)) / len(scores)


def _p_value(mean: float, stderr: float, degrees: int) -> float:
    return float(2 * stdtr(degrees, -abs(mean) / stderr)) if stderr else float(mean == 0)


if __name__ == "__main__":
    main()
