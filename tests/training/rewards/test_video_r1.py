"""Rewards by the sort of answer, each redone by hand."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import LCSseq, Levenshtein

from atrl_bench.grading.grade import GradingPool
from atrl_bench.models.chat_template import begun_thought
from atrl_bench.results.records import Gold
from atrl_bench.training.rewards.video_r1 import (
    COMPARED,
    FormatReward,
    TypedReward,
    free_form,
    numerical,
    ocr,
    regression,
)


@pytest.mark.parametrize(
    ("answer", "gold", "reward"),
    [
        ("3", "3", 1.0),
        ("3.0", "3", 0.0),  # a count is written without a point, a measurement with one
        ("3", "3.0", 0.0),
        ("3.14159", "3.14", 1.0),
        ("3.146", "3.14", 0.0),  # rounds to 3.15
        ("1,200", "1200", 1.0),
        ("16 cm", "16", 1.0),
        ("-2", "2", 0.0),
        ("three or 4", "4", 0.0),
        ("", "4", 0.0),
        ("1" * 60, "1" * 60, 0.0),  # no number that anything here measures
    ],
)
def test_a_number_is_right_to_two_decimals_and_with_its_point(answer, gold, reward):
    assert numerical(answer, gold) == reward


@pytest.mark.parametrize(
    ("answer", "gold", "reward"),
    [
        ("9", "10", 0.9),
        ("-9", "-10", 0.9),
        ("12.5", "10", 0.75),
        ("25", "10", 0.0),
        ("-10", "10", 0.0),
        ("0", "0", 1.0),
        ("1", "0", 0.0),
    ],
)
def test_a_measurement_loses_its_relative_error(answer, gold, reward):
    assert regression(answer, gold) == pytest.approx(reward)


@pytest.mark.parametrize(
    ("answer", "gold", "reward"),
    [
        ("3 1 4 7", "3 1 4 7", 1.0),
        ("3 1 7 4", "3 1 4 7", 0.5),  # two of four words replaced
        ("3 1 4", "3 1 4 7", 0.75),  # one left out
        ("STOP", "stop", 1.0),
        ("a b c d e", "x", 0.0),  # five errors in one word are not less than nothing
        ("", "x", 0.0),
    ],
)
def test_read_text_loses_its_word_error_rate(answer, gold, reward):
    assert ocr(answer, gold) == reward


def test_words_are_compared_without_stems_and_without_case():
    assert free_form("dogs running", "dog run") == 0
    assert free_form("Dog Run", "dog run") == ocr("STOP", "stop") == 1


def test_free_text_gets_the_mean_of_three_rouge_scores():
    # Shared: 2 of 3 words, "the cat" of 2 pairs, and 2 words in order: F1 4/6, 2/4 and 4/6.
    assert free_form("The cat sat", "the cat ran.") == pytest.approx((2 / 3 + 1 / 2 + 2 / 3) / 3)
    assert free_form("a b c", "a b c") == 1.0
    assert free_form("a b", "c d") == 0.0


def test_a_free_answer_of_one_word_has_no_pairs_and_earns_two_thirds():
    assert free_form("yes", "Yes") == pytest.approx(2 / 3)


words = st.lists(st.sampled_from("abc"), max_size=6)


@given(left=words, right=words)
def test_distance_and_common_subsequence_bound_each_other(left, right):
    # A word that is in both stays; every other one of the longer text is replaced or left out.
    shared, distance = LCSseq.similarity(left, right), Levenshtein.distance(left, right)
    assert max(len(left), len(right)) - shared <= distance <= len(left) + len(right) - 2 * shared
    assert distance == Levenshtein.distance(right, left)
    if right:
        assert ocr(" ".join(left), " ".join(right)) == max(0, 1 - distance / len(right))


@given(answer=st.text(max_size=30), gold=st.text(max_size=30))
def test_every_comparison_gives_a_share_of_a_point(answer, gold):
    for compare in COMPARED.values():
        assert 0.0 <= compare(answer, gold) <= 1.0


def completions(*texts):
    return [[{"role": "assistant", "content": text}] for text in texts]


def test_each_response_is_rewarded_by_the_sort_of_its_problem():
    logged = {}
    with GradingPool() as pool:
        rewards = TypedReward(pool)(
            completions(
                "So it is \\boxed{B}.",
                "So it is \\boxed{12}.",
                "So it is \\boxed{13}.",
                "<think>3.</think><answer>3</answer>",
                "It is \\boxed{9}.",
                "\\boxed{3 1 7 4}",
                "the cat sat",
                "\\boxed{5}",
            ),
            answer=["B", "B", "B", "3", "10", "3 1 4 7", "the cat ran", "5"],
            graded_as=[Gold(text) for text in ("B", "B", "B", "3", "10", "3 1 4 7", "the cat ran", "5")],
            problem_type=["multiple choice"] * 3 + ["numerical", "regression", "OCR", "free-form", ""],
            choices=[["11", "12"]] * 3 + [[]] * 5,
            log_metric=lambda name, mean, count: logged.update({name: (mean, count)}),
        )
    # A letter, the text of its option, the text of no option.
    assert rewards == pytest.approx([1, 1, 0, 1, 0.9, 0.5, 11 / 18, 1])
    assert logged["accuracy/multiple choice"] == (pytest.approx(2 / 3), 3)
    assert logged["accuracy/other"] == (1.0, 1)


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("<think>3+4=7</think>\n<answer>7</answer>", 0.5),
        ("<answer>7</answer>", 0.0),
        ("<think>a</think><answer>7</answer> indeed", 0.0),
        ("<think>a</think><think>b</think><answer>7</answer>", 0.0),
    ],
)
def test_the_format_is_one_thought_and_one_answer(text, reward):
    assert FormatReward(0.5)(completions(text)) == [reward]


def test_a_thought_that_the_prompt_opens_is_closed_by_the_response(mini_processor):
    assert begun_thought(mini_processor) == ""
    processor = copy.deepcopy(mini_processor)
    processor.chat_template += "{% if add_generation_prompt %}<think>\n{% endif %}"
    assert begun_thought(processor) == "<think>\n"
    reward = FormatReward(0.5, begun_thought(processor))
    texts = "3+4=7</think>\n<answer>7</answer>", "<answer>7</answer>", "3</think>4</think><answer>7</answer>"
    assert reward(completions(*texts)) == [0.5, 0.0, 0.0]
