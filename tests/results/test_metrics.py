"""Metrics of all kinds with their error bars: hand-made cases, properties, and simulations of the intervals."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atrl_bench.errors import UnknownNameError
from atrl_bench.results.records import Gold, Problem, Response, Sample, Verdict
from atrl_bench.results.statistics.bootstrap import bootstrap
from atrl_bench.results.statistics.composite import mean_by, plain_mean
from atrl_bench.results.statistics.means import (
    Difference,
    clustered_score,
    paired_difference,
)
from atrl_bench.results.statistics.metrics import (
    ScoredSamples,
    breakdown,
    score,
    suite_difference,
    suite_score,
)


def whole_points(problems):
    """Return the share of problems with a full point: not linear in the score, like mastery of a composite."""
    return lambda scores_P, weights_P: plain_mean((scores_P == 1.0).astype(float), weights_P)


STATISTICS = {"categories": mean_by(lambda problem: problem.meta.get("category")), "whole": whole_points}


def sample(problem: str, repeat: int, points: float | None, *, group: str = "", category: str = "x") -> Sample:
    state = "judge failed" if points is None else "correct" if points == 1 else "wrong"
    grade = Verdict(state, "1", "fast", "", score=points)
    asked = Problem(problem, group or problem, "?", Gold("1"), meta={"category": category})
    return Sample(asked, Response(problem, repeat, "h", "", 1, 0.1, False), grade)


def answers(
    points: list[float | None], metric: str, categories: str = "", groups: str = "", first: int = 0
) -> ScoredSamples:
    """Return one repeat of problems p<first>, p<first + 1>, ... with a letter of category and group each."""
    samples = [
        sample(
            f"p{first + i:03d}",
            0,
            value,
            group=groups[i] if groups else "",
            category=categories[i] if categories else "x",
        )
        for i, value in enumerate(points)
    ]
    return ScoredSamples.of(samples, metric, STATISTICS)


def difference(a: ScoredSamples, b: ScoredSamples, **options: int) -> Difference:
    return suite_difference([a], [b], **options)


# What a metric means ----------------------------------------------------------------------------------------------


def test_the_plain_mean_is_the_clustered_formula():
    found = score(answers([1, 0, 1, 1], "acc@1"))
    assert found == clustered_score(
        {"p000": 1.0, "p001": 0.0, "p002": 1.0, "p003": 1.0}, {f"p00{i}": str(i) for i in range(4)}
    )
    assert (found.mean, found.stderr) == pytest.approx((0.75, 0.25))


def test_each_repeat_is_scored_on_its_own_before_repeats_are_averaged():
    # Repeat 0: a full, b not: 1/2. Repeat 1: b full, a half: 1/2. Averaged: 1/2; no problem has a mean of 1.
    samples = [sample("a", 0, 1.0), sample("b", 0, 0.0), sample("a", 1, 0.5), sample("b", 1, 1.0)]
    assert score(ScoredSamples.of(samples, "whole@2", STATISTICS)).mean == 0.5
    assert score(ScoredSamples.of(samples, "whole@1", STATISTICS)).mean == 0.5
    assert score(ScoredSamples.of(samples, "mean@2", STATISTICS)).mean == pytest.approx((1.0 + 0.5 + 0.0 + 1.0) / 4)


def test_an_unjudged_answer_has_no_weight_in_its_repeat_and_an_unjudged_problem_none_at_all():
    samples = [
        sample("a", 0, 1.0),
        sample("b", 0, None),
        sample("a", 1, 1.0),
        sample("b", 1, 0.0),
        sample("c", 0, None),
    ]
    found = score(ScoredSamples.of(samples, "whole@2", STATISTICS))
    # Repeat 0: 1 of 1; repeat 1: 1 of 2.
    assert (found.mean, found.num_problems) == (0.75, 2)


def test_a_repeat_that_was_never_run_takes_no_part():
    samples = [sample("a", 0, 1.0), sample("b", 0, 0.0)]
    assert score(ScoredSamples.of(samples, "whole@8", STATISTICS)).mean == 0.5


def test_a_cell_without_any_judged_answer_has_no_number():
    found = score(answers([None, None], "categories@1"))
    assert math.isnan(found.mean)
    assert found.num_problems == 0


@pytest.mark.parametrize("metric", ["acc@8", "mean@0", "mean", "colour@8", "categories"])
def test_an_unknown_metric_names_those_the_task_has(metric):
    with pytest.raises(UnknownNameError) as error:
        ScoredSamples.of([], metric, STATISTICS)
    assert error.value.known == ["acc@1", "categories@8", "mean@8", "whole@8"]


# The bootstrap ----------------------------------------------------------------------------------------------------


def test_parts_of_one_group_each_say_nothing_about_their_error():
    found = bootstrap([(lambda weights_P: 1.0, ["a", "a"]), (lambda weights_P: 0.0, ["b"])])
    assert (found.mean, found.num_problems, found.num_groups) == (0.5, 3, 2)
    assert math.isnan(found.stderr)


def test_the_bootstrap_of_two_groups_is_exact():
    # Groups score 1 and 0. Of the four equally likely draws one gives 1, two 1/2, one 0: variance 1/8, and with
    # G/(G - 1) = 2 it is 1/4: SE 1/2. The clustered formula: 2/1 * (1/4 + 1/4) / 4 = 1/4, the same.
    found = score(answers([1, 0], "categories@1"), num_resamples=20_000)
    assert found.mean == 0.5
    assert found.stderr == pytest.approx(0.5, rel=0.02)
    assert (found.degrees, found.num_problems, found.num_groups) == (1, 2, 2)


def test_of_groups_that_all_score_the_same_the_next_may_still_differ():
    found = score(answers([1, 0] * 10, "categories@1", groups="".join(f"{c}{c}" for c in "abcdefghij")))
    assert (found.mean, found.stderr) == (0.5, 0.0)
    # 1 - 0.05^(1/10) = 0.2589 of all groups may score 0, or 1.
    assert found.interval() == pytest.approx((0.5 * 0.7411, 0.5 + 0.5 * 0.2589), abs=1e-4)


def test_the_bootstrap_of_a_plain_mean_agrees_with_the_clustered_formula():
    random = np.random.default_rng(1)
    difficulty = np.repeat(random.uniform(0, 1, 60), 3)
    points = (random.uniform(0, 1, 180) < difficulty).astype(float).tolist()
    groups = "".join(chr(0x4E00 + i // 3) for i in range(180))
    formula = score(answers(points, "mean@1", groups=groups))
    resampled = score(answers(points, "categories@1", groups=groups))  # one category: the plain mean
    assert resampled.mean == pytest.approx(formula.mean)
    # Two thousand draws know a standard deviation to 1 / sqrt(2 * 2000) = 1.6 %; unequal weights add a little.
    assert resampled.stderr == pytest.approx(formula.stderr, rel=0.06)


points_lists = st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=4, max_size=10)


@settings(max_examples=30)
@given(points_lists, st.randoms(use_true_random=False))
def test_neither_the_order_of_problems_nor_the_names_of_groups_change_an_estimate(points, random):
    categories, groups = "abab" * 3, "uuvvwwxxyyzz"
    one = answers(points, "categories@1", categories, groups)
    shuffled = one.answers.rows(random.sample(range(len(points)), len(points)))
    renamed = answers(points, "categories@1", categories, groups.translate(str.maketrans("uvwxyz", "zyxwvu")))
    found = score(one, num_resamples=100)
    assert score(ScoredSamples(shuffled, one.metric, STATISTICS), num_resamples=100) == found
    assert score(renamed, num_resamples=100) == found


# Differences ------------------------------------------------------------------------------------------------------


def test_a_plain_difference_is_the_paired_one():
    a, b = answers([1, 1, 0, 1], "mean@1"), answers([0, 1, 0, 0], "mean@1")
    assert difference(a, b) == paired_difference(a.scores, b.scores, a.groups)


def test_a_composite_difference_is_taken_over_the_problems_both_have():
    a = answers([1, 1, 0, 1], "categories@1", "xxyy")
    b = answers([0, 0, 1, 0], "categories@1", "xyyx", first=1)  # p001 to p004, of which p001 to p003 are common
    found = difference(a, b)
    # a: x p001 1; y p002 0, p003 1: (1 + 1/2) / 2 = 3/4. b: x 0; y (0 + 1) / 2: 1/4.
    assert found.estimate.mean == 0.5
    assert found.estimate.num_problems == 3
    assert found.test == "paired t, cluster bootstrap"


def test_a_model_against_itself_differs_by_nothing_for_certain():
    a = answers([1, 0, 1, 0.5], "categories@1", "xxyy")
    found = difference(a, a)
    assert (found.estimate.mean, found.estimate.stderr, found.p_value) == (0.0, 0.0, 1.0)


def test_pairing_makes_a_small_gain_visible_that_two_separate_scores_hide():
    random = np.random.default_rng(2)
    base = (random.uniform(size=200) < 0.5).astype(float)
    better = base.copy()
    better[np.flatnonzero(base == 0)[:12]] = 1.0
    categories = "ab" * 100
    a, b = (answers(points.tolist(), "categories@1", categories) for points in (better, base))
    assert difference(a, b).p_value < 0.01
    assert score(a).interval()[0] < score(b).interval()[1]


@settings(max_examples=20)
@given(points_lists, points_lists)
def test_swapping_the_models_turns_a_composite_difference_around(points, others):
    a, b = answers(points, "categories@1", "abab" * 3), answers(others, "categories@1", "abab" * 3)
    there, back = difference(a, b, num_resamples=50), difference(b, a, num_resamples=50)
    assert there.estimate.mean == pytest.approx(-back.estimate.mean)
    assert there.estimate.stderr == pytest.approx(back.estimate.stderr)


# Suites and parts -------------------------------------------------------------------------------------------------


def test_errors_that_two_parts_share_do_not_average_out():
    first = answers([1, 0, 1, 0], "mean@1")
    # The same problems asked again with the same success: one look at four problems, not two looks.
    assert suite_score([first, first]).stderr == pytest.approx(score(first).stderr)
    unrelated = answers([1, 0, 1, 0], "mean@1", first=4)
    # One part alone: 4 residuals of 1/2, SE^2 = (4 / 4) / (1 - 1/4) / 4^2 = 1/12; of two, (1/12 + 1/12) / 2^2 = 1/24.
    assert suite_score([first, unrelated]).stderr == pytest.approx(math.sqrt(1 / 24))
    assert score(first).stderr == pytest.approx(math.sqrt(1 / 12))


def test_a_suite_weighs_its_parts_alike_whatever_their_size():
    assert suite_score([answers([1, 1, 1, 0], "mean@1"), answers([0, 1], "mean@1", first=4)]).mean == (0.75 + 0.5) / 2


@pytest.mark.parametrize("metric", ["mean@1", "categories@1"])
def test_a_number_of_nothing_in_every_part_still_has_an_interval(metric):
    """Eight failures in a row are a chance of one in twenty where 31 % are solved: (1 - 0.3123)^8 = 0.05."""
    nothing = [answers([0, 0, 0, 0], metric), answers([0, 0, 0, 0], metric, first=4)]
    assert suite_score(nothing).interval() == pytest.approx((0.0, 0.3123), abs=1e-4)
    assert score(nothing[0]).half_width() == pytest.approx(1 - 0.05 ** (1 / 4))


def test_a_suite_with_a_composite_part_is_resampled_as_a_whole():
    first = answers([1, 0, 1, 0] * 10, "mean@1")
    composite = answers([1, 0, 1, 0] * 10, "categories@1")
    found = suite_score([first, composite], num_resamples=4000)
    assert found.mean == 0.5
    assert found.stderr == pytest.approx(score(first).stderr, rel=0.05)


def test_a_difference_of_suites_is_paired_problem_by_problem():
    ours = [answers([1, 1, 0, 1], "mean@1"), answers([1, 1], "mean@1", first=4)]
    theirs = [answers([1, 0, 0, 0], "mean@1"), answers([1, 0], "mean@1", first=4)]
    found = suite_difference(ours, theirs)
    assert found.estimate.mean == (2 / 4 + 1 / 2) / 2
    same = suite_difference(ours, ours)
    assert (same.estimate.mean, same.p_value) == (0.0, 1.0)
    mixed = [answers([1, 1, 0, 1], "categories@1"), ours[1]]
    others = [answers([1, 0, 0, 0], "categories@1"), theirs[1]]
    assert suite_difference(mixed, others).estimate.mean == found.estimate.mean


def test_a_breakdown_has_a_number_for_each_value_of_a_key():
    found = breakdown(answers([1, 0, 1, 1, 0], "mean@1", "bbaac"), "category")
    assert list(found) == ["a", "b", "c"]
    assert [(e.mean, e.num_problems) for e in found.values()] == [(1.0, 2), (0.5, 2), (0.0, 1)]
    assert list(breakdown(answers([1, 0], "mean@1"), "no such key")) == ["none"]


# What an interval holds -------------------------------------------------------------------------------------------

NUM_SIMULATIONS = 300


def simulated(random: np.random.Generator) -> ScoredSamples:
    """Return 40 groups of three problems that share their difficulty, in categories of 60, 40 and 20 problems.

    Chances of success are uniform in each category: the truth is 1/2 for the categories and each part.
    """
    chance = np.repeat(random.uniform(0, 1, 40), 3)
    points = (random.uniform(0, 1, 120) < chance).astype(float)
    groups = "".join(chr(0x4E00 + i // 3) for i in range(120))
    return answers(points.tolist(), "categories@1", "aaabbc" * 20, groups)


def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    random, hits = np.random.default_rng(3), 0
    for _ in range(NUM_SIMULATIONS):
        low, high = score(simulated(random), num_resamples=150).interval()
        hits += low <= 0.5 <= high
    assert 0.90 <= hits / NUM_SIMULATIONS <= 0.98


def test_two_equal_models_are_called_different_about_as_rarely_as_stated():
    random, alarms = np.random.default_rng(4), 0
    for _ in range(NUM_SIMULATIONS // 2):
        chance = np.repeat(random.uniform(0, 1, 40), 3)
        a, b = (
            answers((random.uniform(0, 1, 120) < chance).astype(float).tolist(), "categories@1", "aaabbc" * 20)
            for _ in range(2)
        )
        alarms += difference(a, b, num_resamples=150).p_value < 0.05
    assert 0.02 <= alarms / (NUM_SIMULATIONS // 2) <= 0.10
