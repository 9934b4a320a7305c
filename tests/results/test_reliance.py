"""How much of a score rests on the picture, by hand and by simulation."""

from __future__ import annotations

import numpy as np
import pytest

from atrl_bench.results.records import Gold, Problem, Response, Sample, Verdict
from atrl_bench.results.statistics import reliance


def answers(*repeats: str, options: int = 0, groups: str = "") -> list[Sample]:
    """A letter for each problem, a string for each repeat: what was said, a capital letter is right; . is unjudged."""
    samples = []
    for repeat, said in enumerate(repeats):
        for place, letter in enumerate(said):
            name = f"p{place}"
            gold = Gold("a", tuple("wxyz"[:options]))
            problem = Problem(name, groups[place] if groups else name, "?", gold)
            state = "judge failed" if letter == "." else "correct" if letter.isupper() else "wrong"
            verdict = Verdict(state, letter, "fast", "")
            samples.append(Sample(problem, Response(name, repeat, "h", letter, 1, 0.0, False), verdict))
    return samples


def test_reliance_is_the_accuracy_that_goes_with_the_picture():
    found = reliance(answers("AAAb"), answers("Abbb"))
    assert found.with_picture.mean == 0.75
    assert found.without.mean == 0.25
    assert found.difference.estimate.mean == 0.5
    assert found.difference.test == "exact McNemar"
    assert found.difference.p_value == 0.5  # two against none: 2 / 2^2
    assert found.changed.mean == 0.5  # the second and the third say something else
    assert found.stays_right.mean == pytest.approx(1 / 3)
    assert found.changed_anyway is None
    assert found.chance is None


def test_a_model_that_does_not_look_relies_on_nothing():
    found = reliance(answers("AbAb", options=4), answers("AbAb", options=4))
    assert found.difference.estimate.mean == 0
    assert found.changed.mean == 0
    assert found.stays_right.mean == 1
    assert found.chance == 0.25


def test_what_changes_between_two_repeats_is_no_sign_of_looking():
    found = reliance(answers("AA", "bb"), answers("bb", "AA"))
    assert found.difference.estimate.mean == 0
    assert found.changed.mean == 1
    assert found.changed_anyway.mean == 1


def test_an_answer_without_a_verdict_counts_on_neither_side():
    found = reliance(answers("AA."), answers("bbA"))
    assert found.difference.estimate.num_problems == 2
    assert found.with_picture.mean == 1


def test_versions_of_one_problem_are_one_observation():
    found = reliance(answers("AAAA", groups="xxyy"), answers("bbAA", groups="xxyy"))
    assert found.difference.estimate.num_groups == 2
    assert found.difference.test == "paired t, clustered"


@pytest.mark.parametrize("num_problems", [30, 150])
def test_the_interval_of_what_stays_right_covers_the_planted_rate(num_problems):
    """Of the problems that are right with the picture 40 % are right without it."""
    rng, covered, rounds = np.random.default_rng(0), 0, 400
    for _ in range(rounds):
        right = rng.random(num_problems) < 0.6
        stays = right & (rng.random(num_problems) < 0.4)
        found = reliance(
            answers("".join("A" if one else "b" for one in right)),
            answers("".join("A" if one else "b" for one in stays)),
        )
        low, high = found.stays_right.interval()
        covered += low <= 0.4 <= high
    assert 0.92 <= covered / rounds <= 0.98
