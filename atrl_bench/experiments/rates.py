"""Learning-rate control: a row is trained at several rates, and each seed judged at the one that its others pick.

Weights on few tokens multiply their step, so that at one rate for all a rule may win as another learning rate would. A
rate is picked by the accuracy of the answers sampled in the second half of the training: it is the quantity that
training raises, taken on training problems before the update on them, and no test problem decides anything. Over the
whole training a rate wins that learns fast and ends worse; the last few rollouts are few answers.

Picked by cross-fitting: the rate of a seed is where a cubic in log rate, a rise and a steeper fall, fitted to the
other seeds is highest. No score is then high because its luck picked the rate, and t intervals over seeds hold what
they say (`benchmarks/picked_rates.py`). A rate at which a training breaks is out for its row: that is a result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from atrl_bench.profiles import Profile
from atrl_bench.results.store import Run
from atrl_bench.training.recipe import Recipe, RolloutRecipe

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PICKED_BY = "late accuracy"  # of a training run's summary
PROFILES_OWN = 1.0
NUM_CHECKS = 4  # in a run

RunsByRate = Mapping[float, Sequence[Run]]  # one a seed, in the order of the seeds
Rates = Mapping[str, Mapping[int, float]]  # by row and seed


def cross_fitted(runs: RunsByRate, seeds: Sequence[int]) -> dict[int, float]:
    """The rate of each seed; none until all are trained, and NaN, which is no job's, where each rate broke a seed."""
    done = {rate: [run for run in runs[rate] if run.state == "done" and PICKED_BY in run.summary] for rate in runs}
    if any(len(of_rate) < len(seeds) for of_rate in done.values()):
        return {}
    import numpy as np

    rates = [rate for rate in sorted(done) if not any(map(broke, done[rate]))]
    accuracy_RS = np.array([[run.summary[PICKED_BY] for run in done[rate]] for rate in rates])
    return dict(zip(seeds, picked(accuracy_RS, rates) if rates else [math.nan] * len(seeds), strict=True))


def picked(accuracy_RS: NDArray[np.float64], rates: Sequence[float]) -> list[float]:
    """For each seed the rate at which a cubic in log rate, fitted to the other seeds, is highest.

    Of equals the smallest. Up to four rates it passes through their means. One seed has no others: it picks for itself.
    """
    import numpy as np

    num_rates, num_seeds = accuracy_RS.shape
    others_RS = (accuracy_RS.sum(1, keepdims=True) - accuracy_RS) / (num_seeds - 1) if num_seeds > 1 else accuracy_RS
    powers_RK = np.vander(np.log2(rates), min(4, num_rates))
    fitted_RS = powers_RK @ np.linalg.lstsq(powers_RK, others_RS, rcond=None)[0]
    return [rates[best] for best in fitted_RS.round(9).argmax(0)]


def broke(run: Run) -> bool:
    """Whether a training ended with less than half of the accuracy that it began with."""
    return float(run.summary.get("last accuracy", 1.0)) < float(run.summary.get("first accuracy", 0.0)) / 2


def rates_of(recipe: Recipe, rates: Sequence[float]) -> Sequence[float]:
    """The rates that a recipe is trained at: the profile's own alone where nothing is sampled to pick by."""
    return rates if isinstance(recipe, RolloutRecipe) else (PROFILES_OWN,)


def at_rate(recipe: Recipe, profile: Profile, rate: float) -> Recipe:
    if rate == PROFILES_OWN:
        return recipe
    learning_rate = rate * recipe.sizes(profile).learning_rate
    return recipe.model_copy(update={"overrides": {**recipe.overrides_under(profile), "learning_rate": learning_rate}})


def with_checks(recipe: Recipe, profile: Profile) -> Recipe:
    """The recipe with checks of its policy on the way; they do not affect training or its key."""
    if not isinstance(recipe, RolloutRecipe):
        return recipe
    return recipe.model_copy(update={"overrides": {**recipe.overrides_under(profile), "checks": NUM_CHECKS}})


def rate_text(rate: float) -> str:
    return f"{rate:g}× rate"


def span_text(of_seed: Mapping[int, float]) -> str:
    """The rates that the seeds of a row are judged at, as `1–2`; "" where there are none."""
    rates = [rate for rate in of_seed.values() if not math.isnan(rate)]
    return "–".join(f"{rate:g}" for rate in sorted({min(rates), max(rates)})) if rates else ""
