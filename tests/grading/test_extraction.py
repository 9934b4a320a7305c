"""Where the answer is in a response."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import printed

from atrl_bench.grading.extraction import extract_answer, last_boxed
from atrl_bench.grading.numbers_in_text import sole_number


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"so \boxed{5}", "5"),
        (r"first \boxed{4}, then \boxed{5}.", "5"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"**\boxed{5}**", "5"),
        (r"\boxed {5}", "5"),
        (r"\fbox{5}", "5"),
        (r"\text{so \boxed{5}}", "5"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{5} and put it in \boxed{}", "5"),
        (r"\boxed{5} and \boxed{\frac{1}{2", "5"),  # cut off by the token limit
        (r"} \boxed{5} {", "5"),
        (r"\boxed{5", None),
        (r"boxed{5}", None),
        ("", None),
    ],
)
def test_the_last_balanced_box_is_the_answer(text, content):
    assert last_boxed(text) == content


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (r"The answer is 4. No: \boxed{5}", "5"),
        ("<think>so 4</think><answer> 5 </answer>", "5"),
        ("<answer>5", "5"),
        ("Therefore, the answer is 5. I am sure of it", "5"),
        ("**Final answer:** 5 cm\nbye", "5 cm"),
        ("The answer is:\n\\[ \\frac{1}{2} \\]", r"\frac{1}{2}"),
        ("所以答案是：12", "12"),
        ("12", "12"),
        ("Yes.", "Yes."),
        ("angle 1 = 90° - 35° = 55°, which is what was to be shown here", "55"),
        ("so the length of the side AB comes out as 2√3", "2√3"),
        (r"so the length of the side comes out as \frac{3}{4} of it", r"\frac{3}{4}"),
        ("and the number of all of them is 1,234,567", "1,234,567"),
        ("nothing to be seen in this picture at all", None),
    ],
)
def test_without_a_box_the_fallbacks_are_asked_in_order(response, text):
    assert extract_answer(response) == text


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("Both lines meet, hence (B)", "B"),
        ("Option A is wrong because 3 < 4, so choose C", "C"),
        ("They are equal.\n**D**", "D"),
        ("They are equal.\nD. 12 cm", "D"),
        ("I think that it is so, and A triangle cannot be seen", None),
        ("Angle A of triangle ABC equals angle B", None),
        ("They are equal.\n**E**", None),  # there are four options
    ],
)
def test_a_letter_counts_where_it_stands_as_an_option(response, letter):
    assert extract_answer(response, num_choices=4) == letter


def test_a_wording_with_one_number_gives_it():
    assert sole_number("the height is 12 cm") == "12"
    assert sole_number("12 apples and 5 pears") is None
    assert sole_number("not 12") is None


@pytest.mark.parametrize(
    "text",
    [
        "{" * 10**6,
        r"\boxed{" * 150_000,
        "1" * 10**6,
        "answer is " * 100_000,
        "1," * 500_000,
        "√" * 10**6,
        "<answer>" * 10**5,
    ],
)
def test_a_megabyte_is_read_in_linear_time(text):
    start = time.process_time()
    extract_answer(text, num_choices=5)
    assert time.process_time() - start < 2.0


def test_a_box_at_the_end_of_a_very_long_response_is_found():
    assert extract_answer("and 4 more words " * 20_000 + r"so \boxed{(3, 4)}, and 7 is left.") == "(3, 4)"


@settings(max_examples=300)
@given(st.text(alphabet=st.sampled_from("\\boxed{}()AB12.,<>/answer is\n\x00π√"), max_size=300), st.integers(0, 10))
def test_extraction_never_raises(text, num_choices):
    assert extract_answer(text, num_choices=num_choices) != ""


@given(st.text(alphabet="abc{}", max_size=30), st.text(alphabet="xyz 12", min_size=1, max_size=20).filter(str.strip))
def test_a_box_at_the_end_is_found_whatever_precedes_it(before, content):
    assert last_boxed(f"{before}\\boxed{{{content}}}") == content.strip()


def test_importing_extraction_and_grading_imports_neither_sympy_nor_torch():
    code = (
        "import sys, atrl_bench.grading.grade as g; g.grade(r'\\boxed{5}', g.Gold('5'));"
        "print([name for name in ('sympy', 'torch', 'pebble', 'httpx') if name in sys.modules])"
    )
    assert printed("-c", code) == "[]\n"
