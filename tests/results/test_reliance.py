"""How much of a score rests on the picture, by hand and by simulation."""

import numpy as np
import pytest

from atrl_bench.results.records import Gold, Problem, Response, Sample, Verdict
from atrl_bench.results.statistics.means import Estimate
from atrl_bench.results.statistics.reliance import reliance


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


WORLDS = {"few": 0.2, "half": 0.5, "most": 0.8}  # the share of problems whose words give the answer
READS, GUESSES = 0.9, 0.1  # how often an honest reader is right with the answer before it, and without


@pytest.mark.parametrize("num_problems", [5, 150])
@pytest.mark.parametrize("num_repeats", [1, 8])
def test_the_interval_of_reliance_covers_that_of_an_honest_reader(num_problems, num_repeats):
    """It reads the picture, and the words where they give the answer; else it guesses."""
    rng, coverage, rounds = np.random.default_rng(1), [], 2000
    for share in WORLDS.values():
        truth, covered = READS - (share * READS + (1 - share) * GUESSES), 0
        for _ in range(rounds):
            left = np.where(rng.random(num_problems) < share, READS, GUESSES)
            lost = (rng.binomial(num_repeats, READS, num_problems) - rng.binomial(num_repeats, left)) / num_repeats
            low, high = paired(lost, num_repeats).interval()
            covered += low <= truth <= high
        coverage.append(covered / rounds)
    assert 0.93 <= np.mean(coverage) <= 0.975
    if num_problems == 150:
        assert all(0.93 <= one <= 0.97 for one in coverage)


def paired(lost: np.ndarray, num_repeats: int) -> Estimate:
    count = len(lost)
    stderr = lost.std(ddof=1) / np.sqrt(count)
    return Estimate(lost.mean(), stderr, count - 1, count, count, "paired", num_repeats)


def test_that_interval_is_the_one_of_the_answers():
    found = reliance(answers("AAAb", "AbAb"), answers("Abbb", "bbAb")).difference.estimate
    expected = paired(np.array([0.5, 0.5, 0.5, 0.0]), 2)
    assert found.interval() == pytest.approx(expected.interval())


def test_a_model_that_always_says_the_same_has_no_reliance_however_often_it_is_right():
    rng = np.random.default_rng(2)
    right = "".join("A" if one else "b" for one in rng.random(150) < 0.6)
    found = reliance(answers(right), answers(right))
    low, high = found.difference.estimate.interval()
    assert found.with_picture.mean > 0.5
    assert low < 0 < high
    assert high < 0.03
