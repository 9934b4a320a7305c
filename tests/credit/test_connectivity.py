import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from atrl_bench.credit import CreditConfig
from atrl_bench.credit.connectivity import bias_curve, connectivity

FLAT = CreditConfig(exp_weight=0.0, cosine_weight=0.0)


def test_the_bias_curve_by_hand():
    # p = 1/2, 1. b = 1 + 0.15 e^-2 + 0 = 1.020300 and 1 + 0.15 e^-4 - 0.05 = 0.952747; mean 0.986524.
    first, last = 1 + 0.15 * math.exp(-2), 0.95 + 0.15 * math.exp(-4)
    mean = (first + last) / 2
    torch.testing.assert_close(bias_curve(2, CreditConfig()), torch.tensor([first / mean, last / mean]))
    assert first == pytest.approx(1.020300, abs=1e-6)


def test_the_papers_curve_spans_only_a_quarter_so_it_cannot_remove_a_sink():
    curve = bias_curve(4096, CreditConfig())
    assert float(curve[0]) == pytest.approx(1.157, abs=1e-3)
    assert float(curve[-1]) == pytest.approx(0.919, abs=1e-3)


@given(st.integers(1, 500), st.floats(0, 0.4), st.floats(0, 10), st.floats(-0.4, 0.4))
def test_the_bias_curve_has_mean_one(num_columns, exp_weight, exp_decay, cosine_weight):
    config = CreditConfig(exp_weight=exp_weight, exp_decay=exp_decay, cosine_weight=cosine_weight)
    assert float(bias_curve(num_columns, config).double().mean()) == pytest.approx(1.0, abs=1e-6)


def test_a_curve_that_would_flip_signs_is_refused():
    with pytest.raises(ValueError, match="not positive"):
        bias_curve(10, CreditConfig(cosine_weight=2.0))


def test_connectivity_is_the_debiased_attention_to_visual_columns():
    rows_TS = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]])
    visual_S = torch.tensor([False, True, True, False])
    torch.testing.assert_close(connectivity(rows_TS, visual_S, bias_curve(4, FLAT)), torch.tensor([0.5, 0.2]))
    # b = (1, 2, 0.5, 1): 0.2 / 2 + 0.3 / 0.5 = 0.7 and 0.1 / 2 + 0.1 / 0.5 = 0.25.
    bias_S = torch.tensor([1.0, 2.0, 0.5, 1.0])
    torch.testing.assert_close(connectivity(rows_TS, visual_S, bias_S), torch.tensor([0.7, 0.25]))


def test_the_connectivity_of_a_long_response_is_that_of_each_of_its_rows():
    rows_TS = torch.rand(300, 50, generator=torch.Generator().manual_seed(0))
    visual_S = torch.zeros(50, dtype=torch.bool)
    bias_S = bias_curve(50, CreditConfig())
    assert connectivity(rows_TS, visual_S, bias_S).tolist() == [0.0] * 300
    visual_S[[7, 9, 20]] = True
    expected = sum(rows_TS[:, column] / bias_S[column] for column in (7, 9, 20))
    torch.testing.assert_close(connectivity(rows_TS, visual_S, bias_S), expected)
