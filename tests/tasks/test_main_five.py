"""The five benchmarks of the main table in all their splits, and the scoring bugs that published numbers carry."""

import math

import needs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrl_bench.evaluation.tasks import find_task
from atrl_bench.grading.grade import grade
from atrl_bench.results.records import Gold, Problem, Response, Sample, Verdict
from atrl_bench.results.statistics.metrics import ScoredSamples, score

WEMATH = find_task("wemath_testmini").module


def number(name: str, composites: dict[str, str], weights: dict[str, int] | None = None) -> float:
    """The statistic over composites written as strings of right (1) and wrong (0), the whole problem last."""
    problems, scores = compose(composites)
    weights_P = [1.0 if weights is None else weights[problem.group] for problem in problems]
    return WEMATH.STATISTICS[name](problems)(np.array(scores), np.array(weights_P))


def compose(composites: dict[str, str]) -> tuple[list[Problem], list[float]]:
    problems, scores = [], []
    for name, marks in composites.items():
        length = len(marks) - 1
        keys = [f"{length}steps_{step + 1}" for step in range(length)] + [f"{length}steps_multi"]
        problems += [Problem(f"{name}/{key}", name, "?", Gold("A"), meta={"key": key}) for key in keys]
        scores += [float(mark) for mark in marks]
    return problems, scores


# Steps first, the whole problem last.
EIGHT = {
    "a": "111",  # complete mastery
    "b": "1111",  # complete mastery
    "c": "101",  # rote memorisation; loosely mastered
    "d": "0001",  # rote memorisation in both readings
    "e": "110",  # inadequate generalisation
    "f": "1110",  # inadequate generalisation
    "g": "100",  # insufficient knowledge
    "h": "0000",  # insufficient knowledge
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("insufficient_knowledge", 2 / 8),
        ("inadequate_generalisation", 2 / 8),
        ("complete_mastery_strict", 2 / 8),
        ("complete_mastery_loose", 3 / 8),
        ("rote_memorisation_strict", 2 / 4),  # of the four that are right: c, d
        ("rote_memorisation_loose", 1 / 4),  # d
        ("score_strict", 3 / 8),  # (8 - 0.5 * 2 - 2 - 2) / 8
        ("score_loose", 4 / 8),  # (8 - 0.5 * 2 - 1 - 2) / 8
    ],
)
def test_wemath_s_dimensions_of_eight_composites(name: str, value: float) -> None:
    assert number(name, EIGHT) == pytest.approx(value)


@pytest.mark.parametrize("marks", ["000", "110"])
def test_no_right_composite_is_no_rote_memorisation_and_no_division_by_zero(marks: str) -> None:
    assert number("rote_memorisation_strict", {"a": marks}) == 0.0
    assert number("rote_memorisation_loose", {"a": marks}) == 0.0


def test_a_composite_counts_as_often_as_it_is_drawn() -> None:
    # a three times, g once, the others never: (3 + 1 - 1) / 4
    weights = dict.fromkeys(EIGHT, 0) | {"a": 3, "g": 1}
    assert number("score_strict", EIGHT, weights) == pytest.approx(3 / 4)
    assert math.isnan(number("score_strict", EIGHT, dict.fromkeys(EIGHT, 0)))


def test_a_composite_with_a_missing_or_unjudged_part_is_left_out() -> None:
    problems, scores = compose({"a": "111", "b": "000"})
    cut = [problem for problem in problems if problem.problem_id != "b/2steps_1"]
    statistic = WEMATH.STATISTICS["score_strict"](cut)
    assert statistic(np.array([1.0, 1, 1, 0, 0]), np.ones(5)) == 1.0
    unjudged = np.array([1.0, 1, 1, 1, 0, 1])
    assert WEMATH.STATISTICS["score_strict"](problems)(np.array(scores), unjudged) == 1.0


def test_the_order_of_the_rows_does_not_matter() -> None:
    problems, scores = compose(EIGHT)
    order = np.random.default_rng(0).permutation(len(problems))
    shuffled = WEMATH.STATISTICS["score_loose"]([problems[i] for i in order])
    assert shuffled(np.array(scores)[order], np.ones(len(order))) == number("score_loose", EIGHT)


@given(st.lists(st.sampled_from(["".join(f"{n:04b}") for n in range(16)] + ["000", "011", "101", "111"]), min_size=1))
def test_the_four_dimensions_share_out_all_composites(marks: list[str]) -> None:
    composites = {str(place): mark for place, mark in enumerate(marks)}
    for reading in ("strict", "loose"):
        mastered = number(f"complete_mastery_{reading}", composites)
        rote_rate = number(f"rote_memorisation_{reading}", composites)
        right = sum(mark[-1] == "1" for mark in marks) / len(marks)
        lacking = number("insufficient_knowledge", composites), number("inadequate_generalisation", composites)
        assert right + sum(lacking) == pytest.approx(1)
        assert mastered + rote_rate * right == pytest.approx(right)
        assert number(f"score_{reading}", composites) == pytest.approx(mastered + lacking[1] / 2)
    assert number("score_strict", composites) <= number("score_loose", composites)


def test_each_repeat_has_dimensions_of_its_own_and_the_mean_is_over_repeats() -> None:
    """lmms-eval sums a problem's repeats and compares the sum with 1: what is solved twice of twice counts as wrong."""
    repeats = [{"a": "111", "b": "111"}, {"a": "111", "b": "110"}]
    samples = []
    for repeat, composites in enumerate(repeats):
        for problem, mark in zip(*compose(composites), strict=True):
            response = Response(problem.problem_id, repeat, "hash", "text", 1, 0.1, False)
            state = "correct" if mark else "wrong"
            samples.append(Sample(problem, response, Verdict(state, "A", "fast", "")))
    answers = ScoredSamples.of(samples, "score_strict@2", WEMATH.STATISTICS)
    # First repeat 2/2; second (2 - 0.5) / 2 = 0.75; mean 0.875.
    assert score(answers, num_resamples=10).mean == pytest.approx(0.875)


def test_wemath_s_synthetic_benchmark_has_whole_composites(problems_of, mini_world) -> None:
    problems = problems_of("wemath_testmini", mini_world)
    everything_right = np.ones(len(problems))
    for name, maker in WEMATH.STATISTICS.items():
        perfect = 1.0 if name.startswith(("score", "complete")) else 0.0
        assert maker(problems)(everything_right, np.ones(len(problems))) == perfect


@needs.data
def test_every_composite_of_the_real_rows_is_whole(problems_of) -> None:
    problems = problems_of("wemath_testmini", needs.DATA)
    scores = np.array([float(problem.group != problems[0].group) for problem in problems])
    strict = WEMATH.STATISTICS["score_strict"](problems)
    assert strict(scores, np.ones(len(problems))) == pytest.approx(44 / 45)  # one of 45 all wrong, the others all right


def test_wemath_reads_the_letter_wherever_it_is_written() -> None:
    """The official script takes the first character after "Answer", and of a response without that word the first."""
    row = {"option": "A. 15π;B. 10π;C. 5π; D. No correct answer", "answer": "C"}
    for response in ("**C**", "Because 2πr = 5π, the answer is C.", "<answer>C. 5π</answer>", "\\boxed{5\\pi}"):
        assert grade(response, WEMATH.gold(row)).state == "correct", response
    assert grade("Because of this, \\boxed{B}", WEMATH.gold(row)).state == "wrong"


# Splits -----------------------------------------------------------------------------------------------------------


def test_splits_of_one_benchmark_share_their_code() -> None:
    for one, other in (("mathvision_test", "mathvision_testmini"), ("mathverse_text_only", "mathverse_testmini")):
        assert find_task(one).module is find_task(other).module
        assert find_task(one).yaml_path != find_task(other).yaml_path
