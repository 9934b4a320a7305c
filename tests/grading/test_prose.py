"""Answers in prose: a labelled corpus with as many traps, and no text on which reading grows faster than its length."""

import json

import grading_rates as rates
import pytest

from atrl_bench.grading.comparison import PendingCheck
from atrl_bench.grading.extraction import extract_answer
from atrl_bench.grading.grade import grade_fast
from atrl_bench.results.records import Gold

CHOICES = ("opal", "jasper", "heptagonal prism", "onyx")


@pytest.fixture(scope="module")
def rows():
    return rates.read_rows(rates.READ)


@pytest.fixture(scope="module")
def states(rows):
    return rates.states_of(rows)


@pytest.fixture(scope="module")
def by_source(rows, states):
    sealed = rates.read_rows(rates.SEALED)
    return {
        "read": rates.rates_by_source(rows, states),
        "sealed": rates.rates_by_source(sealed, rates.states_of(sealed)),
    }


def test_an_answer_has_one_label_and_a_source_is_read_or_sealed_as_a_whole(rows, by_source):
    sealed = rates.read_rows(rates.SEALED)
    num_keys = len({json.dumps([row["response"], row["gold"], row["choices"]]) for row in [*rows, *sealed]})
    assert num_keys == len(rows) + len(sealed)
    assert (len(rows), len(sealed)) == (2525, 1054)
    assert {part: list(sources) for part, sources in by_source.items()} == {
        "read": ["batch 1", "batch 3", "batch 5", "causes"],
        "sealed": ["batch 2", "batch 4", "batch 6"],
    }


def test_of_answers_that_may_be_read_2_in_100_right_ones_are_refused_and_2_in_1000_others_accepted(by_source):
    refused, right, accepted, others = by_source["read"]["causes"]
    assert refused <= 0.02 * right
    assert accepted <= 0.002 * others


def test_of_sealed_answers_no_more_are_misread_than_is_said(by_source):
    """The goal, 2 and 0.2 % with upper ends of 3 and 0.5 %, is in the docs with what was reached."""
    refused, accepted = rates.upper_ends(sum(by_source["sealed"].values(), rates.Rates(0, 0, 0, 0)))
    assert (refused <= 0.04, accepted <= 0.015) == (True, True), (refused, accepted)


def test_the_docs_say_these_rates(by_source):
    (said,) = rates.BLOCK.findall(rates.PAGE.read_text("utf-8"))
    assert said[1] == rates.block(by_source)
    for page in rates.FIRST_PAGES:
        (said,) = rates.SENTENCE.findall(page.read_text("utf-8"))
        assert said[1] == rates.sentence(by_source["sealed"])


def test_no_answer_is_read_out_of_a_refusal_an_echo_or_a_text_that_was_cut_off(rows, states):
    read = [
        row["response"]
        for row, state in zip(rows, states, strict=True)
        if row["label"] == "unparseable" and state != "unparseable" and row["source"] == "causes"
    ]
    assert read == []


@pytest.mark.parametrize("answer", ["N/A", "n/a", "image_1.png", "images/fig 2.jpg"])
def test_what_names_a_thing_is_no_question_for_sympy(answer):
    assert not isinstance(grade_fast(rf"\boxed{{{answer}}}", Gold("x^2+1")), PendingCheck)


def test_a_box_that_was_cut_off_holds_an_answer_only_when_it_is_whole():
    assert extract_answer(r"So it is \boxed{12") is None  # perhaps 125
    assert extract_answer(r"So it is \boxed{D.", choices=CHOICES, num_choices=4) == "D"


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("AB = 5\n\nSince AC = 3, BC = 4.", "4"),  # another length than the one asked for
        ("There are thirty-six tiles.", "36"),
        ("The value is negative eight.", "-8"),
        ("thirty-six", "36"),
        ("forty twelve", "forty twelve"),  # no number
        ("around thirteen", "around thirteen"),  # and no word that is none
        ("Shows twelve", "Shows twelve"),
        ("The company sold 450 bikes in 2019.", "450"),
        ("Step 1: The angles add up to 540°.\nStep 2: Add", None),
        ("The angles add up to 540°. The area of the triangle", None),
        ("The numbers lie between 1 and", None),
        ("It may be 5", None),
        ("May was the wettest month, with 80 mm.", "80"),
    ],
)
def test_prose_states_this_value(response, answer):
    assert extract_answer(response) == answer


@pytest.mark.parametrize(
    ("response", "choices", "answer"),
    [
        ("A is too small. C is too large. B it is.", ("4", "6", "8"), "B"),
        ("是的，这两个三角形全等。", ("是", "否"), "是"),
        ("不是，它们的角不相等。", ("是", "否"), "否"),
        ("请问图在哪里？我只看到选项A。", ("4", "6", "8"), None),
        ("B. " + "The bar is the longest of all the bars. " * 3, ("4", "6"), "B"),
        ("B\n\nExplanation: A is shorter.", ("4", "6"), "B"),
    ],
)
def test_prose_states_this_option(response, choices, answer):
    extracted = extract_answer(response, choices=choices, num_choices=len(choices))
    assert answer is None if extracted is None else extracted.startswith(answer or "?")


COLLARS = ("Ascot", "Peter Pan", "Spread")
SAMPLES = ("sample A", "sample B")
SOLUTIONS = ("neither", "Solution A", "Solution B")


@pytest.mark.parametrize(
    ("response", "choices", "gold", "is_right"),
    [
        (
            "There are 3 collars.\nChoices:\n(A) Ascot\n(B) Peter Pan\n(C) Spread\n\nSo the answer is C.",
            COLLARS,
            "C",
            True,
        ),
        ("B\n\nQuestion: Which one is next?\nChoices:\n(A) 1 (B) 2\nAnswer: A", COLLARS, "B", True),
        ("They ask which sample has a higher temperature.", SAMPLES, "A", False),
        ("It is sample B.", SAMPLES, "B", True),
        ("The one with the higher kinetic energy is Solution B.", SOLUTIONS, "C", True),
        ("The one with the higher kinetic energy is Solution B.", SOLUTIONS, "B", False),
        ("Therefore her genotype should be FF.", ("Ff", "ff", "FF"), "C", True),
        ("Therefore her genotype should be FF.", ("Ff", "ff", "FF"), "A", False),
        ("The train leaves at 9:10 PM.", ("8:10 PM", "9:10 PM"), "B", True),
        ("(c) -2.02", ("2.02", "1.01", "-2.02"), "C", True),
        ("It is indicated by A.", ("north", "south"), "A", True),
        ("That is the superior lobe.", ("inferior lobes", "superior lobes"), "B", True),
        (
            "The best answer is (A) Ascot.\n\nThe other options, (B) Peter Pan and (C) Spread, do not.",
            COLLARS,
            "A",
            True,
        ),
        ("It is (A) 2 and (D) 1.", ("2", "3", "4", "1"), "D", False),
        ("The figures are (A) Ascot (B) Peter Pan (C) Spread.", COLLARS, "C", False),
        (r"\boxed{18}", ("9", "12", "18", "18"), "D", True),
        ("$1,485 - $171 - $401 = $913.", (), "913", True),
        ("He needs to buy 4 pairs, which would cost him $66.60.", (), "66.60", True),
        (r"\boxed{60*\degree}", (), r"60^\circ", True),
    ],
)
def test_what_was_misread_on_answers_that_nobody_had_seen_is_read(response, choices, gold, is_right):
    verdict = grade_fast(response, Gold(gold, choices, kind="choice" if choices else "auto"))
    assert (verdict.state == "correct") is is_right
