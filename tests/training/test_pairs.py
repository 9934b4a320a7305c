"""Preference pairs: which answers make one, how many a problem gives, and files of one's own."""

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrl_bench.errors import InvalidFileError
from atrl_bench.profiles import load_profile
from atrl_bench.training.data import load_training_data
from atrl_bench.training.describe import resolved_arguments
from atrl_bench.training.pairs import GradedAnswer, PreferencePair, given_pairs, pairs_of
from atrl_bench.training.recipe import load_recipe


def answers(row, right, wrong):
    return [GradedAnswer(row, text, True) for text in right] + [GradedAnswer(row, text, False) for text in wrong]


def test_a_right_and_a_wrong_answer_make_a_pair_and_problems_of_one_kind_make_none():
    found, without = pairs_of(
        answers(0, ["7"], ["8"]) + answers(1, ["1", "2"], []) + answers(2, [], ["5"]) + answers(3, [], ["6"]), 4, 0
    )
    assert found == [PreferencePair(0, "7", "8")]
    assert without == {"all answers right": 1, "all answers wrong": 2}


def test_equal_answers_count_once():
    found, _ = pairs_of(answers(0, ["7", "7", "7"], ["8", "8"]), 4, 0)
    assert found == [PreferencePair(0, "7", "8")]


def test_a_pair_says_which_of_its_answers_was_cut():
    found, _ = pairs_of([GradedAnswer(0, "7", True), GradedAnswer(0, "it is", False, is_cut=True)], 4, 0)
    assert found == [PreferencePair(0, "7", "it is", rejected_is_cut=True)]


def test_at_most_so_many_pairs_a_problem_are_drawn_by_seed_and_problem():
    six = answers(5, ["a", "b"], ["x", "y", "z"])
    found, _ = pairs_of(six, 4, 0)
    assert len(found) == len(set(found)) == 4
    assert pairs_of(six, 4, 0)[0] == found
    assert any(pairs_of(six, 4, seed)[0] != found for seed in range(1, 6))
    assert len(pairs_of(six, 100, 0)[0]) == 6


graded = st.builds(GradedAnswer, st.integers(0, 3), st.sampled_from("abcd"), st.booleans())


@given(st.lists(graded, max_size=24).map(lambda found: {(a.row, a.text): a for a in found}), st.integers(1, 5))
def test_every_pair_is_right_before_wrong_of_one_problem_in_whatever_order_they_came(by_text, most):
    given_answers = list(by_text.values())
    found, without = pairs_of(given_answers, most, 0)
    for pair in found:
        assert by_text[pair.row, pair.chosen].correct
        assert not by_text[pair.row, pair.rejected].correct
    problems = {answer.row for answer in given_answers}
    assert len({pair.row for pair in found}) + sum(without.values()) == len(problems)
    assert all(sum(pair.row == row for pair in found) <= most for row in problems)


@pytest.fixture
def own_file(tmp_path, data_dir):
    """Three pairs in a file, with the images of the training set."""
    (source,) = (data_dir / "geometry3k").glob("*.parquet")
    rows = pyarrow.parquet.read_table(source).to_pylist()[:3]
    table = [
        {"prompt": f"Read {place}.", "images": row["images"], "chosen": f"It is {place}.", "rejected": ""}
        for place, row in enumerate(rows)
    ]
    path = tmp_path / "mine.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table), path)
    return path


def test_a_file_of_pairs_is_data_and_its_prompts_stay_as_they_are(own_file):
    data = load_training_data(str(own_file), None)
    assert given_pairs(data) == [PreferencePair(place, f"It is {place}.", "") for place in range(3)]
    (turn,) = data.example(1, run_seed=0)["prompt"]
    assert turn["content"] == [{"type": "image"}, {"type": "text", "text": "Read 1."}]


def test_a_dry_run_counts_the_pairs_of_a_file(own_file):
    resolved = resolved_arguments(load_recipe("dpo", data=str(own_file), pairs=None), load_profile("smoke"))
    assert resolved["pairs"]["number"] == "at most 3"
    assert resolved["data"]["source"] == str(own_file)
    assert resolved["updates"]["number"] == 1


def test_a_file_that_lacks_a_column_is_named(own_file):
    pyarrow.parquet.write_table(pyarrow.parquet.read_table(own_file).drop_columns(["rejected"]), own_file)
    with pytest.raises(InvalidFileError, match="no column that is known to be the answer"):
        load_training_data(str(own_file), None)


def test_a_training_set_needs_to_know_how_pairs_are_made_and_a_file_does_not_read_it(own_file):
    with pytest.raises(InvalidFileError, match="needs `pairs`"):
        load_recipe("dpo", pairs=None)
    with pytest.raises(InvalidFileError, match="does not read it"):
        load_recipe("dpo", data=str(own_file))
