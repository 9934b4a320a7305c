"""Worths of gradients whose signal and noise are known."""

from __future__ import annotations

import numpy as np
import pytest

from atrl_bench.analysis.signal.worth import Moments, factors, worths

NUM_BLOCKS, PER_BLOCK, NUM_PARAMETERS = 16, 4, 2000
QUIET = 400  # the first parameters, which have all of the signal and a fifth of the noise


def moments(gradients_RPD: np.ndarray) -> Moments:
    blocks_RKPD = gradients_RPD.reshape(len(gradients_RPD), NUM_BLOCKS, PER_BLOCK, -1)
    sums_RKD = blocks_RKPD.sum(2)
    return Moments(
        np.full(NUM_BLOCKS, float(PER_BLOCK)),
        np.einsum("rkd,ld->klr", sums_RKD, sums_RKD[0]),
        np.einsum("rkd,rld->klr", sums_RKD, sums_RKD),
        np.einsum("rkpd,kpd->kr", blocks_RKPD, blocks_RKPD[0]),
        np.einsum("rkpd,rkpd->kr", blocks_RKPD, blocks_RKPD),
    )


def drawn(rng: np.random.Generator) -> np.ndarray:
    """Prompts' gradients under three rules: uniform, only the parameters with the signal, only those without."""
    signal_D = np.where(np.arange(NUM_PARAMETERS) < 50, 0.35, 0.0)
    uniform_PD = signal_D + rng.normal(size=(NUM_BLOCKS * PER_BLOCK, NUM_PARAMETERS))
    with_signal_D = np.arange(NUM_PARAMETERS) < QUIET
    return np.stack([uniform_PD, uniform_PD * with_signal_D, uniform_PD * ~with_signal_D])


def test_a_rule_that_takes_away_four_fifths_of_the_noise_is_worth_five_batches():
    rng = np.random.default_rng(0)
    measured = [worths(moments(drawn(rng)), num_resamples=200) for _ in range(40)]
    assert np.median([quiet.factor for _, quiet, _ in measured]) == pytest.approx(5, rel=0.15)
    assert sum(quiet.low <= 5 <= quiet.high for _, quiet, _ in measured) >= 36
    assert all(one.factor == one.low == one.high == 1 for one, _, _ in measured)


def test_a_rule_that_keeps_the_noise_alone_is_worth_nothing():
    _, _, noise = worths(moments(drawn(np.random.default_rng(1))), num_resamples=200)
    assert noise.factor < 0.1
    assert noise.high < 1
    assert noise.excludes_one


def test_how_long_a_rules_gradients_are_is_irrelevant():
    gradients_RPD = drawn(np.random.default_rng(2))
    longer = np.stack([gradients_RPD[0], 7 * gradients_RPD[0], gradients_RPD[1]])
    assert factors(moments(longer), np.ones(NUM_BLOCKS))[1] == pytest.approx(1)


def test_products_are_of_different_prompts():
    # Two blocks of one prompt: g = 1 and 3 under both rules. mu . mu is 1 * 3, the mean square (1 + 9) / 2, V = 5 - 3.
    of_two = Moments(
        np.ones(2),
        np.array([[[1.0], [3.0]], [[3.0], [9.0]]]),
        np.array([[[1.0], [3.0]], [[3.0], [9.0]]]),
        np.array([[1.0], [9.0]]),
        np.array([[1.0], [9.0]]),
    )
    assert factors(of_two, np.ones(2)) == pytest.approx([1.0])
    # The same prompt twice is no pair of prompts, so that there is nothing to say.
    assert np.isnan(factors(of_two, np.array([2.0, 0.0]))).all()


def test_without_any_signal_nothing_is_claimed():
    rng = np.random.default_rng(3)
    noise = rng.normal(size=(2, NUM_BLOCKS * PER_BLOCK, 50))
    for one in worths(moments(noise), num_resamples=200):
        assert np.isnan(one.factor) or not one.excludes_one
