"""Every figure here can be redone by hand; the sums stand in the comments."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import chdtri, nctdtr, stdtrit

from atrl_bench.results.records import Gold, Problem, Response, Sample, Verdict
from atrl_bench.results.score_array import ScoreArray
from atrl_bench.results.statistics.means import (
    Estimate,
    average_of,
    benjamini_hochberg,
    clustered_mean,
    clustered_score,
    constant_or,
    mcnemar_exact,
    over_seeds_too,
    paired_difference,
    seed_spread,
)
from atrl_bench.results.statistics.student import student_quantile

OWN = {name: name for name in "abcdefgh"}


def sample(problem: str, repeat: int, state: str | None) -> Sample:
    grade = None if state is None else Verdict(state, "1", "fast", "")
    return Sample(Problem(problem, problem, "?", Gold("1")), Response(problem, repeat, "h", "", 1, 0.1, False), grade)


def test_acc_at_1_counts_the_first_repeat_only():
    samples = [sample("a", 0, "wrong"), sample("a", 1, "correct"), sample("b", 0, "correct")]
    assert ScoreArray.of(samples).repeats(1).means() == {"a": 0.0, "b": 1.0}
    assert ScoreArray.of(samples).repeats(8).means() == {"a": 0.5, "b": 1.0}


def test_unparseable_and_timed_out_count_as_wrong_and_unjudged_answers_not_at_all():
    samples = [
        sample("a", 0, "unparseable"),
        sample("b", 0, "timed out"),
        sample("c", 0, "judge failed"),
        sample("d", 0, None),
    ]
    assert ScoreArray.of(samples).repeats(1).means() == {"a": 0.0, "b": 0.0}


def test_single_problem_groups_give_the_ordinary_standard_error():
    # scores 1 0 1 1: mean 3/4, variance (3 * (1/4)^2 + (3/4)^2) / 3 = (3/16 + 9/16) / 3 = 1/4, SE = sqrt(1/4 / 4) = 1/4
    estimate = clustered_mean({"a": 1.0, "b": 0.0, "c": 1.0, "d": 1.0}, OWN)
    assert (estimate.mean, estimate.num_problems, estimate.num_groups) == (0.75, 4, 4)
    assert (estimate.stderr, estimate.degrees) == pytest.approx((0.25, 3))
    # t at 3 degrees of freedom and 97.5 %: 3.182446
    assert estimate.interval() == pytest.approx((0.75 - 3.182446 * 0.25, 0.75 + 3.182446 * 0.25), abs=1e-6)


def test_one_group_has_no_standard_error():
    estimate = clustered_mean({"a": 1.0, "b": 0.0}, {"a": "x", "b": "x"})
    assert estimate.mean == 0.5
    assert math.isnan(estimate.stderr)
    assert math.isnan(estimate.interval()[0])


def test_a_difference_is_taken_over_the_problems_both_have():
    difference = paired_difference({"a": 1.0, "b": 1.0, "c": 0.5}, {"b": 0.5, "c": 0.0, "d": 1.0}, OWN)
    assert (difference.estimate.mean, difference.estimate.num_problems, difference.test) == (
        0.5,
        2,
        "paired t, clustered",
    )


def test_single_binary_runs_are_compared_by_the_exact_mcnemar_test():
    a = dict(zip("abcdefgh", [1.0, 1, 1, 1, 1, 1, 0, 1], strict=True))
    b = dict(zip("abcdefgh", [0.0, 0, 0, 0, 0, 0, 0, 1], strict=True))
    difference = paired_difference(a, b, OWN)
    # six problems only a solved, none only b: 2 * (1/2)^6 = 1/32
    assert (difference.p_value, difference.test) == (1 / 32, "exact McNemar")
    clustered = paired_difference(a, b, {name: "x" if name < "e" else "y" for name in a})
    assert clustered.test == "paired t, clustered"


def test_a_difference_that_is_the_same_in_every_group_is_as_sure_as_so_many_coins_that_agree():
    # Mean@8 of 4 and 3 of 8 on each of three problems: 2 / 2^3 = 1/4.
    difference = paired_difference(dict.fromkeys("abc", 0.5), dict.fromkeys("abc", 0.375), OWN)
    assert (difference.estimate.mean, difference.p_value) == (0.125, 0.25)
    # Of all groups 1 - 0.05^(1/3) = 0.6316 may still differ, each by 1.125 at most.
    assert difference.estimate.half_width() == pytest.approx(1.125 * 0.631597, abs=1e-6)
    # All right against all wrong, in two groups: two coins.
    groups = {"a": "x", "b": "x", "c": "y", "d": "y"}
    assert paired_difference(dict.fromkeys("abcd", 1.0), dict.fromkeys("abcd", 0.0), groups).p_value == 0.5
    same = paired_difference(dict.fromkeys("abc", 0.5), dict.fromkeys("abc", 0.5), OWN)
    assert (same.p_value, same.estimate.half_width()) == (1.0, pytest.approx(0.631597, abs=1e-6))
    assert same.detectable > same.estimate.half_width()
    # Eight groups of two problems, one a third better and one a third worse: 1 - 2/3 is not 1/3 to the last bit.
    pairs = [f"{group}{problem}" for group in "abcdefgh" for problem in (1, 2)]
    ours, theirs = ({name: float(name[1] == "1") for name in pairs}, {name: (3 - int(name[1])) / 3 for name in pairs})
    assert paired_difference(ours, theirs, {name: name[0] for name in pairs}).p_value == 1.0


def test_the_average_adds_variances_and_divides_by_the_number_of_benchmarks():
    # SE = sqrt(0.03^2 + 0.04^2) / 2 = 0.05 / 2
    one, two = Estimate(0.4, 0.03, 99, 100, 100), Estimate(0.6, 0.04, 99, 100, 100)
    average = average_of([one, two])
    assert (average.mean, average.stderr) == pytest.approx((0.5, 0.025))
    # Welch-Satterthwaite: (9 + 16)^2 / ((81 + 256) / 99) = 625 * 99 / 337
    assert average.degrees == pytest.approx(625 * 99 / 337)
    assert average.num_problems == 200


def test_an_average_over_benchmarks_without_spread_has_none():
    exact = Estimate(1.0, 0.0, 9, 10, 10)
    assert average_of([exact, exact]).stderr == 0.0
    assert average_of([exact, exact]).half_width() == 0.0
    assert math.isnan(average_of([exact, Estimate(1.0, math.nan, math.nan, 3, 1)]).stderr)
    assert math.isnan(average_of([]).mean)


def test_a_benchmark_on_which_nothing_varies_is_no_certain_part_of_an_average():
    groups = {name: name for name in "abc"}
    wrong, right = (clustered_score(dict.fromkeys("abc", score), groups) for score in (0.0, 1.0))
    # Each reaches 1 - 0.05^(1/3) = 0.6316, as would t = 4.3027 with 2 degrees times 0.14679. With 4 degrees t = 2.7764.
    assert average_of([wrong, right]).half_width() == pytest.approx(2.7764 * 0.14679 / math.sqrt(2), abs=1e-4)
    # Three right against three wrong in one benchmark, none right in the other: no coin falls thus once in twenty.
    gain, none = (
        paired_difference(dict.fromkeys("abc", score), dict.fromkeys("abc", 0.0), groups).estimate
        for score in (1.0, 0.0)
    )
    assert average_of([gain, none]).p_value() > 0.05


def test_what_two_benchmarks_share_adds_its_covariance_once_for_each_of_the_two():
    one = Estimate(0.5, 0.2, 9, 10, 10)
    # Two benchmarks, all of whose error is of one group that both have: var = (0.04 + 0.04 + 2 * 0.2 * 0.2) / 2^2.
    average = average_of([one, one], [{"g": 0.2}, {"g": 0.2}])
    assert average.stderr == pytest.approx(math.sqrt(0.16 / 4))
    # One that goes the other way takes all of it away.
    assert average_of([one, one], [{"g": 0.2}, {"g": -0.2}]).stderr == pytest.approx(0.0, abs=1e-12)


def test_benjamini_hochberg_by_hand():
    # sorted p * m / rank: 0.01 * 4/1, 0.02 * 4/2, 0.03 * 4/3, 0.5 * 4/4, then the running minimum from the right
    assert benjamini_hochberg([0.5, 0.01, 0.03, 0.02]) == pytest.approx([0.5, 0.04, 0.04, 0.04])
    assert benjamini_hochberg([]) == []
    with pytest.raises(ValueError, match="between 0 and 1"):
        benjamini_hochberg([0.5, math.nan])


@given(st.floats(0.5, 1e4), st.floats(0.55, 0.9999))
def test_a_quantile_of_students_t_is_scipys(degrees, probability):
    assert student_quantile(degrees, probability) == pytest.approx(stdtrit(degrees, probability), rel=1e-9)


def test_quantiles_of_students_t_are_those_of_the_printed_table_and_nan_without_degrees():
    printed = {1: 12.706, 2: 4.303, 10: 2.228, 30: 2.042}
    assert {degrees: round(student_quantile(degrees, 0.975), 3) for degrees in printed} == printed
    assert math.isnan(student_quantile(0, 0.975))
    assert math.isnan(student_quantile(math.nan, 0.975))


@pytest.mark.parametrize("count", [1, 2, 7, 60])
def test_benjamini_hochberg_is_that_of_scipy_to_the_last_bit_with_ties_among_them(count):
    from scipy.stats import false_discovery_control

    values = (np.random.default_rng(count).random(count) ** 3).tolist()
    values += values[: count // 2]
    assert benjamini_hochberg(values) == false_discovery_control(values).tolist()


def test_seed_spread_is_measured_from_two_seeds_on():
    assert seed_spread([0.5]).sd is None
    assert seed_spread([0.5]).half_width() is None
    spread = seed_spread([0.4, 0.5, 0.6])
    assert (spread.mean, spread.sd) == pytest.approx((0.5, 0.1))
    assert spread.half_width() == pytest.approx(4.302653 * 0.1 / math.sqrt(3), abs=1e-6)  # t at 2 degrees: 4.302653


def test_the_error_over_problems_and_seeds_counts_once_what_seeds_change_of_single_problems():
    """Three seeds at 0.1, 0.2 and 0.3: over seeds SE^2 = 0.01 / 3. Over problems 0.01; of one seed alone 0.013."""
    problems = Estimate(0.2, 0.1, 50, 51, 51)
    both = over_seeds_too(problems, [0.1, 0.2, 0.3], [replace(problems, stderr=0.013**0.5)] * 3)
    shared = (0.013 - 0.01) / 2
    assert both.mean == 0.2
    assert both.stderr**2 == pytest.approx(0.01 + 0.01 / 3 - shared)
    square = both.stderr**2 * (0.01 / 3 + 0.01 - shared)
    assert both.degrees == pytest.approx(square / (0.01**2 / 50 + (0.01 / 3) ** 2 / 2 + shared**2 / 100))


def test_seeds_that_agree_make_nothing_certain_and_seeds_that_vary_leave_their_own_error():
    problems = Estimate(0.2, 0.1, 50, 51, 51)
    agreed = over_seeds_too(problems, [0.2, 0.2], [replace(problems, stderr=0.13)] * 2)
    assert (agreed.stderr, agreed.degrees < 50) == (0.1, True)  # 0.13^2 - 0.1^2 of it might be of two like seeds
    problems = replace(problems, stderr=0.001)
    apart = over_seeds_too(problems, [0.1, 0.2, 0.3], [problems] * 3)
    assert apart.half_width() == pytest.approx(seed_spread([0.1, 0.2, 0.3]).half_width(), rel=0.01)


def test_the_same_answer_everywhere_on_every_seed_keeps_its_interval():
    constant = clustered_mean({str(i): 1.0 for i in range(5)}, {str(i): str(i) for i in range(5)})
    constant = constant_or(constant)
    both = over_seeds_too(constant, [1.0, 1.0], [constant, constant])
    assert both.half_width() == pytest.approx(constant.half_width())


values = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=2)


@given(values, values)
def test_swapping_the_models_turns_the_difference_around(a, b):
    if len(a.keys() & b.keys()) < 2:
        return
    there, back = paired_difference(a, b, OWN), paired_difference(b, a, OWN)
    assert there.estimate.mean == pytest.approx(-back.estimate.mean)
    assert there.estimate.stderr == pytest.approx(back.estimate.stderr)
    assert there.p_value == pytest.approx(back.p_value)


@given(values)
def test_the_order_of_the_problems_is_irrelevant(a):
    groups = {name: "x" if name < "d" else name for name in "abcdefgh"}
    one, two = clustered_mean(a, groups), clustered_mean(dict(sorted(a.items(), reverse=True)), groups)
    assert (one.mean, one.stderr) == pytest.approx((two.mean, two.stderr), nan_ok=True)


@given(values)
def test_asking_every_problem_twice_under_one_group_changes_nothing(a):
    double = a | {name.upper(): value for name, value in a.items()}
    groups = OWN | {name.upper(): name for name in a}
    assert clustered_mean(double, groups).stderr == pytest.approx(clustered_mean(a, OWN).stderr)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_agrees_with_the_binomial_test_of_scipy(only_a, only_b):
    from scipy.stats import binomtest

    expected = binomtest(only_a, only_a + only_b).pvalue if only_a + only_b else 1.0
    assert mcnemar_exact(only_a, only_b) == pytest.approx(expected)


def test_the_interval_covers_the_truth_as_often_as_it_says():
    """2,000 benchmarks of 30 groups of three problems that share their difficulty: 95 % of intervals hold the mean."""
    random = np.random.default_rng(0)
    groups = {str(i): str(i // 3) for i in range(90)}
    hits = 0
    for _ in range(2000):
        difficulty = np.repeat(random.uniform(0, 1, 30), 3)
        scores = (random.uniform(0, 1, 90) < difficulty).astype(float)
        low, high = clustered_mean(dict(zip(groups, scores.tolist(), strict=True)), groups).interval()
        hits += low <= 0.5 <= high
    assert hits / 2000 == pytest.approx(0.95, abs=0.015)


def test_a_score_of_nothing_on_every_problem_still_has_an_interval():
    estimate = clustered_score({str(i): 0.0 for i in range(24)}, {str(i): str(i) for i in range(24)})
    # (1 - 0.1173)^24 = 0.05: were 12 % of all problems solved, 24 failures in a row would be a chance of one in twenty.
    assert estimate.half_width() == pytest.approx(0.1173, abs=1e-4)
    assert estimate.interval() == (0.0, estimate.half_width())
    full = clustered_score({"a": 1.0, "b": 1.0}, OWN)
    assert full.interval() == pytest.approx((0.05**0.5, 1.0))
    assert clustered_score({}, {}).num_problems == 0


@given(st.lists(st.integers(1, 6), min_size=2, max_size=7), st.integers(0, 100))
def test_error_and_degrees_are_those_of_bell_and_mccaffrey(sizes, seed):
    """Their definition, written out: y = mean + e by least squares, A = (I - H_gg)^(-1/2), G = (I - H)' A 1 / n."""
    codes = np.repeat(np.arange(len(sizes)), sizes)
    scores = np.random.default_rng(seed).integers(0, 2, len(codes)).astype(float)
    hat = np.full((len(codes), len(codes)), 1 / len(codes))
    residuals, columns, variance = scores - scores.mean(), [], 0.0
    for group in range(len(sizes)):
        of_group = codes == group
        values, vectors = np.linalg.eigh(np.eye(of_group.sum()) - hat[np.ix_(of_group, of_group)])
        adjusted = vectors @ np.diag(values**-0.5) @ vectors.T @ np.ones(of_group.sum()) / len(codes)
        variance += float(adjusted @ residuals[of_group]) ** 2
        columns.append((np.eye(len(codes)) - hat)[:, of_group] @ adjusted)
    eigenvalues = np.linalg.eigvalsh(np.transpose(columns) @ np.array(columns))
    names = [str(i) for i in range(len(codes))]
    estimate = clustered_mean(dict(zip(names, scores, strict=True)), dict(zip(names, map(str, codes), strict=True)))
    assert estimate.stderr == pytest.approx(math.sqrt(variance), abs=1e-9)
    assert estimate.degrees == pytest.approx(eigenvalues.sum() ** 2 / (eigenvalues**2).sum())


def test_the_interval_of_a_score_is_wilsons_and_stays_between_0_and_1():
    # Without groups and with many degrees of freedom: 95 of 100 gives Wilson's 0.888 to 0.978.
    low, high = Estimate(0.95, math.sqrt(0.95 * 0.05 / 100), 1e9, 100, 100, "scores").interval()
    assert (low, high) == pytest.approx((0.8882, 0.9785), abs=1e-4)
    low, high = Estimate(0.1, 0.3, 2, 5, 3, "scores").interval()
    assert 0 <= low < 0.1 < high <= 1


def test_intervals_hold_the_truth_where_one_group_is_half_of_the_benchmark():
    """1,000 benchmarks of 200 problems at 95 %, 100 of them one scene: the plain formula held it in 78 of 100."""
    rng = np.random.default_rng(0)
    sizes = [100] + [5] * 20
    groups = {str(i): str(group) for i, group in enumerate(np.repeat(np.arange(21), sizes))}
    held = 0
    for _ in range(1000):
        chances = np.repeat(rng.beta(0.95 * 9, 0.05 * 9, 21), sizes)  # answers of one group correlate by 0.1
        low, high = clustered_score(
            dict(zip(groups, (rng.random(200) < chances) * 1.0, strict=True)), groups
        ).interval()
        held += low <= 0.95 <= high
    assert held >= 930


def test_answers_of_a_second_seed_are_further_repeats_and_its_own_problems_come_last():
    """b is judged for the second seed alone; c never."""
    first = [sample("a", 0, "correct"), sample("b", 0, "judge failed"), sample("c", 0, None)]
    second = [sample("b", 0, "wrong"), sample("a", 0, "wrong"), sample("d", 0, "correct")]
    joined = ScoreArray.joined([ScoreArray.of(first), ScoreArray.of(second)])
    assert [problem.problem_id for problem in joined.problems] == ["a", "b", "d"]
    np.testing.assert_array_equal(joined.scores_PR, [[1.0, 0.0], [np.nan, 0.0], [np.nan, 1.0]])
    assert joined.means() == {"a": 0.5, "b": 0.0, "d": 1.0}


@pytest.mark.parametrize("num_seeds", [2, 4, 8])
def test_at_the_median_figure_said_to_be_detectable_the_power_is_80_percent(num_seeds):
    degrees = num_seeds - 1
    median_sd = math.sqrt(chdtri(degrees, 0.5) / degrees)  # of seeds whose standard deviation is one
    said = Estimate(0.0, median_sd / math.sqrt(num_seeds), degrees, num_seeds, num_seeds).detectable()
    power = 1 - nctdtr(degrees, said * math.sqrt(num_seeds), stdtrit(degrees, 0.975))
    assert power == pytest.approx(0.8, abs=1e-6)
