"""Means and their error bars, in closed form (D11).

The unit is the problem, not the sample: a score is the mean over problems of the mean over a problem's repeats.
Problems of one group (five versions of a figure, the steps of a composite, a scene) rise and fall together, so standard
errors are clustered by group, as in Miller, "Adding Error Bars to Evals" (arXiv 2411.00640), equation 4, with the
correction for few and unequal groups of Bell and McCaffrey (2002), CR2. With n_g of the n problems in group g,

    SE^2 = sum_g ( sum_{i in g} (s_i - mean) )^2 / (1 - n_g / n) / n^2

For groups of equal size the factor is the usual G / (G - 1); where every group has one problem the formula is the
ordinary standard error. Intervals use Student's t with Satterthwaite's degrees of freedom: G - 1 for equal groups, few
where one group dominates. `benchmarks/interval_coverage.py` measures how often such intervals hold the truth. They take
the trained model as given; what another training seed would have given is `over_seeds_too`'s question.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Annotated, Literal

import numpy as np
from pydantic import BeforeValidator

from atrl_bench.results.statistics.student import student_quantile

# What an estimate is, which decides its interval and test: a "mean" of anything, a mean of "scores" between 0 and 1, a
# score of 0 or of 1 in every group ("unanimous"), a difference that is the same in every group ("constant"), a
# difference of two scores of the same problems ("paired").
Kind = Literal["mean", "scores", "unanimous", "constant", "paired"]
_ROUNDING = 1e-12  # equal scores leave so much at most; a division would blow it up
# A number of a record that JSON may have no word for: NaN is written as null, and null is read as NaN.
Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error; `stderr` and what follows from it are NaN when there is only one group.

    *Scores* have Wilson's interval for a share, with as many problems as would have had this standard error if they
    were independent: all p with |mean - p| <= t sqrt(p (1 - p) / n'), n' = mean (1 - mean) / SE^2. Near 0 and 1 it
    leans inwards, where mean -+ t SE would hold the truth too seldom.

    Where nothing varies (*unanimous*, *constant*, scores without error) the next group may well differ. If a share p of
    all groups did, G groups without one would have had the chance (1 - p)^G; the interval reaches to the p at which
    that is 1 - level, nearly 3/G. A group that differs from a constant difference does so by 1 + |mean| at most.

    *Paired* differences have the interval of Agresti and Min (2005) for a difference of paired shares: half an answer
    more of each of the four outcomes (+1, -1 and twice 0), of weight 1 / (2 sqrt N) where a problem has N answers, then
    the normal interval over G groups. The root is our choice, by simulation: intervals then hold the truth about as
    often as they say with five problems and with one or eight answers each (docs/looking.md).
    """

    mean: Number
    stderr: Number
    degrees: Number
    num_problems: int
    num_groups: int
    kind: Kind = "mean"
    num_repeats: int = 1  # answers to a problem, of which a paired difference is the mean

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The ends of the two-sided interval; one-sided for "unanimous"."""
        if self.kind in ("unanimous", "scores") and self.stderr == 0:
            unseen = _unseen(self.num_groups, level)
            return self.mean * (1 - unseen), self.mean + (1 - self.mean) * unseen
        if self.kind == "scores" and 0 < self.mean < 1 and self.stderr > 0:
            variance = self.mean * (1 - self.mean)
            x = self._student(level) ** 2 / variance  # t^2 / n'
            centre, reach = (self.mean + x / 2) / (1 + x), math.sqrt(x * variance + x**2 / 4) / (1 + x)
            return max(0.0, centre - reach), min(1.0, centre + reach)
        if self.kind == "paired":
            return self._agresti_min(level)
        half = (
            (1 + abs(self.mean)) * _unseen(self.num_groups, level) if self.kind == "constant" else self._student(level)
        )
        return self.mean - half, self.mean + half

    def half_width(self, level: float = 0.95) -> float:
        """Half of the interval's length; all of it where it is one-sided."""
        low, high = self.interval(level)
        return high - low if self.kind == "unanimous" else (high - low) / 2

    def detectable(self, level: float = 0.95, power: float = 0.8) -> float:
        """The true mean whose interval would leave zero out in a share `power` of all repetitions.

        The minimum detectable difference: the non-centrality at which a t variable passes t_{(1 + level)/2} with this
        power, times the error that makes half of such figures too large, half too small: stderr / sqrt(median of
        chi^2 / degrees). With few seeds stderr itself is mostly too small: with three this adds a fifth. Intervals
        that are not t's have their own half width.
        """
        from scipy.special import chdtri, nctdtrinc

        student = student_quantile(self.degrees, (1 + level) / 2)
        passes = nctdtrinc(self.degrees, 1 - power, student) * math.sqrt(self.degrees / chdtri(self.degrees, 0.5))
        return self.half_width(level) + float(passes - student) * self.spread

    @property
    def spread(self) -> float:
        """The standard error; where nothing varies the one whose t interval would be as long as this one."""
        return self.stderr or self.half_width() / student_quantile(self.degrees, 0.975)

    def p_value(self) -> float:
        """The two-sided p-value of "the mean is zero" by Student's t; for "constant" 2 / 2^G, as of G coins."""
        if self.kind == "constant":
            return min(1.0, 2 * 0.5**self.num_groups) if abs(self.mean) > _ROUNDING else 1.0
        from scipy.special import stdtr

        if self.stderr == 0:
            return 0.0 if self.mean else 1.0
        return float(2 * stdtr(self.degrees, -abs(self.mean) / self.stderr))

    def _agresti_min(self, level: float) -> tuple[float, float]:
        from scipy.special import ndtri

        groups, weight = self.num_groups, 0.5 / math.sqrt(self.num_repeats)
        spread = 0.0 if math.isnan(self.stderr) else self.stderr
        squares = spread**2 * groups * (groups - 1) + groups * self.mean**2
        total = groups + 4 * weight
        mean = groups * self.mean / total
        variance = (squares + 2 * weight - total * mean**2) / (total - 1)
        half = float(ndtri((1 + level) / 2)) * math.sqrt(variance / total)
        return max(-1.0, mean - half), min(1.0, mean + half)

    def _student(self, level: float) -> float:
        return 0.0 if self.stderr == 0 else student_quantile(self.degrees, (1 + level) / 2) * self.stderr


def _unseen(num_groups: int, level: float) -> float:
    return float(1 - (1 - level) ** (1 / num_groups))


@dataclass(frozen=True)
class Difference:
    """A paired difference (a minus b, over the problems both have), its test, and what could have been detected."""

    estimate: Estimate
    p_value: Number
    test: str
    detectable: Number

    @classmethod
    def tested(cls, estimate: Estimate, test: str, p_value: float | None = None) -> Difference:
        """`p_value`: the test's own; by default Student's t of the estimate."""
        return cls(estimate, estimate.p_value() if p_value is None else p_value, test, estimate.detectable())


@dataclass(frozen=True)
class SeedSpread:
    """The mean over training seeds and, from two seeds on, their sample standard deviation."""

    mean: Number
    sd: float | None
    num_seeds: int

    def estimate(self) -> Estimate | None:
        """The mean with its standard error over seeds, or None for one seed."""
        if self.sd is None:
            return None
        stderr = self.sd / math.sqrt(self.num_seeds)
        return Estimate(self.mean, stderr, self.num_seeds - 1, self.num_seeds, self.num_seeds)

    def half_width(self, level: float = 0.95) -> float | None:
        """The half width of the t interval of the mean over seeds, or None for one seed."""
        estimate = self.estimate()
        return None if estimate is None else estimate.half_width(level)


def clustered_mean(values: Mapping[str, float], groups: Mapping[str, str]) -> Estimate:
    """The mean of the values by problem with its standard error clustered by the problems' groups."""
    return mean_of_parts([(values, groups)])


def clustered_score(values: Mapping[str, float], groups: Mapping[str, str]) -> Estimate:
    """`clustered_mean` of scores between 0 and 1, with an interval between them too."""
    return score_of(clustered_mean(values, groups))


def score_of(mean: Estimate) -> Estimate:
    """The mean of scores between 0 and 1 as one of "scores", or "unanimous" where nothing seems to vary."""
    if mean.num_groups and mean.mean in (0.0, 1.0) and not mean.stderr > 0:
        return replace(mean, stderr=0.0, kind="unanimous")
    return replace(mean, kind="scores")


def constant_or(difference: Estimate) -> Estimate:
    """The difference, as "constant" where nothing seems to vary."""
    return replace(difference, kind="constant") if difference.num_groups and difference.stderr == 0 else difference


def mean_of_parts(parts: Sequence[tuple[Mapping[str, float], Mapping[str, str]]]) -> Estimate:
    """The unweighted mean of the parts' means, with a standard error that knows what the parts share.

    A part is its values and the groups of its problems; groups of one name in two parts are one group. With n_k
    problems in part k of K, of which n_kg are in group g,

        SE^2 = sum_g ( sum_k a_kg sum_{i in g of k} (s_i - mean_k) )^2,    a_kg = 1 / (K n_k sqrt(1 - n_kg / n_k))

    A part of a single group says nothing about its own error; the standard error is then NaN.
    """
    num_problems = sum(len(values) for values, _ in parts)
    if not parts or not all(values for values, _ in parts):
        return Estimate(math.nan, math.nan, math.nan, num_problems, 0)
    means = [math.fsum(values.values()) / len(values) for values, _ in parts]
    mean = math.fsum(means) / len(means)
    codes, num_groups = codes_of_groups([[groups[problem] for problem in values] for values, groups in parts])
    sizes_KG = np.array([np.bincount(of_part, minlength=num_groups) for of_part in codes])
    num_K1 = sizes_KG.sum(1, keepdims=True)
    if (sizes_KG == num_K1).any():
        return Estimate(mean, math.nan, math.nan, num_problems, num_groups)
    weights_KG = 1 / (len(parts) * num_K1 * np.sqrt(1 - sizes_KG / num_K1))
    residual_G = np.zeros(num_groups)
    for part_mean, (values, _), of_part, weights_G in zip(means, parts, codes, weights_KG, strict=True):
        residuals = np.fromiter(values.values(), dtype=np.float64) - part_mean
        residual_G += weights_G * np.bincount(of_part, residuals, minlength=num_groups)
    stderr = math.sqrt(float(residual_G @ residual_G))
    stderr = stderr if stderr > _ROUNDING else 0.0
    return Estimate(mean, stderr, satterthwaite(weights_KG, sizes_KG)[1], num_problems, num_groups)


def codes_of_groups(labels_of_parts: Sequence[Sequence[str]]) -> tuple[list[np.ndarray], int]:
    """The number of each problem's group, part by part, and how many groups there are."""
    code_of = {label: code for code, label in enumerate(dict.fromkeys(chain.from_iterable(labels_of_parts)))}
    return [np.array([code_of[label] for label in labels], dtype=np.intp) for labels in labels_of_parts], len(code_of)


def satterthwaite(weights_KG: np.ndarray, sizes_KG: np.ndarray) -> tuple[float, float]:
    """Mean and degrees of freedom of sum_g (sum_k a_kg r_kg)^2 were all problems independent of variance one.

    The covariance of the groups' weighted residuals is M = sum_k diag(a_k^2 n_k) - v_k v_k' / n_k with v_k = a_k n_k;
    the two are tr(M) and tr(M)^2 / tr(M M). M is never written out, for a benchmark may have thousands of groups.
    """
    num_K = sizes_KG.sum(1)
    products_KG = weights_KG * sizes_KG
    diagonal_G = (weights_KG * products_KG).sum(0)
    trace = diagonal_G.sum() - ((products_KG**2).sum(1) / num_K).sum()
    gram_KK = products_KG @ products_KG.T
    of_diagonal = ((diagonal_G * products_KG**2).sum(1) / num_K).sum()
    squares = diagonal_G @ diagonal_G - 2 * of_diagonal + (gram_KK**2 / np.outer(num_K, num_K)).sum()
    return float(trace), float(trace**2 / squares)


def paired_difference(a: Mapping[str, float], b: Mapping[str, float], groups: Mapping[str, str]) -> Difference:
    """A minus b over the problems both have, with the p-value of no difference.

    The exact McNemar test decides where it applies (every score 0 or 1, every problem its own group), Student's t on
    the clustered standard error elsewhere.
    """
    common = [problem for problem in a if problem in b]
    estimate = constant_or(clustered_mean({problem: a[problem] - b[problem] for problem in common}, groups))
    is_binary = all(scores[problem] in (0.0, 1.0) for problem in common for scores in (a, b))
    if common and is_binary and estimate.num_groups == estimate.num_problems:
        only_a = sum(a[problem] > b[problem] for problem in common)
        only_b = sum(a[problem] < b[problem] for problem in common)
        return Difference.tested(estimate, "exact McNemar", mcnemar_exact(only_a, only_b))
    return Difference.tested(estimate, "paired t, clustered")


def mcnemar_exact(only_a: int, only_b: int) -> float:
    """The two-sided p-value of "who of the two is right where one is wrong is a fair coin".

    min(1, 2 * sum_{k <= min(only_a, only_b)} C(n, k) / 2^n) with n = only_a + only_b.
    """
    n = only_a + only_b
    tail = sum(math.comb(n, k) for k in range(min(only_a, only_b) + 1))
    return min(1.0, 2 * tail / 2**n)


def average_of(estimates: Sequence[Estimate], residuals: Sequence[Mapping[str, float]] = ()) -> Estimate:
    """The unweighted mean of benchmarks' estimates, independent but for the groups that two of them share.

    SE^2 = (sum_k SE_k^2 + 2 sum_{k<l} sum_g r_kg r_lg) / K^2 with r_kg what group g adds to the error of benchmark k
    (`residuals`: their squares sum to SE_k^2); degrees of freedom by Welch and Satterthwaite. A benchmark on which
    nothing varies is no certain one: it counts with its `spread`. The same serves for paired differences.
    """
    if not estimates:
        return Estimate(math.nan, math.nan, math.nan, 0, 0)
    variances = [estimate.spread**2 for estimate in estimates]
    total = sum(variances)
    weight = sum(v**2 / e.degrees for v, e in zip(variances, estimates, strict=True) if v > 0)
    degrees = total**2 / weight if weight > 0 else float(sum(estimate.degrees for estimate in estimates))
    for one, other in combinations(residuals, 2):
        total += 2 * sum(one[group] * other[group] for group in one.keys() & other.keys())
    total = total if math.isnan(total) else max(total, 0.0)
    return Estimate(
        mean=sum(estimate.mean for estimate in estimates) / len(estimates),
        stderr=math.sqrt(total) / len(estimates),
        degrees=degrees,
        num_problems=sum(estimate.num_problems for estimate in estimates),
        num_groups=sum(estimate.num_groups for estimate in estimates),
    )


def over_seeds_too(problems: Estimate, by_seed: Sequence[float], of_one_seed: Sequence[Estimate]) -> Estimate:
    """The mean over problems and S training seeds, with the error of other problems and of other trainings.

    SE_p is its standard error over problems, SE_s that over seeds, by the standard deviation of `by_seed`. Both hold
    what a training changes of single problems, answers drawn anew among it. That is told by the errors over problems of
    each seed alone, whose mean square is SE_1^2, and counts once:

        SE^2 = SE_p^2 + SE_s^2 - SE_ps^2,    SE_ps^2 = (SE_1^2 - SE_p^2) / (S - 1)

    SE^2 is at least the larger of SE_p^2 and SE_s^2, for a difference of variances may be anything. Its degrees of
    freedom are Satterthwaite's with SE^2 (SE_s^2 + max(0, SE_p^2 - SE_ps^2)) for SE^4, between those of SE_s and SE_p:
    two or three seeds that are alike by chance do not count as certain. The product is our choice, by simulation: of
    differences where there is none it calls up to 6.5 in 100 clear at 5 %, whatever varies (docs/statistics.md).
    """
    if problems.kind == "unanimous":
        return problems
    count, of_problems = len(by_seed), problems.spread**2
    of_seeds = float(np.var(by_seed, ddof=1)) / count
    of_both = max(0.0, (math.fsum(one.spread**2 for one in of_one_seed) / count - of_problems) / (count - 1))
    total = max(of_problems + of_seeds - of_both, of_problems, of_seeds)
    weight = of_problems**2 / problems.degrees + (of_seeds**2 + of_both**2 / problems.degrees) / (count - 1)
    few, many = sorted((count - 1.0, problems.degrees))
    degrees = total * (of_seeds + max(0.0, of_problems - of_both)) / weight if weight else many
    kind: Kind = "scores" if problems.kind == "scores" else "mean"
    return replace(problems, stderr=math.sqrt(total), degrees=min(max(degrees, few), many), kind=kind)


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """The p-values adjusted for the number of comparisons: below q means a false discovery rate of at most q.

    They are those of `scipy.stats.false_discovery_control`, to load which takes longer than a whole report.
    """
    values = np.asarray(p_values, dtype=float)
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError("A p-value is between 0 and 1.")
    order = np.argsort(values)
    scaled = values[order] * (len(values) / np.arange(1, len(values) + 1))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum.accumulate(scaled[::-1])[::-1].clip(0, 1)
    return [float(q) for q in adjusted]


def seed_spread(means: Sequence[float]) -> SeedSpread:
    """The mean over training seeds and their sample standard deviation (None for one seed: not measured)."""
    sd = float(np.std(means, ddof=1)) if len(means) > 1 else None
    return SeedSpread(float(np.mean(means)), sd, len(means))
