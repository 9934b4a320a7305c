"""Efficiencies of gradients whose signal and noise are known."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from atrl_bench.errors import InvalidFileError
from atrl_bench.lab.signal.block_sums import sketched
from atrl_bench.lab.signal.efficiency import Moments, efficiencies, factors
from atrl_bench.lab.signal.gradients import PromptGradients
from atrl_bench.lab.signal.measure import BlockSums, measure

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


def test_a_rule_that_takes_away_four_fifths_of_the_noise_has_an_efficiency_of_five():
    rng = np.random.default_rng(0)
    measured = [efficiencies(moments(drawn(rng)), num_resamples=200) for _ in range(40)]
    assert np.median([quiet.factor for _, quiet, _ in measured]) == pytest.approx(5, rel=0.15)
    assert sum(quiet.low <= 5 <= quiet.high for _, quiet, _ in measured) >= 36
    assert all(one.factor == one.low == one.high == 1 for one, _, _ in measured)


def test_a_rule_that_keeps_the_noise_alone_has_none():
    _, _, noise = efficiencies(moments(drawn(np.random.default_rng(1))), num_resamples=200)
    assert noise.factor < 0.1
    assert noise.high < 1


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
    for one in efficiencies(moments(noise), num_resamples=200):
        assert np.isnan(one.factor) or one.low <= 1 <= one.high


def test_sketches_keep_the_products_of_gradients():
    rng = np.random.default_rng(4)
    gradients_ND = torch.from_numpy(rng.normal(size=(8, 50_000))).float()
    gradients_ND = gradients_ND + gradients_ND[:1]  # so that some products are large
    products = gradients_ND @ gradients_ND.T
    size = 4096
    sketches = torch.stack([sketched(gradient_D, size) for gradient_D in gradients_ND])
    lengths = products.diagonal().sqrt()
    error = (sketches @ sketches.T - products) / torch.outer(lengths, lengths)
    assert error.abs().max() < 4 * (2 / size) ** 0.5
    assert 0.3 * (1 / size) ** 0.5 < error.std() < 1.5 * (2 / size) ** 0.5, "it is an estimate, and no better"
    # Shorter than a sketch there is nothing to fall together, and products are exact.
    short = gradients_ND[:, :3000]
    torch.testing.assert_close(
        torch.stack([sketched(one, size) for one in short]) @ sketched(short[0], size), short @ short[0]
    )


def test_efficiencies_from_sketches_are_those_of_whole_sums():
    gradients_RPD = torch.from_numpy(drawn(np.random.default_rng(5))).float()
    scale_RD = 1 + torch.rand(gradients_RPD.shape[0], NUM_PARAMETERS, generator=torch.Generator().manual_seed(0))
    found = {}
    for exact in (NUM_PARAMETERS, 0):
        sums = BlockSums(scale_RD, NUM_BLOCKS, num_directions=2, exact=exact)
        for block in range(NUM_BLOCKS):
            sums.add([gradients_RPD[:, block * PER_BLOCK + p] for p in range(PER_BLOCK)])
        found[exact] = [efficiencies(sums.moments(scaled=scaled), num_resamples=200) for scaled in (False, True)]
        mean_RD = gradients_RPD[:, : 8 * PER_BLOCK].mean(1)  # the first of two parts has eight of the blocks
        torch.testing.assert_close(next(sums.directions()), mean_RD * scale_RD * (8 * PER_BLOCK) ** 0.5)
    for whole, sketch in zip(found[NUM_PARAMETERS], found[0], strict=True):
        for one, other in zip(whole, sketch, strict=True):
            assert other.factor == pytest.approx(one.factor, rel=1e-3)  # 2,000 numbers fit into a sketch


@pytest.mark.parametrize(
    ("num_problems", "num_held_out", "said"),
    [
        (18, 0, "--prompts 18"),  # twice as many
        (18, 4, "--prompts 14"),  # all but those held out
        (11, 2, "more problems than this set has: --data"),
    ],
)
def test_problems_that_all_fail_scale_nothing_and_say_how_many_more_there_are(num_problems, num_held_out, said):
    nothing = PromptGradients(None, 0.0, [math.nan], [math.nan], [math.nan])
    trainer = SimpleNamespace(data=SimpleNamespace(problems=range(num_problems)))
    meter = SimpleNamespace(rules=["uniform"], num_parameters=3, of_prompt=lambda row: nothing, trainer=trainer)
    with pytest.raises(InvalidFileError, match=rf"first 3 problems leave no gradient(.|\n)*0% of their(.|\n)*{said}"):
        measure(meter, range(9), held_out=range(9, 9 + num_held_out))
