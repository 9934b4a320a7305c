"""MMK12, DynaMath, LogicVista, Geometry3K, MMStar and HallusionBench: what is particular to each."""

import numpy as np
import pytest

from atrl_bench.evaluation.tasks import find_task
from atrl_bench.grading.grade import grade
from atrl_bench.results.records import Gold, Problem
from atrl_bench.results.score_array import ScoreArray
from atrl_bench.results.statistics.metrics import ScoredSamples

NAMES = ["mmk12_test", "dynamath", "logicvista", "geometry3k_test", "mmstar", "hallusionbench"]
MODULES = {name: find_task(name).module for name in NAMES}


def is_right(answer: str, gold: Gold) -> bool:
    return grade(f"Some steps. The answer is \\boxed{{{answer}}}.", gold).state == "correct"


def test_several_letters_are_right_together_and_in_any_order():
    gold = MODULES["logicvista"].gold({"answer": "C, A"})
    assert is_right("A, C", gold)
    assert is_right("C, A", gold)
    assert is_right("A and C", gold)
    assert not is_right("A", gold)
    assert not is_right("A, B", gold)
    assert MODULES["logicvista"].gold({"answer": "b"}) == Gold("B", kind="choice")


@pytest.mark.parametrize(
    ("row", "right", "wrong"),
    [
        ({"answer_type": "float", "ground_truth": "2.5"}, "2.5009", "2.502"),
        ({"answer_type": "float", "ground_truth": "-400"}, "-400.0009", "-400.01"),
        ({"answer_type": "float", "ground_truth": "0"}, "0.0", "0.1"),
        ({"answer_type": "multiple choice", "ground_truth": "B"}, "(B)", "A"),
        ({"answer_type": "text", "ground_truth": "even"}, "even", "odd"),
    ],
)
def test_dynamath_numbers_are_right_to_a_thousandth_whatever_their_size(row, right, wrong):
    gold = MODULES["dynamath"].gold(row)
    assert is_right(right, gold)
    assert not is_right(wrong, gold)


def test_geometry3k_takes_roots_as_they_are_written_in_its_file():
    gold = MODULES["geometry3k_test"].gold({"answer": "2 \\sqrt { 221 }"})
    assert is_right("2\\sqrt{221}", gold)
    assert not is_right("\\sqrt{221}", gold)
    assert MODULES["geometry3k_test"].question({"problem": "<image>Find x."}) == "Find x."


def test_yes_and_no_are_compared_however_they_are_written():
    gold = MODULES["hallusionbench"].gold
    assert is_right("yes", gold({"gt_answer": "1"}))
    assert is_right("No.", gold({"gt_answer": 0}))
    assert not is_right("yes", gold({"gt_answer": "0"}))


def scored(name: str, statistic: str, scores: dict[tuple[str, str, str], float | None]) -> float:
    """A statistic of problems that are (group, figure or variant, question) with these scores, None for no verdict."""
    module, problems = MODULES[name], []
    for group, figure, question in scores:
        meta = {"id": group, "figure_id": figure, "question_id": question}
        problems.append(Problem(f"{group}/{figure}/{question}", group, "?", Gold("1"), meta))
    values = np.array([[np.nan if score is None else score] for score in scores.values()])
    states = np.zeros(values.shape, dtype=np.int8)
    samples = ScoredSamples(ScoreArray(tuple(problems), values, states), f"{statistic}@1", module.STATISTICS)
    return samples.weighted()(np.ones(len(samples.problems)))


def test_the_worst_case_counts_questions_whose_variants_are_all_right():
    # Question 1 has a wrong variant of three, question 2 none of two: one of two.
    scores = {("1", "a", "0"): 1, ("1", "b", "0"): 0, ("1", "c", "0"): 1, ("2", "a", "0"): 1, ("2", "b", "0"): 1}
    assert scored("dynamath", "worst_case", scores) == 0.5
    # A part with an answer that nobody could judge says nothing.
    several = {("1", "a", "0"): 1, ("1", "b", "0"): 1, ("2", "a", "0"): 0}
    assert scored("dynamath", "worst_case", several) == 0.5


def test_figures_and_pairs_of_hallusionbench_are_counted_by_hand():
    # Figure 0 has both questions right, figure 1 one: figures 1/2. Question 0 is right of both figures, question 1 of
    # one: pairs 1/2. Of the second set both questions of its only figure are wrong: figures 1/3, pairs 1/4.
    first = {("s", "0", "0"): 1, ("s", "0", "1"): 1, ("s", "1", "0"): 1, ("s", "1", "1"): 0}
    assert scored("hallusionbench", "figures", first) == 0.5
    assert scored("hallusionbench", "pairs", first) == 0.5
    both = {**first, ("t", "0", "0"): 0, ("t", "0", "1"): 0}
    assert scored("hallusionbench", "figures", both) == pytest.approx(1 / 3)
    assert scored("hallusionbench", "pairs", both) == pytest.approx(1 / 4)


def test_the_text_of_an_option_is_as_right_as_its_letter_where_the_options_are_told_apart():
    school = {"question": "<image>What?\nA. 12\nB. 17\nC. 15\nD. 13", "answer": "C"}
    assert MODULES["mmk12_test"].gold(school).choices == ("12", "17", "15", "13")
    assert is_right("15", MODULES["mmk12_test"].gold(school))
    star = {"question": "Where?\nOptions: A: on a book, B: near it, B side, C: above, D: below", "answer": "B"}
    assert MODULES["mmstar"].gold(star).choices == ("on a book", "near it, B side", "above", "below")
    unclear = {"question": "Which of them? A 1 B 2 C 3 D 4", "answer": "C"}
    assert all(MODULES[name].gold(unclear) == Gold("C", kind="choice") for name in ("mmk12_test", "mmstar"))
