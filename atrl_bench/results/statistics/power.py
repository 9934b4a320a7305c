"""What a comparison of two rows can show: its power, the effect it detects, and when looking at it may stop.

A difference D between two rows that differ in their credit alone, over S training seeds and R answers to each problem,
is the effect plus errors with four variances: what another pair of trainings would change (`trainings`), other problems
(`problems`), how trainings change single problems each in its own way (`mixed`), and one answer drawn anew (`answers`):

    var(D) = trainings / S + problems + mixed / S + answers / (S R)

A page calls D clear by Student's t with the error over problems and over seeds (`over_seeds_too`), at a level that is
corrected for the number of comparisons. Here var(D) is what that error estimates, and its part over seeds,
(trainings + mixed + answers / R) / S, what it has to learn from S values: the degrees of freedom are
(S - 1) (var(D) / that)^2. With one seed nothing is clear.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

from atrl_bench.results.statistics.means import Estimate
from atrl_bench.results.statistics.student import student_quantile

LEVEL = 0.05  # how often a difference may be called clear where there is none
POWER = 0.8
MANY = 10_000  # degrees of freedom from which on Student's t is normal
LOOKS, LOOK_SEED = 100_000, 0  # sequences by which the level of a look is found


@dataclass(frozen=True)
class Spread:
    """The variances of a difference between two rows, squared shares, each for one seed and one answer a problem."""

    trainings: float
    problems: float
    mixed: float
    answers: float

    def over_problems(self, seeds: int, repeats: int) -> float:
        """The standard error of the mean over problems."""
        return math.sqrt(self.problems + (self.mixed + self.answers / repeats) / seeds)

    def over_seeds(self, repeats: int) -> float:
        """The standard deviation of the difference from seed to seed."""
        return math.sqrt(self.trainings + self.mixed + self.answers / repeats)

    def of_mean(self, seeds: int, repeats: int) -> float:
        """The standard deviation of the difference over everything that would be drawn anew."""
        return math.sqrt(self.problems + self.over_seeds(repeats) ** 2 / seeds)

    @classmethod
    def of_average(cls, columns: Sequence[Spread], trainings: float) -> Spread:
        """That of the mean of columns with different problems; `trainings` is its own, since columns share them."""
        weight = len(columns) ** -2
        return cls(
            trainings,
            weight * sum(column.problems for column in columns),
            weight * sum(column.mixed for column in columns),
            weight * sum(column.answers for column in columns),
        )


def power(effect: float, spread: Spread, seeds: int, repeats: int = 1, *, comparisons: int = 1) -> float:
    """The chance that a page calls a true effect clear, in its own direction, by the noncentral t.

    Of `comparisons` on a page this one is taken to be the only real one, which Benjamini and Hochberg's correction then
    tests at LEVEL / comparisons.
    """
    from scipy.special import nctdtr

    sd, degrees, student = _test(spread, seeds, repeats, comparisons)
    return float(1 - nctdtr(degrees, effect / sd, student)) if seeds > 1 and sd else float(seeds > 1 and effect > 0)


def detectable(spread: Spread, seeds: int, repeats: int = 1, *, comparisons: int = 1, wanted: float = POWER) -> float:
    """The smallest effect with this power; infinite with one seed."""
    from scipy.special import nctdtrinc

    sd, degrees, student = _test(spread, seeds, repeats, comparisons)
    return float(nctdtrinc(degrees, 1 - wanted, student)) * sd if seeds > 1 else math.inf


def _test(spread: Spread, seeds: int, repeats: int, comparisons: int) -> tuple[float, float, float]:
    """The standard error that a page's test has, its degrees of freedom, and what their quotient has to pass."""
    sd, of_seeds = spread.of_mean(seeds, repeats), spread.over_seeds(repeats) / math.sqrt(seeds)
    degrees = min((seeds - 1) * (sd / of_seeds) ** 4, MANY) if of_seeds else MANY
    return sd, degrees, student_quantile(degrees, 1 - LEVEL / comparisons / 2)


def false_alarms_of_one_seed(spread: Spread, repeats: int = 1) -> float:
    """How often a test over problems alone, as tables are usually read, calls two trainings of one method different."""
    from scipy.special import ndtr, ndtri

    return float(2 * ndtr(ndtri(LEVEL / 2) * spread.over_problems(1, repeats) / spread.of_mean(1, repeats)))


# Looking while seeds are added ----------------------------------------------------------------------------------------


@cache
def level_of_a_look(max_seeds: int, level: float = LEVEL) -> float:
    """The level of Student's t at each of the looks after 2, 3, ... seeds at which all of them together err this often.

    Pocock's boundary for a t test: of sequences of normal numbers of mean zero the share `level` has its smallest
    p-value, over all looks, below it. It does not depend on their variance. Found by drawing them, always the same.
    """
    from scipy.special import stdtr

    smallest = np.ones(LOOKS)
    generator = np.random.default_rng(LOOK_SEED)
    total, squares = np.zeros(LOOKS), np.zeros(LOOKS)
    for seeds in range(1, max_seeds + 1):
        drawn = generator.standard_normal(LOOKS)
        total, squares = total + drawn, squares + drawn**2
        if seeds > 1:
            spread = np.sqrt((squares - total**2 / seeds) / (seeds - 1))
            smallest = np.minimum(smallest, 2 * stdtr(seeds - 1, -np.abs(total) / (math.sqrt(seeds) * spread)))
    return float(np.quantile(smallest, level))


Verdict = Literal["different", "not so different", "out of reach", "open"]


@dataclass(frozen=True)
class Look:
    """A difference as it stands after some seeds: between what it lies at this look, and what follows from that."""

    verdict: Verdict
    mean: float
    half_width: float
    num_seeds: int


def look(
    by_seed: Sequence[float],
    problems: Estimate,
    both: Estimate,
    effect: float,
    max_seeds: int,
    *,
    comparisons: int = 1,
) -> Look:
    """Whether a comparison is decided after these seeds, or cannot be with `max_seeds`.

    `problems` is the difference with its error over problems, `both` with that over seeds too. *different*: zero is
    outside the latter's interval at the level of a look. *not so different*: it lies between -effect and effect. *out
    of reach*: with all seeds the interval would hold both 0 and an effect of that size, even if the seeds varied as
    little as one in five such samples, no error but the larger of the two were left, and the mean moved by its standard
    error. That ends a comparison without a verdict, so it adds no false alarm.
    """
    from scipy.special import chdtri

    count, mean = len(by_seed), problems.mean
    if count < 2:
        return Look("open", mean, math.inf, count)
    level = 1 - level_of_a_look(max_seeds, LEVEL / comparisons)
    half = both.half_width(level)
    if abs(mean) > half:
        return Look("different", mean, half, count)
    if abs(mean) + half < effect:
        return Look("not so different", mean, half, count)
    if count >= max_seeds:
        return Look("out of reach", mean, half, count)
    sd = float(np.std(by_seed, ddof=1))
    low_sd = sd * math.sqrt((count - 1) / float(chdtri(count - 1, 0.2)))
    of_seeds = student_quantile(max_seeds - 1, (1 + level) / 2) * low_sd / math.sqrt(max_seeds)
    at_end = max(of_seeds, student_quantile(problems.degrees, (1 + level) / 2) * problems.spread)
    move = sd * math.sqrt(1 / count - 1 / max_seeds)
    is_hopeless = count > 2 and effect - at_end <= abs(mean) - move and abs(mean) + move <= at_end
    return Look("out of reach" if is_hopeless else "open", mean, half, count)
