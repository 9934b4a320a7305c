from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrl_bench.models.templates import LETTERS, TEMPLATES, choose_template, render, split_options, with_choices


def test_every_template_keeps_the_question_and_asks_for_a_box() -> None:
    for template in range(len(TEMPLATES)):
        text = render("What is {x} in \\frac{1}{2}?", template)
        assert "What is {x} in \\frac{1}{2}?" in text
        assert "\\boxed{}" in text


def test_a_question_that_is_only_in_the_image_is_replaced_by_a_fixed_sentence() -> None:
    assert "According to the question shown in the image" in render("", 0)
    assert render("  \n", 2) == render("", 2)


def test_the_draw_of_a_template_is_stable_and_even() -> None:
    assert [choose_template(0, f"p{i}") for i in range(6)] == [choose_template(0, f"p{i}") for i in range(6)]
    counts = Counter(choose_template(1, f"p{i}") for i in range(3000))
    assert set(counts) == {0, 1, 2}
    assert max(counts.values()) < 1.15 * 1000  # 1000 each expected, standard deviation 26


def test_another_run_seed_draws_other_templates() -> None:
    draws = [[choose_template(seed, f"p{i}") for i in range(40)] for seed in (0, 1)]
    assert draws[0] != draws[1]


def test_choices_are_lettered_one_per_line() -> None:
    assert with_choices("Which?", ["red", "blue"]) == "Which?\nChoices:\n(A) red\n(B) blue"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("A. 300, 400;B. 400, 300; C. No correct answer", ["300, 400", "400, 300", "No correct answer"]),
        ("A. B; B. C; C. D; D. E; E. No correct answer", ["B", "C", "D", "E", "No correct answer"]),
        ("A. Left; B. Cannot be determined.; C. None", ["Left", "Cannot be determined.", "None"]),
        ("A. PA = PB;B. PA > PB > AB", ["PA = PB", "PA > PB > AB"]),
        ("A. B  ; B. C  ", ["B", "C"]),
        ("A:40°\nB:60°\nC:120°\nD:140°", ["40°", "60°", "120°", "140°"]),
        ("", []),
    ],
)
def test_an_option_string_is_split_at_its_own_letters_only(text: str, options: list[str]) -> None:
    assert split_options(text) == options


@given(st.lists(st.text(st.characters(codec="ascii", exclude_characters=";\n"), min_size=1), min_size=1, max_size=10))
def test_options_survive_being_joined_and_split(options: list[str]) -> None:
    options = [option.strip() or "x" for option in options]
    joined = ";".join(f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False))
    assert split_options(joined) == options
