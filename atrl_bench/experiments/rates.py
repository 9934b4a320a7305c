"""Learning-rate control: each row of a table trained at several rates, and compared at the one that suits it.

Weights on few tokens multiply their step, so that at one rate for all a rule may win as another learning rate would. A
row's rate is picked by the accuracy of the answers sampled in the second half of the training, mean over seeds: it is
the quantity that training raises, taken on training problems before the update on them, and no test problem decides
anything. Over the whole training a rate wins that learns fast and ends worse; the last few rollouts are few answers. Of
equal rates the smallest is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from atrl_bench.profiles import Profile
from atrl_bench.results.store import Run
from atrl_bench.training.recipe import Recipe, RolloutRecipe

PICKED_BY = "late accuracy"  # of a training run's summary
PROFILES_OWN = 1.0
NUM_CHECKS = 4  # in a run

RunsByRate = Mapping[float, Sequence[Run]]


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


def best_rate(runs: RunsByRate, num_seeds: int) -> float | None:
    """The rate with the highest accuracy late in training; None until every seed of every rate is trained."""
    accuracies = {rate: training_accuracy(of_rate, num_seeds) for rate, of_rate in sorted(runs.items())}
    if not accuracies or None in accuracies.values():
        return None
    return max(accuracies, key=lambda rate: accuracies[rate] or 0.0)


def training_accuracy(runs: Sequence[Run], num_seeds: int) -> float | None:
    """The mean over seeds of what picks a rate; None until every seed is trained."""
    values = [run.summary[PICKED_BY] for run in runs if run.state == "done" and PICKED_BY in run.summary]
    return sum(values) / len(values) if len(values) >= num_seeds else None


def rate_text(rate: float) -> str:
    return f"{rate:g}× rate"
