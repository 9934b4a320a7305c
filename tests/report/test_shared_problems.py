"""Two columns that ask the same problems are not two independent samples: their average knows it."""

import math

import pytest

from atrl_bench.report.cells import Scores, scores_of, shared_groups, shared_residuals
from atrl_bench.results.records import Gold, Problem, Response, Sample, Verdict
from atrl_bench.results.score_array import ScoreArray
from atrl_bench.results.statistics.means import average_of

LONG = "In the figure how large is the angle at point number {} of the drawing"


def column(task: str, scores: list[int], *, first: int = 0, question: str = LONG, prefix: str = "") -> Scores:
    """Return a column with one group a problem, right where the score is 1."""
    samples = []
    for number, score in enumerate(scores):
        problem = Problem(
            f"{prefix}{number}", f"{prefix}{number}", question.format(first + number), Gold(str(number % 3))
        )
        verdict = Verdict("correct" if score else "wrong", "1", "fast", "")
        samples.append(Sample(problem, Response(problem.problem_id, 0, "h", "1", 1, 0.1, False), verdict))
    return scores_of({task: {0: ScoreArray.of(samples)}}, "acc@1")


def average(columns: dict[str, Scores]):
    estimates = [scores.estimate() for scores in columns.values()]
    return average_of(estimates, shared_residuals(shared_groups(columns), estimates, columns))


def test_two_columns_of_the_same_problems_and_answers_are_as_certain_as_one_of_them():
    one, same = column("geoqa_test", [1, 0, 0, 1, 1, 0]), column("mathvision_testmini", [1, 0, 0, 1, 1, 0], prefix="m")
    assert average({"a": one, "b": same}).stderr == pytest.approx(one.estimate().stderr)


def test_columns_without_a_common_problem_are_independent():
    one, other = column("geoqa_test", [1, 0, 0, 1, 1, 0]), column("mathvision_testmini", [1, 0, 0, 1, 1, 0], first=10)
    assert average({"a": one, "b": other}).stderr == pytest.approx(one.estimate().stderr / math.sqrt(2))


def test_answers_that_go_opposite_ways_on_the_same_problems_cancel():
    one, other = column("geoqa_test", [1, 0, 0, 1, 1, 0]), column("mathvision_testmini", [0, 1, 1, 0, 0, 1], prefix="m")
    assert average({"a": one, "b": other}).stderr == pytest.approx(0.0, abs=1e-9)


def test_a_text_that_several_groups_of_a_column_have_and_a_text_of_few_words_name_no_problem():
    often = "In the figure how large is the angle that the drawing shows"  # of many pictures
    pairs = {"a": column("geoqa_test", [1, 0, 0], question=often), "b": column("geoqa_test", [1, 0, 0], question=often)}
    # Told apart by their answers.
    assert shared_groups(pairs).keys() == {(name, str(number)) for name in "ab" for number in range(3)}
    same_answer = column("geoqa_test", [1, 0, 0, 1], question=often)  # the answers 0, 1, 2 and 0
    assert ("a", "0") not in shared_groups({"a": same_answer, "b": pairs["b"]})
    assert not shared_groups({name: column("geoqa_test", [1], question="x {}") for name in "ab"})
