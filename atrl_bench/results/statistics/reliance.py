"""How much a model's answers rest on the picture: the same problems with it and with it withheld.

    reliance = accuracy with the picture - accuracy without it

paired by problem and clustered as every difference here. Beside it stand the share of answers that change, which is
read against the share that changes between two answers to the same prompt; the share of right answers that stay right
without the picture (what the words alone give away, or luck); and the accuracy of guessing among the options.

    stays right = sum_p x_p / sum_p y_p,   y_p: share of problem p's answers that are right with the picture,
                                           x_p: share that is right with it and, repeat by repeat, without it

with a standard error by linearisation: that of the clustered mean of (x_p - ratio y_p) / mean(y).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from atrl_bench.results.records import Problem, Sample
from atrl_bench.results.statistics.means import Difference, Estimate, clustered_mean, clustered_score, paired_difference

Answer = tuple[str, int]  # problem id, repeat


@dataclass(frozen=True)
class Reliance:
    """What is left of a score without the picture, over the problems that were answered both ways."""

    with_picture: Estimate
    without: Estimate
    difference: Difference  # the reliance
    changed: Estimate  # of the answers, between with and without
    changed_anyway: Estimate | None  # between two repeats with the picture; None for a single one
    stays_right: Estimate | None  # of the right ones; None where none is right
    chance: float | None  # of guessing among the options, an open question counting 0; None where none has options


def reliance(real: Sequence[Sample], withheld: Sequence[Sample]) -> Reliance:
    """The reliance of one model on one task, from its answers with the picture and without."""
    ours, theirs = _by_answer(real), _by_answer(withheld)
    both = [answer for answer in ours if answer in theirs]
    problems = {problem_id: ours[problem_id, repeat].problem for problem_id, repeat in both}
    groups = {name: problem.group for name, problem in problems.items()}
    with_picture = _means(both, {answer: ours[answer].score or 0.0 for answer in both})
    without = _means(both, {answer: theirs[answer].score or 0.0 for answer in both})
    found = paired_difference(with_picture, without, groups)
    changed = {answer: float(_said(ours[answer]) != _said(theirs[answer])) for answer in both}
    stays = {answer: (ours[answer].score or 0.0) * (theirs[answer].score or 0.0) for answer in both}
    return Reliance(
        clustered_score(with_picture, groups),
        clustered_score(without, groups),
        replace(found, estimate=replace(found.estimate, kind="paired", num_repeats=round(len(both) / len(problems)))),
        clustered_score(_means(both, changed), groups),
        _changed_anyway(ours, groups),
        _ratio(_means(both, stays), with_picture, groups),
        chance(list(problems.values())),
    )


def chance(problems: Sequence[Problem]) -> float | None:
    """The accuracy of guessing: one over the number of options, 0 for an open question."""
    options = [len(problem.gold.choices) for problem in problems]
    return sum(1 / count for count in options if count) / len(options) if any(options) else None


def _by_answer(samples: Sequence[Sample]) -> dict[Answer, Sample]:
    """The judged answers; one without a verdict says nothing either way."""
    return {(s.problem.problem_id, s.response.repeat): s for s in samples if s.score is not None}


def _said(sample: Sample) -> str | None:
    return None if sample.verdict is None else sample.verdict.extracted


def _means(answers: Sequence[Answer], values: Mapping[Answer, float]) -> dict[str, float]:
    of_problem: dict[str, list[float]] = {}
    for problem_id, repeat in answers:
        of_problem.setdefault(problem_id, []).append(values[problem_id, repeat])
    return {problem_id: math.fsum(of) / len(of) for problem_id, of in of_problem.items()}


def _changed_anyway(samples: Mapping[Answer, Sample], groups: Mapping[str, str]) -> Estimate | None:
    repeats: dict[str, list[str | None]] = {}
    for (problem_id, _), sample in sorted(samples.items()):
        repeats.setdefault(problem_id, []).append(_said(sample))
    values = {
        name: sum(one != other for one, other in pairwise(said)) / (len(said) - 1)
        for name, said in repeats.items()
        if len(said) > 1 and name in groups
    }
    return clustered_score(values, groups) if values else None


def _ratio(parts: Mapping[str, float], wholes: Mapping[str, float], groups: Mapping[str, str]) -> Estimate | None:
    total = math.fsum(wholes.values())
    if not total:
        return None
    ratio, mean = math.fsum(parts.values()) / total, total / len(wholes)
    error = clustered_mean({name: (parts[name] - ratio * wholes[name]) / mean for name in wholes}, groups)
    return replace(error, mean=ratio)
