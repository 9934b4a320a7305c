"""By how much a credit rule multiplies the batch: from the gradients of single prompts, as sums and products of them.

A step of size e along the mean gradient of B prompts under rule r gains, to second order and with equal curvature L,

    e mu_r . mu - L e^2 (|mu_r|^2 + V_r / B) / 2,      at its best e, where noise rules:   B (mu_r . mu)^2 / (2 L V_r)

with mu the expected gradient of the objective itself (uniform credit), mu_r that under the rule and V_r the variance of
one prompt's. Uniform credit has mu_r = mu, so that it needs

    efficiency_r = (mu_r . mu)^2 / V_r  :  |mu|^4 / V

times as many prompts for the same gain: above 1 a rule takes away noise, below 1 signal. Products of expectations are
taken over pairs of different prompts only, since a prompt's own noise is no signal. For the Adam-scaled efficiency each
gradient is first divided by the root of that rule's second moments, coordinate by coordinate, which come from other
prompts, as in training.

Intervals draw blocks of prompts again. A block drawn twice is not a pair of different prompts with itself.

Shapes: K blocks, R rules (the first is uniform credit).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from atrl_bench.results.statistics.means import Number

Array = NDArray[np.float64]
NUM_RESAMPLES = 2000


@dataclass(frozen=True)
class Moments:
    """Sums over the prompts of each block: all that efficiencies and their intervals are made of."""

    prompts_K: Array
    """How many prompts a block has."""
    with_uniform_KKR: Array
    """Products of one block's summed gradient under a rule with another block's under uniform credit."""
    with_itself_KKR: Array
    """Products of two blocks' summed gradients under the same rule."""
    own_with_uniform_KR: Array
    """The sum over a block's prompts of the product of their own two gradients."""
    own_squares_KR: Array
    """The sum over a block's prompts of their squared gradient."""


@dataclass(frozen=True)
class Efficiency:
    """How many times as many prompts uniform credit would need, and the ends of its 95 % interval."""

    factor: Number
    low: Number
    high: Number

    @property
    def upper(self) -> float:
        """The upper end, also of a stored one: JSON has no word for infinity."""
        return math.inf if math.isnan(self.high) else self.high

    @property
    def text(self) -> str:
        return f"{self.factor:.2f} [{self.low:.2f}, {self.upper:.2f}]".replace("inf", "∞").replace("nan", "–")


def efficiencies(moments: Moments, num_resamples: int = NUM_RESAMPLES) -> list[Efficiency]:
    """The efficiency of each rule; NaN where the batch's own signal is not clearly positive."""
    rng = np.random.default_rng(0)
    num_blocks = len(moments.prompts_K)
    factors_R = factors(moments, np.ones(num_blocks))
    draws = rng.multinomial(num_blocks, np.full(num_blocks, 1 / num_blocks), size=num_resamples)
    replicates_NR = np.array([factors(moments, draw.astype(float)) for draw in draws])
    # Where a resample has no signal at all, the factor could be anything.
    low_R = np.quantile(np.nan_to_num(replicates_NR, nan=0.0), 0.025, axis=0, method="nearest")
    high_R = np.quantile(np.nan_to_num(replicates_NR, nan=np.inf), 0.975, axis=0, method="nearest")
    return [Efficiency(*map(float, row)) for row in zip(factors_R, low_R, high_R, strict=True)]


def factors(moments: Moments, weight_K: Array) -> Array:
    """Each rule's factor when block k counts weight_K[k] times; NaN without signal."""
    signal_R = _between_prompts(moments.with_uniform_KKR, moments.own_with_uniform_KR, moments.prompts_K, weight_K)
    square_R = _between_prompts(moments.with_itself_KKR, moments.own_squares_KR, moments.prompts_K, weight_K)
    noise_R = weight_K @ moments.own_squares_KR / (weight_K @ moments.prompts_K) - square_R
    if signal_R[0] <= 0 or (noise_R <= 0).any():
        return np.full(len(signal_R), np.nan)
    # A rule whose expected gradient points away from the objective's is worth nothing.
    value_R = np.maximum(signal_R, 0) ** 2 / noise_R
    return value_R / value_R[0]


def _between_prompts(products_KKR: Array, own_KR: Array, prompts_K: Array, weight_K: Array) -> Array:
    """The mean product over pairs of different prompts."""
    between_KK = np.outer(weight_K, weight_K)
    np.fill_diagonal(between_KK, 0)
    within_KR = np.einsum("kkr->kr", products_KKR) - own_KR
    num_pairs = prompts_K @ between_KK @ prompts_K + weight_K @ (prompts_K * (prompts_K - 1))
    total_R = np.einsum("kl,klr->r", between_KK, products_KKR) + weight_K @ within_KR
    return total_R / num_pairs if num_pairs else np.full(products_KKR.shape[2], np.nan)
