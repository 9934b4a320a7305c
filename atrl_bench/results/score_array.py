"""What a cell's answers are worth, as arrays: a number and a state for each problem and repeat, and no text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from atrl_bench.results.records import Problem, Sample

STATES = ("correct", "wrong", "unparseable", "timed out", "judge failed", "ungraded")
NO_ANSWER = -1  # in `states_PR`


@dataclass(frozen=True, eq=False)
class ScoreArray:
    """The answers of a cell: `scores_PR` is NaN where nobody has judged one, `states_PR` counts through `STATES`."""

    problems: tuple[Problem, ...]
    scores_PR: np.ndarray
    states_PR: np.ndarray

    @classmethod
    def of(cls, samples: Iterable[Sample]) -> Self:
        """The array of these samples, problems in the order in which they first come."""
        items = list(samples)
        problems = {sample.problem.problem_id: sample.problem for sample in reversed(items)}
        position = {name: p for p, name in enumerate(dict.fromkeys(s.problem.problem_id for s in items))}
        scores_PR, states_PR = empty(len(position), 1 + max((s.response.repeat for s in items), default=-1))
        for sample in items:
            at = position[sample.problem.problem_id], sample.response.repeat
            scores_PR[at] = np.nan if sample.score is None else sample.score
            states_PR[at] = STATES.index(sample.state)
        return cls(tuple(problems[name] for name in position), scores_PR, states_PR)

    @classmethod
    def joined(cls, arrays: Sequence[ScoreArray]) -> Self:
        """The judged answers of all arrays, those of each one as further repeats after those before it."""
        judged = [(a, problem) for a, array in enumerate(arrays) for problem in array.only_judged.problems]
        problems = {problem.problem_id: problem for _, problem in reversed(judged)}
        position = {name: p for p, name in enumerate(dict.fromkeys(problem.problem_id for _, problem in judged))}
        scores_PR, states_PR = empty(len(position), sum(array.scores_PR.shape[1] for array in arrays))
        start = 0
        for array in (one.only_judged for one in arrays):
            rows, end = [position[p.problem_id] for p in array.problems], start + array.scores_PR.shape[1]
            scores_PR[rows, start:end], states_PR[rows, start:end] = array.scores_PR, array.states_PR
            start = end
        return cls(tuple(problems[name] for name in position), scores_PR, states_PR)

    @cached_property
    def only_judged(self) -> ScoreArray:
        """The problems of which any answer was judged."""
        return self.rows(np.flatnonzero(~np.isnan(self.scores_PR).all(axis=1)))

    def rows(self, rows: Sequence[int] | np.ndarray) -> ScoreArray:
        return ScoreArray(tuple(self.problems[p] for p in rows), self.scores_PR[rows], self.states_PR[rows])

    def with_failed(self, score: float) -> ScoreArray:
        """With this score for each answer that the judge failed on."""
        failed_PR = self.states_PR == STATES.index("judge failed")
        return ScoreArray(self.problems, np.where(failed_PR, score, self.scores_PR), self.states_PR)

    def repeats(self, num_repeats: int) -> ScoreArray:
        """The first so many repeats, those that were never asked for without any answer."""
        scores_PR, states_PR = empty(len(self.problems), num_repeats)
        kept = min(num_repeats, self.scores_PR.shape[1])
        scores_PR[:, :kept], states_PR[:, :kept] = self.scores_PR[:, :kept], self.states_PR[:, :kept]
        return ScoreArray(self.problems, scores_PR, states_PR)

    def less(self, other: ScoreArray) -> ScoreArray:
        """Each problem's mean here less its mean in `other`, as one repeat, of the problems that both have."""
        ours, theirs = self.means(), other.means()
        kept = [problem for problem in self.problems if problem.problem_id in ours.keys() & theirs.keys()]
        scores_PR, states_PR = empty(len(kept), 1)
        scores_PR[:, 0] = [ours[problem.problem_id] - theirs[problem.problem_id] for problem in kept]
        return ScoreArray(tuple(kept), scores_PR, states_PR)

    def means(self) -> dict[str, float]:
        """The mean over repeats of each problem's scores; a problem without any judged answer is left out."""
        judged_PR = ~np.isnan(self.scores_PR)
        totals_P = np.zeros(len(self.problems))
        for scores_P, judged_P in zip(self.scores_PR.T, judged_PR.T, strict=True):  # in this order, to the last bit
            totals_P += np.where(judged_P, scores_P, 0.0)
        counts_P = judged_PR.sum(axis=1)
        values_P = totals_P / np.maximum(counts_P, 1)
        triples = zip(self.problems, values_P.tolist(), counts_P.tolist(), strict=True)
        return {problem.problem_id: value for problem, value, count in triples if count}

    @property
    def num_answers(self) -> int:
        return int((self.states_PR != NO_ANSWER).sum())

    @property
    def states(self) -> Counter[str]:
        counts = np.bincount(self.states_PR.ravel() - NO_ANSWER, minlength=len(STATES) + 1)[1:]
        return Counter({state: int(count) for state, count in zip(STATES, counts, strict=True) if count})


def empty(num_problems: int, num_repeats: int) -> tuple[np.ndarray, np.ndarray]:
    """The scores and the states of no answer at all."""
    shape = num_problems, num_repeats
    return np.full(shape, np.nan), np.full(shape, NO_ANSWER, dtype=np.int8)
