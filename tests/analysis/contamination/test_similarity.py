"""When two questions, or two pictures, are the same: each case is one that a plain comparison gets wrong."""

import io
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from atrl_bench.analysis.contamination.similarity import MAX_DISTANCE, MIN_CONTAINMENT, Gallery, read_picture, read_text

QUESTION = "As shown in the figure, in triangle ABC, angle A = 80.0, DE parallel BC, then the size of angle CED is ()"


@pytest.mark.parametrize(
    "variant",
    [
        QUESTION.upper(),
        "  " + QUESTION.replace(" ", "\n  "),
        f"<image>{QUESTION}",
        QUESTION.replace("80.0", "80"),
        QUESTION.replace("80.0", r"80^\circ"),
        QUESTION.replace("80.0", "80 degrees"),
        QUESTION.replace("triangle ABC", "△ABC").replace(" angle A", " ∠A"),
        QUESTION.replace("angle A = 80.0", r"$\angle A=80^{\circ}$").replace(" BC, then", r"\;BC, then"),
        QUESTION.replace(", ", "，"),
        QUESTION.replace("ABC", "ＡＢＣ"),
        QUESTION + "\nChoices:\nA:40°\nB:60°\nC:120°",
        QUESTION + "\n(A) 40 (B) 60 (C) 120 (D) 140",
        QUESTION + " Options: 1; 2",
    ],
)
def test_writing_a_question_another_way_leaves_it_the_same(variant):
    assert read_text(variant) == read_text(QUESTION)


def test_another_number_makes_another_question():
    other = read_text(QUESTION.replace("80", "70"))
    assert other.similarity(read_text(QUESTION)) == 0.0
    assert read_text("x is 1,000").words == read_text("x is 1000").words != read_text("x is 100").words


def test_signs_of_a_formula_count_and_hyphens_of_words_do_not():
    assert read_text("x - 3") != read_text("x + 3")
    assert read_text("x − 3") == read_text("x-3")
    assert read_text("a right-angled triangle") == read_text("a right angled triangle")
    assert read_text(r"\frac{1}{2}") == read_text("1/2")


def test_a_long_question_with_one_word_more_is_nearly_the_same():
    similarity = read_text(QUESTION.replace("the size", "the exact size")).similarity(read_text(QUESTION))
    assert MIN_CONTAINMENT <= similarity < 1


def test_short_questions_are_the_same_or_not_but_never_nearly():
    assert read_text("Find x.").similarity(read_text("find X")) == 1.0
    assert read_text("Find x now.").similarity(read_text("Find x")) == 0.0


def test_a_question_without_words_is_like_nothing():
    assert read_text("<image> ()").words == ()
    assert read_text("").similarity(read_text("")) == 0.0


def test_a_question_that_is_all_options_keeps_them():
    assert read_text("A. one B. two C. three").words == ("a", "one", "b", "two", "c", "three")


def test_points_called_a_and_b_are_no_options():
    assert "radius" in read_text("The circle passes through A. Its centre is B. Find the radius.").words


@given(st.text(max_size=400))
def test_any_text_can_be_read_and_is_like_itself(text):
    read = read_text(text)
    assert read == read_text(text)
    assert read.similarity(read) == (1.0 if read.words else 0.0)


@pytest.mark.parametrize("part", ["A.B.(", " ", "\\frac{", "<image", "^{ ", "choices :", "1,000", "a-"])
def test_a_megabyte_of_anything_is_read_at_once(part):
    started = time.perf_counter()
    read_text(part * (1_000_000 // len(part)))
    assert time.perf_counter() - started < 2


# Pictures -----------------------------------------------------------------------------------------------------------


def figure(seed: int, size: int = 160) -> Image.Image:
    """Return a drawing of random lines on a white page, as a geometry problem has."""
    random = np.random.default_rng(seed)
    picture = Image.new("RGB", (size, size), "white")
    pen = ImageDraw.Draw(picture)
    for start, end in zip(random.integers(10, size - 10, (6, 2)), random.integers(10, size - 10, (6, 2)), strict=True):
        pen.line([*start.tolist(), *end.tolist()], fill="black", width=2)
    return picture


def as_jpeg(picture: Image.Image, quality: int) -> Image.Image:
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=quality)
    return Image.open(buffer)


VARIANTS = {
    "JPEG of quality 30": lambda picture: as_jpeg(picture, 30),
    "half the size": lambda picture: picture.resize((picture.width // 2, picture.height // 2)),
    "twice the size": lambda picture: picture.resize((picture.width * 2, picture.height * 2)),
    "grey": lambda picture: picture.convert("L"),
    "smaller and JPEG": lambda picture: as_jpeg(picture.resize((120, 120)), 60),
}


def find(pictures: list[Image.Image], wanted: Image.Image) -> dict[int, float]:
    return Gallery([read_picture(picture) for picture in pictures]).find(read_picture(wanted))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_picture_is_found_again_after(variant):
    pictures = [figure(seed) for seed in range(20)]
    for run_dir, picture in enumerate(pictures):
        found = find(pictures, VARIANTS[variant](picture))
        assert list(found) == [run_dir]
        assert found[run_dir] <= MAX_DISTANCE


def test_equal_pixels_are_at_distance_0_and_an_equal_look_is_not():
    png = io.BytesIO()
    figure(1).save(png, "PNG")
    assert find([figure(1)], Image.open(png)) == {0: 0.0}
    assert find([figure(1)], VARIANTS["grey"](figure(1)))[0] == 0.0  # black on white has the same pixels in grey
    assert find([figure(1)], VARIANTS["twice the size"](figure(1)))[0] > 0.0


def test_a_squeezed_picture_is_another_picture():
    assert find([figure(1)], figure(1).resize((160, 100))) == {}


def test_empty_pages_are_alike_only_when_their_pixels_are():
    page, other = Image.new("RGB", (50, 50), "white"), Image.new("RGB", (60, 60), "white")
    assert find([page], page) == {0: 0.0}
    assert find([page], other) == {}
    assert find([], page) == {}


def test_different_figures_are_not_taken_for_one_another():
    pictures = [figure(seed) for seed in range(40)]
    assert [list(find(pictures, picture)) for picture in pictures] == [[run_dir] for run_dir in range(40)]


def test_different_mini_pictures_are_not_taken_for_one_another():
    from atrl_bench.mini.drawing import draw
    from atrl_bench.mini.problems import KINDS, draw_problem

    random = np.random.default_rng(0)
    drawn = [draw(draw_problem(kind, "test", random)) for kind in KINDS.values() for _ in range(6)]
    prints = {picture.tobytes(): read_picture(picture) for picture in drawn}
    gallery = Gallery(list(prints.values()))
    assert len(prints) > 30
    assert [list(gallery.find(picture)) for picture in prints.values()] == [[run_dir] for run_dir in range(len(prints))]
