"""Equal rows look at the same things: nothing that is computed of them may differ by where they stand."""

import itertools

import pytest
import torch

from atrl_bench.credit.attention_rows import AttentionRows
from atrl_bench.credit.config import CreditConfig
from atrl_bench.credit.graph import scaled_rows
from atrl_bench.credit.rules import token_credit

NUM_PROMPT, NUM_KINDS = 48, 3
VISUAL = slice(8, 32)


def attention(num_tokens, seed, footprint):
    """Return rows of three kinds within the footprint, which differ elsewhere, and each token's kind."""
    generator = torch.Generator().manual_seed(seed)
    kind_T = torch.randint(NUM_KINDS, (num_tokens,), generator=generator)
    kinds_KP = torch.rand(NUM_KINDS, NUM_PROMPT, generator=generator) ** 4
    rows_TS = 0.3 * torch.rand(num_tokens, NUM_PROMPT + num_tokens, generator=generator)
    columns = VISUAL if footprint == "visual" else slice(NUM_PROMPT)
    rows_TS[:, columns] = kinds_KP[kind_T, columns]
    visual_S = torch.zeros(NUM_PROMPT + num_tokens, dtype=torch.bool)
    visual_S[VISUAL] = True
    return AttentionRows(rows_TS / 20, visual_S), kind_T


@pytest.mark.parametrize("num_tokens", [30, 61, 117, 255])
def test_equal_rows_have_equal_connectivity_and_equal_cosines_bit_for_bit(num_tokens):
    config = CreditConfig(footprint="visual")
    response, kind_T = attention(num_tokens, num_tokens, "visual")
    density_T = response.connectivity(config)
    cosine_TT = scaled_rows(response, config).cosine_matrix
    for kind, other in itertools.product(range(NUM_KINDS), repeat=2):
        assert len(density_T[kind_T == kind].unique()) == 1
        assert len(cosine_TT[kind_T == kind][:, kind_T == other].unique()) == 1


@pytest.mark.parametrize("footprint", ["visual", "prompt"])
def test_the_order_of_columns_which_moves_rounding_alone_breaks_no_tie_of_equal_rows(footprint):
    config = CreditConfig(footprint=footprint, exp_weight=0.0, cosine_weight=0.0)  # a bias that knows no positions
    for seed in range(0, 30, 3):
        response, _ = attention(30 + 3 * seed, seed, footprint)
        order_S = torch.arange(response.num_columns)
        order_S[VISUAL] = order_S[VISUAL].flip(0)
        turned = AttentionRows(response.rows_TS[:, order_S], response.visual_S)
        credits = [token_credit(one, "atrl", config).credit_T for one in (response, turned)]
        torch.testing.assert_close(*credits, rtol=1e-4, atol=1e-4)


def test_rows_that_differ_have_their_own_products():
    response, _ = attention(40, 0, "visual")
    rows_TS = torch.rand(40, response.num_columns, generator=torch.Generator().manual_seed(1))
    differing = AttentionRows(rows_TS, response.visual_S)
    assert len(differing.connectivity(CreditConfig()).unique()) == 40
