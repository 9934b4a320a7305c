"""A cell's number under any metric, and what separates two cells, with error bars: one way for plain and composite.

Metrics are called `acc@1` (repeat 0 alone), `mean@N` (the mean over repeats 0 to N - 1) and, for the statistics that a
task defines, `<statistic>@N`: each repeat is scored on its own as if it were the only one, then the N numbers are
averaged. That order matters where a statistic is not linear: a composite solved in half of the repeats is not "half
mastered" in any of them.

Answers nobody has judged yet (not graded, or the judge failed) count neither as right nor as wrong: their problem has
no weight in that repeat, and a problem without any judged answer is left out. The estimate says how many remain. A
judge is asked about what the rules did not prove right, so its failures leave the right ones: `bounds` says between
what the number lies, and where they are further apart than its error bar it is no headline.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np

from atrl_bench.errors import UnknownNameError
from atrl_bench.results.records import Problem, Sample
from atrl_bench.results.score_array import ScoreArray
from atrl_bench.results.statistics.bootstrap import NUM_RESAMPLES, Weighted, bootstrap
from atrl_bench.results.statistics.composite import Maker, plain_mean
from atrl_bench.results.statistics.means import (
    Difference,
    Estimate,
    constant_or,
    mean_of_parts,
    paired_difference,
    score_of,
)


@dataclass(frozen=True, eq=False)
class ScoredSamples:
    """One cell's answers under one metric; `statistics` are those its task defines, by name."""

    answers: ScoreArray
    metric: str
    statistics: Mapping[str, Maker] = field(default_factory=dict)
    differences_of: int = 0  # so many answers each to the problems of two cells; 0: scores of one cell

    def __post_init__(self) -> None:
        parse_metric(self.metric, self.statistics)

    @classmethod
    def of(cls, samples: Iterable[Sample], metric: str, statistics: Mapping[str, Maker] | None = None) -> Self:
        return cls(ScoreArray.of(samples), metric, statistics or {})

    @property
    def maker(self) -> Maker | None:
        """What makes the composite statistic, None for a plain mean."""
        return self.statistics.get(parse_metric(self.metric, self.statistics)[0])

    @property
    def num_repeats(self) -> int:
        """How many repeats the metric counts."""
        return parse_metric(self.metric, self.statistics)[1]

    @cached_property
    def _counted(self) -> ScoreArray:
        """The answers that count, of the problems with a score in any of them."""
        return self.answers.repeats(self.num_repeats).only_judged

    @cached_property
    def problems(self) -> list[Problem]:
        """The problems with a score in a repeat that counts, by id: the order the samples came in is irrelevant."""
        return sorted(self._counted.problems, key=lambda problem: problem.problem_id)

    @property
    def groups(self) -> dict[str, str]:
        return {problem.problem_id: problem.group for problem in self.problems}

    @cached_property
    def scores(self) -> dict[str, float]:
        return self._counted.means()

    def only(self, problems: Sequence[Problem]) -> ScoredSamples:
        kept = {problem.problem_id for problem in problems}
        rows = [p for p, problem in enumerate(self.answers.problems) if problem.problem_id in kept]
        return replace(self, answers=self.answers.rows(np.array(rows, dtype=np.intp)))

    def filled(self, score: float) -> list[ScoredSamples]:
        """With this score for each answer that the judge failed on; the only part of a suite of one."""
        return [replace(self, answers=self.answers.with_failed(score))]

    def weighted(self) -> Weighted:
        """The composite number as a function of the weights of `problems`."""
        assert self.maker is not None
        statistic = self.maker(self.problems)
        names = [problem.problem_id for problem in self._counted.problems]
        scores_RP = self._counted.scores_PR[sorted(range(len(names)), key=names.__getitem__)].T
        # A repeat that was never run takes no part; one answer that is missing has no weight.
        judged_RP = [~np.isnan(scores_P) for scores_P in scores_RP if not np.isnan(scores_P).all()]
        known_RP = [np.nan_to_num(scores_P) for scores_P in scores_RP if not np.isnan(scores_P).all()]

        def value(weights_P: np.ndarray) -> float:
            pairs = zip(known_RP, judged_RP, strict=True)
            return float(np.mean([statistic(scores_P, weights_P * judged_P) for scores_P, judged_P in pairs]))

        return value if known_RP else lambda weights_P: float("nan")


def parse_metric(metric: str, statistics: Mapping[str, Maker] | None = None) -> tuple[str, int]:
    """The statistic a metric asks for ("mean" for acc@1 and mean@N, else a name the task defines) and its N."""
    if metric == "acc@1":
        return "mean", 1
    names = ["mean", *(statistics or {})]
    match = re.fullmatch(r"(.+)@([1-9]\d*)", metric)
    if not match or match[1] not in names:
        raise UnknownNameError("metric", metric, ["acc@1", *(f"{name}@8" for name in names)])
    return match[1], int(match[2])


def score(answers: ScoredSamples, *, num_resamples: int = NUM_RESAMPLES) -> Estimate:
    """A cell's number under its metric: by the clustered formula for a mean, else by the cluster bootstrap."""
    return suite_score([answers], num_resamples=num_resamples)


def suite_score(parts: Sequence[ScoredSamples], *, num_resamples: int = NUM_RESAMPLES) -> Estimate:
    """The unweighted mean of the parts' numbers, parts of one suite that may share content.

    MMMU-Pro asks each of its problems twice, as text and as a screenshot; VideoMMMU asks three questions about each
    video. Groups of one name in two parts are therefore one group, and errors of the parts do not average out as far as
    they are shared. (Where two parts use one name for unrelated content, this costs degrees of freedom, not validity.)
    Unrelated benchmarks are `average_of`'s. The number of a single part is that part's own.
    """
    if all(part.maker is None for part in parts):
        mean = mean_of_parts([(part.scores, part.groups) for part in parts])
        num_repeats = min(part.differences_of for part in parts)
        return replace(mean, kind="paired", num_repeats=num_repeats) if num_repeats else score_of(mean)
    return score_of(bootstrap([_part(part) for part in parts], num_resamples))


MAX_JUDGE_FAILURES = 0.01  # of all answers; beyond it a page begins with them
Bounds = tuple[float, float]


def bounds(filled: Callable[[float], Sequence[ScoredSamples]]) -> Bounds | None:
    """The number with each answer that the judge failed on wrong, and with each right; None where it failed on none.

    `filled` gives the answers with a score in place of those failures.
    """
    low, high = sorted(suite_score(filled(score), num_resamples=0).mean for score in (0.0, 1.0))
    return (low, high) if low < high else None


def judge_warning(failed: int, asked: int) -> str:
    """What is said first where a judge gave too many answers no verdict; nothing elsewhere."""
    if failed <= MAX_JUDGE_FAILURES * asked:
        return ""
    return (
        f"The judge failed on {failed:,} of {asked:,} answers ({100 * failed / asked:.1f} %). "
        "Where that could move a score by more than its error bar, it has two bounds and no number."
    )


def is_headline(estimate: Estimate, between: Bounds | None) -> bool:
    """Whether the answers without a verdict leave the number as sure as its error bar, its ±, says."""
    low, high = estimate.interval()
    return between is None or not between[1] - between[0] > (high - low) / 2


def in_place_of(estimate: Estimate, parts: Sequence[ScoredSamples]) -> Bounds | None:
    """Between what a number lies that the judge failed on too many answers for; None where it stands."""
    between = bounds(lambda score: [filled for part in parts for filled in part.filled(score)])
    return None if is_headline(estimate, between) else between


def suite_difference(
    a: Sequence[ScoredSamples], b: Sequence[ScoredSamples], *, num_resamples: int = NUM_RESAMPLES
) -> Difference:
    """The suite's number of a minus that of b, part by part over the problems both have."""
    pairs = [_common(one, other) for one, other in zip(a, b, strict=True)]
    if any(one.maker is not None for one, _ in pairs):
        estimate = constant_or(bootstrap([_paired_part(one, other) for one, other in pairs], num_resamples))
        return Difference.tested(estimate, "paired t, cluster bootstrap")
    if len(pairs) == 1:
        [(one, other)] = pairs
        return paired_difference(one.scores, other.scores, one.groups)
    gains = [({p: one.scores[p] - other.scores[p] for p in one.scores}, one.groups) for one, other in pairs]
    estimate = constant_or(mean_of_parts(gains))
    return Difference.tested(estimate, "paired t, clustered")


def group_residuals(
    parts: Sequence[ScoredSamples], stderr: float, other: Sequence[ScoredSamples] | None = None
) -> dict[str, float]:
    """What each group adds to the error of the parts' mean, or of its difference from `other`'s.

    They are the groups' sums of deviations from the mean, scaled so that their squares sum to the squared standard
    error: of a number that is no plain mean they are those of the mean behind it.
    """
    sums: dict[str, float] = defaultdict(float)
    for number, part in enumerate(parts):
        ours, theirs = part.scores, other[number].scores if other else None
        values = {p: v if theirs is None else v - theirs[p] for p, v in ours.items() if theirs is None or p in theirs}
        mean = sum(values.values()) / len(values) if values else 0.0
        groups = part.groups
        for problem, value in values.items():
            sums[groups[problem]] += (value - mean) / len(values)
    norm = math.sqrt(sum(value**2 for value in sums.values()))
    return {group: value * stderr / norm for group, value in sums.items()} if norm > 1e-12 else {}


def breakdown(answers: ScoredSamples, key: str, **options: int) -> dict[str, Estimate]:
    """The number of each part of the benchmark, by the values of `key` in the problems' `meta`, in order."""
    of_value: dict[str, list[Problem]] = {}
    for problem in answers.problems:
        value = problem.meta.get(key)
        of_value.setdefault("none" if value in (None, "") else str(value), []).append(problem)
    return {value: score(answers.only(of_value[value]), **options) for value in sorted(of_value)}


def _part(answers: ScoredSamples) -> tuple[Weighted, list[str]]:
    groups = [problem.group for problem in answers.problems]
    return answers.weighted() if answers.maker else _plain(answers), groups


def _paired_part(a: ScoredSamples, b: ScoredSamples) -> tuple[Weighted, list[str]]:
    (ours, groups), (theirs, _) = _part(a), _part(b)
    return lambda weights_P: ours(weights_P) - theirs(weights_P), groups


def _plain(answers: ScoredSamples) -> Weighted:
    scores = answers.scores
    scores_P = np.array([scores[problem.problem_id] for problem in answers.problems])
    return lambda weights_P: plain_mean(scores_P, weights_P)


def _common(a: ScoredSamples, b: ScoredSamples) -> tuple[ScoredSamples, ScoredSamples]:
    in_b = {problem.problem_id for problem in b.problems}
    common = [problem for problem in a.problems if problem.problem_id in in_b]
    return a.only(common), b.only(common)
