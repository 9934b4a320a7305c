import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from atrl_bench.credit import anchor_auc, transcribed_tokens


def marked(tokens, transcription):
    return [t for t, is_anchor in enumerate(transcribed_tokens(tokens, transcription)) if is_anchor]


def test_auc_by_hand_with_a_tie():
    # Anchors 3 and 1, others 2 and 1: 3>2, 3>1, 1<2, 1=1: (1 + 1 + 0 + 1/2) / 4.
    score = torch.tensor([3.0, 2.0, 1.0, 1.0])
    assert anchor_auc(score, torch.tensor([True, False, True, False])) == pytest.approx(0.625)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=30))
def test_auc_equals_counting_all_pairs_and_the_reverse_score_its_complement(pairs):
    score, is_anchor = torch.tensor([float(s) for s, _ in pairs]), torch.tensor([a for _, a in pairs])
    wins = [
        (s > o) + 0.5 * (s == o)
        for s, a in zip(score, is_anchor, strict=True)
        if a
        for o, b in zip(score, is_anchor, strict=True)
        if not b
    ]
    if not wins:
        assert math.isnan(anchor_auc(score, is_anchor))
        return
    expected = float(torch.tensor(wins, dtype=torch.float64).mean())
    assert anchor_auc(score, is_anchor) == pytest.approx(expected)
    assert anchor_auc(-score, is_anchor) == pytest.approx(1 - expected)


def test_the_first_listing_of_the_digits_is_the_transcription():
    tokens = re.findall(r"\d| ?[Ia-z+=\\]+| |[.{}]", "I see 3 7. 3 + 7 = 10. \\boxed{10}")
    assert marked(tokens, "3 7") == [3, 5]


def test_a_number_after_an_equals_sign_was_not_read_from_the_image():
    tokens = ["1", "+", "2", "=", "3", ",", "3", "+", "3", "=", "6"]
    # The first 3 is the sum; the image's 3 comes after it, and the listing 1, 2, 3 is otherwise in order.
    assert marked(tokens, "1 2 3") == [0, 2, 6]
    assert marked(["2", "+", "2", "=", " -", "1", "3", ",", "1", "3"], "1 3") == [8, 9]


def test_digits_in_the_box_do_not_count():
    assert marked(["The", " answer", " is", " \\boxed{", "7", "}"], "7") == []
    assert marked(["\\", "boxed", "{", "7", "}", "7"], "7") == []


def test_a_response_that_does_not_list_all_digits_has_no_such_token():
    assert marked(["3", " and", " 7"], "3 7 2") == []
    assert marked(["7", ",", "3"], "3 7") == []
    assert marked(["no", " digits"], "3") == []
    assert marked(["3"], "") == []


def test_a_misread_digit_is_not_made_up_for_by_a_later_sum():
    # 4 7 2 was read where the image has 4 7 1; the 1 of the operand 11 must not complete a listing.
    tokens = ["4", " ", "7", " ", "2", ".", "4", "+", "7", "=", "1", "1", ",", "1", "1", "+", "2", "=", "1", "3"]
    assert marked(tokens, "4 7 1") == []
    assert marked(tokens, "4 7 2") == [0, 2, 4]


def test_a_token_of_several_digits_is_marked_once_and_whole():
    assert marked(["it reads ", "372", "."], "3 7 2") == [1]
    assert marked(["x=", "372", " 372"], "3 7 2") == [2]
