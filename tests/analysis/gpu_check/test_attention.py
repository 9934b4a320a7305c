"""Recorded rows agree with slower ways to the same numbers, and a row that is off by one token would not."""

import pytest

from atrl_bench.analysis.gpu_check import attention
from atrl_bench.analysis.gpu_check.attention import FLASH, RowChecks
from atrl_bench.analysis.gpu_check.bench import UNFINISHED, Bench
from atrl_bench.analysis.gpu_check.checks import SkipCheckError
from atrl_bench.analysis.gpu_check.sizes import SIZES


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return Bench(SIZES["tiny"], tmp_path_factory.mktemp("bench"))


def test_the_batch_is_padded_on_both_sides_and_shows_images(bench):
    inputs = bench.sequences(2)
    mask_BS = inputs["attention_mask"].bool()
    assert mask_BS[0].all()  # the longest question
    assert not mask_BS[1, 0]
    assert not mask_BS[1, -UNFINISHED:].any()
    assert (inputs["mm_token_type_ids"] == 1).sum(1).tolist() == [16, 16]  # the visual tokens of the tiny size


def test_rows_of_every_implementation_are_those_of_eager_attention(bench):
    rows = RowChecks(bench)
    for implementation in ("eager", "sdpa"):
        measured = rows.against_eager(implementation)
        assert measured.value <= measured.limit <= 1e-5
    with pytest.raises(SkipCheckError, match="no GPU"):
        rows.against_eager(FLASH)
    assert bench.model.config.text_config._attn_implementation == "sdpa"


def test_rows_of_the_neighbouring_token_are_far_beyond_the_limit(bench, monkeypatch):
    def own_rows(bench, capture, inputs):
        with attention.torch.no_grad(), capture.record(bench.size.shape.response_tokens) as recording:
            bench.model(**inputs, use_cache=False)
        return recording.rows("own")

    monkeypatch.setattr(attention, "_record", own_rows)
    measured = RowChecks(bench).against_eager("sdpa")
    assert measured.value > 100 * measured.limit


def test_a_model_that_cannot_tell_neighbouring_tokens_apart_lowers_the_limit(bench, monkeypatch):
    monkeypatch.setattr(attention, "ROW_LIMITS", {bench.dtype: 1.0})
    measured = RowChecks(bench).against_eager("sdpa")
    assert measured.limit == pytest.approx(0.4 * measured.details["distance_of_neighbouring_tokens"])
    assert 0 < measured.limit < 0.05


def test_rows_and_credit_agree_with_double_precision(bench):
    rows = RowChecks(bench)
    assert rows.against_double().value < 1e-6
    credit = rows.credit()
    assert credit.value <= credit.limit
    assert credit.details["least_spread_of_the_credit"] > 0.01  # not all of it is one
    assert credit.details["with_other_clusters"] < credit.details["responses"]
