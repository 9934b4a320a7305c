"""Means and their error bars, in closed form (D11).

The unit is the problem, not the sample: a score is the mean over problems of the mean over a problem's repeats.
Problems of one group (five versions of a figure, the steps of a composite, a scene) rise and fall together, so standard
errors are clustered by group, after Miller, "Adding Error Bars to Evals" (arXiv 2411.00640), equation 4:

    SE^2 = G / (G - 1) * sum_groups ( sum_{i in group} (s_i - mean) )^2 / n^2

G/(G - 1) is the usual correction for few groups (CR1); where every group has one problem the formula is the ordinary
standard error. Intervals use Student's t with G - 1 degrees of freedom, not the normal: mini benchmarks have few
groups. They take the trained model as given; what another training seed would have given is `seed_spread`'s question.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from atrl_bench.errors import UnknownNameError
from atrl_bench.results.records import Sample


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error; `stderr` and what follows from it are NaN when there is only one group."""

    mean: float
    stderr: float
    degrees: float
    num_problems: int
    num_groups: int

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the ends of the two-sided interval, mean -+ t * stderr."""
        half = self.half_width(level)
        return self.mean - half, self.mean + half

    def half_width(self, level: float = 0.95) -> float:
        """Return t * stderr, with Student's t at `degrees` degrees of freedom."""
        from scipy.special import stdtrit

        return 0.0 if self.stderr == 0 else float(stdtrit(self.degrees, (1 + level) / 2)) * self.stderr

    def detectable(self, level: float = 0.95, power: float = 0.8) -> float:
        """Return the true mean whose interval would leave zero out in a share `power` of all repetitions.

        The minimum detectable difference, (t_{(1 + level)/2} + t_power) * stderr; without a spread the half width.
        """
        from scipy.special import stdtrit

        half = self.half_width(level)
        return half if self.stderr == 0 else half + float(stdtrit(self.degrees, power)) * self.stderr

    def p_value(self) -> float:
        """Return the two-sided p-value of "the mean is zero" by Student's t."""
        from scipy.special import stdtr

        if self.stderr == 0:
            return 0.0 if self.mean else 1.0
        return float(2 * stdtr(self.degrees, -abs(self.mean) / self.stderr))


class Unanimous(Estimate):
    """A score of 0 or 1 on every problem: no spread is left, but the next group may well be another.

    If a share p of all groups differed, G groups without one would have had the chance (1 - p)^G. The half width is the
    p at which that is 1 - level: 3/G, nearly.
    """

    def half_width(self, level: float = 0.95) -> float:
        """Return 1 - (1 - level)^(1/G)."""
        return _unseen(self.num_groups, level)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the one-sided interval between the score and its half width."""
        half = self.half_width(level)
        return (0.0, half) if self.mean == 0 else (1 - half, 1.0)


class Constant(Estimate):
    """A difference that is the same in every group, and not zero: as with `Unanimous`, the next group may differ.

    Its p-value is that of the sign test over groups. A group that differs does so by 1 + |mean| at most, so the half
    width is that times the share of groups that may.
    """

    def half_width(self, level: float = 0.95) -> float:
        """Return (1 + |mean|) (1 - (1 - level)^(1/G))."""
        return (1 + abs(self.mean)) * _unseen(self.num_groups, level)

    def p_value(self) -> float:
        """Return 2 / 2^G: how often G fair coins agree."""
        return min(1.0, 2 * 0.5**self.num_groups)


def _unseen(num_groups: int, level: float) -> float:
    return float(1 - (1 - level) ** (1 / num_groups))


@dataclass(frozen=True)
class Difference:
    """A paired difference (a minus b, over the problems both have) and the test its p-value comes from."""

    estimate: Estimate
    p_value: float
    test: str


@dataclass(frozen=True)
class SeedSpread:
    """The mean over training seeds and, from two seeds on, their sample standard deviation."""

    mean: float
    sd: float | None
    num_seeds: int

    def estimate(self) -> Estimate | None:
        """Return the mean with its standard error over seeds, or None for one seed."""
        if self.sd is None:
            return None
        stderr = self.sd / math.sqrt(self.num_seeds)
        return Estimate(self.mean, stderr, self.num_seeds - 1, self.num_seeds, self.num_seeds)

    def half_width(self, level: float = 0.95) -> float | None:
        """Return the half width of the t interval of the mean over seeds, or None for one seed."""
        estimate = self.estimate()
        return None if estimate is None else estimate.half_width(level)


def problem_scores(samples: Iterable[Sample], metric: str) -> dict[str, float]:
    """Return the mean over repeats of each problem's scores: "acc@1" takes repeat 0, "mean@N" the repeats below N.

    A problem none of whose counted repeats has been judged is left out; the caller shows how many remain.
    """
    num_repeats = 1 if metric == "acc@1" else _num_repeats(metric)
    scores: dict[str, list[float]] = defaultdict(list)
    for sample in samples:
        if sample.response.repeat < num_repeats and sample.score is not None:
            scores[sample.problem.problem_id].append(sample.score)
    return {problem: sum(values) / len(values) for problem, values in scores.items()}


def clustered_mean(values: Mapping[str, float], groups: Mapping[str, str]) -> Estimate:
    """Return the mean of the values by problem with its standard error clustered by the problems' groups."""
    if not values:
        return Estimate(math.nan, math.nan, math.nan, 0, 0)
    labels = [groups[problem] for problem in values]
    codes = np.unique(labels, return_inverse=True)[1]
    scores = np.fromiter(values.values(), dtype=np.float64)
    mean, num_groups = float(scores.mean()), int(codes.max()) + 1
    if num_groups == 1:
        return Estimate(mean, math.nan, math.nan, len(scores), 1)
    residual_of_group = np.bincount(codes, weights=scores - mean)
    variance = num_groups / (num_groups - 1) * float(residual_of_group @ residual_of_group) / len(scores) ** 2
    # Exactly equal scores leave rounding noise of 1e-18 that a division would blow up.
    stderr = math.sqrt(variance) if np.ptp(scores) > 0 else 0.0
    return Estimate(mean, stderr, num_groups - 1, len(scores), num_groups)


def clustered_score(values: Mapping[str, float], groups: Mapping[str, str]) -> Estimate:
    """Return `clustered_mean` of scores between 0 and 1, with an interval too where all are 0 or all are 1."""
    return unanimous_or(clustered_mean(values, groups))


def unanimous_or(score: Estimate) -> Estimate:
    """Return the score, as `Unanimous` where it is 0 or 1 and nothing seems to vary."""
    if score.num_groups and score.mean in (0.0, 1.0) and not score.stderr > 0:
        return Unanimous(score.mean, 0.0, score.degrees, score.num_problems, score.num_groups)
    return score


def constant_or(difference: Estimate) -> Estimate:
    """Return the difference, as `Constant` where it is not zero and nothing seems to vary."""
    if difference.num_groups and difference.mean and difference.stderr == 0:
        return Constant(difference.mean, 0.0, difference.degrees, difference.num_problems, difference.num_groups)
    return difference


def mean_of_parts(parts: Sequence[tuple[Mapping[str, float], Mapping[str, str]]]) -> Estimate:
    """Return the unweighted mean of the parts' means, with a standard error that knows what the parts share.

    A part is its values and the groups of its problems; groups of one name in two parts are one group. With n_k
    problems in part k of K, the mean is sum_i s_i / (K n_k) over all problems, so that, as in `clustered_mean`,

        SE^2 = G / (G - 1) * sum_groups ( sum_{k, i in group} (s_i - mean_k) / (K n_k) )^2
    """
    if not parts or not all(values for values, _ in parts):
        return Estimate(math.nan, math.nan, math.nan, sum(len(values) for values, _ in parts), 0)
    residual_of_group: dict[str, float] = defaultdict(float)
    means = [math.fsum(values.values()) / len(values) for values, _ in parts]
    for mean, (values, groups) in zip(means, parts, strict=True):
        for problem, value in values.items():
            residual_of_group[groups[problem]] += (value - mean) / (len(parts) * len(values))
    num_groups, num_problems = len(residual_of_group), sum(len(values) for values, _ in parts)
    mean = math.fsum(means) / len(means)
    if num_groups == 1:
        return Estimate(mean, math.nan, math.nan, num_problems, 1)
    has_spread = any(len(set(values.values())) > 1 for values, _ in parts)
    variance = num_groups / (num_groups - 1) * math.fsum(r * r for r in residual_of_group.values())
    return Estimate(mean, math.sqrt(variance) if has_spread else 0.0, num_groups - 1, num_problems, num_groups)


def paired_difference(a: Mapping[str, float], b: Mapping[str, float], groups: Mapping[str, str]) -> Difference:
    """Return a minus b over the problems both have, with the p-value of no difference.

    The exact McNemar test decides where it applies (every score 0 or 1, every problem its own group), Student's t on
    the clustered standard error elsewhere.
    """
    common = [problem for problem in a if problem in b]
    estimate = constant_or(clustered_mean({problem: a[problem] - b[problem] for problem in common}, groups))
    is_binary = all(scores[problem] in (0.0, 1.0) for problem in common for scores in (a, b))
    if common and is_binary and estimate.num_groups == estimate.num_problems:
        only_a = sum(a[problem] > b[problem] for problem in common)
        only_b = sum(a[problem] < b[problem] for problem in common)
        return Difference(estimate, mcnemar_exact(only_a, only_b), "exact McNemar")
    return Difference(estimate, estimate.p_value(), "paired t, clustered")


def mcnemar_exact(only_a: int, only_b: int) -> float:
    """Return the two-sided p-value of "who of the two is right where one is wrong is a fair coin".

    min(1, 2 * sum_{k <= min(only_a, only_b)} C(n, k) / 2^n) with n = only_a + only_b.
    """
    n = only_a + only_b
    tail = sum(math.comb(n, k) for k in range(min(only_a, only_b) + 1))
    return min(1.0, 2 * tail / 2**n)


def average_of(estimates: Sequence[Estimate]) -> Estimate:
    """Return the unweighted mean of benchmarks' estimates, as if they were independent.

    SE = sqrt(sum SE_k^2) / K, degrees of freedom by Welch and Satterthwaite. The same serves for paired differences.
    """
    if not estimates:
        return Estimate(math.nan, math.nan, math.nan, 0, 0)
    variances = [estimate.stderr**2 for estimate in estimates]
    total = sum(variances)
    weight = sum(v**2 / e.degrees for v, e in zip(variances, estimates, strict=True) if v > 0)
    degrees = total**2 / weight if weight > 0 else float(sum(estimate.degrees for estimate in estimates))
    return Estimate(
        mean=sum(estimate.mean for estimate in estimates) / len(estimates),
        stderr=math.sqrt(total) / len(estimates),
        degrees=degrees,
        num_problems=sum(estimate.num_problems for estimate in estimates),
        num_groups=sum(estimate.num_groups for estimate in estimates),
    )


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted for the number of comparisons: below q means a false discovery rate of at most q."""
    if not p_values:
        return []
    from scipy.stats import false_discovery_control

    return [float(p) for p in false_discovery_control(p_values, method="bh")]


def seed_spread(means: Sequence[float]) -> SeedSpread:
    """Return the mean over training seeds and their sample standard deviation (None for one seed: not measured)."""
    sd = float(np.std(means, ddof=1)) if len(means) > 1 else None
    return SeedSpread(float(np.mean(means)), sd, len(means))


def _num_repeats(metric: str) -> int:
    match = re.fullmatch(r"mean@(\d+)", metric)
    if not match:
        raise UnknownNameError("metric", metric, ["acc@1", "mean@8"])
    return int(match.group(1))
