import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrl_bench.mini.corpus import draw_posed
from atrl_bench.mini.digits import NUM_TRAIN_SCANS, draw_scan, scans_of
from atrl_bench.mini.drawing import draw
from atrl_bench.mini.problems import KINDS, LETTERS, draw_problem, grounded_response, numeric_options


@pytest.mark.parametrize(
    ("kind", "readings", "steps", "answer"),
    [
        ("sum", (3, 5, 8), "3+5=8, 8+8=16.", "16"),
        ("product", (7, 6), "7×6=42.", "42"),
        ("range", (4, 9, 2), "9-2=7.", "7"),
        ("extremes", (4, 9, 2), "9+2=11.", "11"),
        ("number_plus", (3, 5, 8), "35+8=43.", "43"),
        ("rectangle_perimeter", (3, 5), "3+5=8, 8+8=16.", "16"),
        ("third_angle", (3, 5), "30+50=80, 180-80=100.", "100"),
        ("mean", (3, 6), "3+6=9, 9/2=4.5.", "4.5"),
        ("quarter", (3, 6), "3+6=9, 9/4=2.25.", "2.25"),
        ("above_nine", (3, 6), "3+6=9.", "No"),
        ("ends", (4, 9, 2), "2, 9.", "[2, 9]"),
        ("largest_place", (1, 2, 9, 7, 0), "9.", "C"),
        ("smallest_place", (1, 2, 9, 7, 0), "0.", "E"),
        ("outer_sum", (1, 2, 9), "1+9=10.", "10"),
    ],
)
def test_the_steps_of_every_kind_of_problem_lead_to_its_answer(kind, readings, steps, answer):
    assert KINDS[kind].solve(readings) == (steps, answer)


def test_a_chain_reads_every_digit_in_order_before_it_computes():
    problem = draw_problem(KINDS["largest_place"], "test", np.random.default_rng(0))
    read, _, rest = grounded_response(problem).partition(". ")
    assert read.split()[3::2] == list(LETTERS)
    assert " ".join(read.split()[4::2]) == problem.transcription
    assert rest.endswith(f"The answer is \\boxed{{{problem.answer}}}.")


def test_training_and_test_scans_of_a_digit_are_disjoint_and_complete():
    train = np.concatenate([scans_of(digit, "train") for digit in range(10)])
    test = np.concatenate([scans_of(digit, "test") for digit in range(10)])
    assert sorted([*train, *test]) == list(range(1797))
    assert train.max() < NUM_TRAIN_SCANS <= test.min()


@given(seed=st.integers(0, 2**32 - 1))
def test_a_problem_shows_the_digits_its_transcription_lists(seed):
    problem = draw_problem(KINDS["sum"], "test", np.random.default_rng(seed))
    assert all(scan in scans_of(digit, "test") for scan, digit in zip(problem.scans, problem.readings, strict=True))
    assert problem.transcription.split() == [str(digit) for digit in problem.readings]


@given(seed=st.integers(0, 2**32 - 1))
def test_a_lettered_problem_has_one_right_option_and_asks_for_its_letter(seed):
    posed = draw_posed("train", np.random.default_rng(seed))
    assert len(set(posed.options)) == len(posed.options)
    if posed.options:
        assert posed.options[LETTERS.index(posed.answer)] == posed.problem.answer
    else:
        assert posed.answer == posed.problem.answer


@given(answer=st.integers(0, 81), count=st.integers(2, 5), seed=st.integers(0, 2**32 - 1))
def test_wrong_options_are_close_to_the_answer(answer, count, seed):
    options = numeric_options(str(answer), count, np.random.default_rng(seed))
    assert str(answer) in options
    assert len(set(options)) == count
    assert all(abs(int(option) - answer) <= 4 for option in options)


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_a_picture_consists_of_whole_cells_and_is_the_same_every_time(kind):
    problem = draw_problem(kind, "test", np.random.default_rng(0))
    picture = draw(problem, with_glyph=bool(kind.glyph))
    assert picture.width % 56 == picture.height % 56 == 0
    assert picture.tobytes() == draw(problem, with_glyph=bool(kind.glyph)).tobytes()


def test_every_hand_draws_a_scan_differently_into_the_same_cell():
    first, second = (draw_scan(0, np.random.default_rng(seed)) for seed in (0, 1))
    assert first.size == second.size == (56, 56)
    assert first.tobytes() != second.tobytes()
