"""How many of what a run has, by its recipe and profile. Pure arithmetic: nothing heavy is imported."""

from __future__ import annotations

import math

from atrl_bench.data.sets import find_set
from atrl_bench.errors import InvalidFileError
from atrl_bench.profiles import Profile, TrainingSizes
from atrl_bench.training.own_code import names
from atrl_bench.training.recipe import PreferenceRecipe, Recipe, RolloutRecipe
from atrl_bench.training.rewards.registry import answer_reward

SAMPLER_GB = 15.0  # for the keys and values of the responses sampled at once: 42 of the 7B model at the paper's limits
# Beyond this many tokens a sequence's activations are worth recomputing instead of keeping.
CHECKPOINTING_TOKENS = 1024


def num_rollouts(recipe: Recipe, profile: Profile, num_problems: int | None = None) -> int:
    """How many rollouts, or batches, the run has; `num_problems` is the set's described size if not given."""
    sizes = recipe.sizes(profile)
    if sizes.num_rollouts is not None:
        return sizes.num_rollouts
    rows = find_set(recipe.data).num_rows if num_problems is None else num_problems
    return max(1, int(rows * sizes.num_epochs) // sizes.prompts_per_rollout)


def most_pairs(recipe: PreferenceRecipe, profile: Profile) -> tuple[int, int]:
    """How many pairs there could be at most, and how many responses are sampled for them."""
    rows = find_set(recipe.data).num_rows
    if recipe.pairs is None:
        return rows, 0
    sizes = recipe.sizes(profile)
    problems = min(num_rollouts(recipe, profile) * sizes.prompts_per_rollout, rows)
    return problems * recipe.pairs.max_pairs_per_problem, problems * sizes.group_size


def num_pair_updates(recipe: PreferenceRecipe, profile: Profile, num_pairs: int) -> int:
    """How many updates the passes over the pairs take; the last one is filled from the next pass."""
    return math.ceil(recipe.num_epochs * num_pairs / per_update(recipe, profile))


def reward_weights(recipe: RolloutRecipe) -> list[float] | None:
    """What each reward counts, in the order in which `rollouts.build` makes them; None: each counts one.

    With rewards for steps a right answer counts 1.
    """
    if (step_rewards := recipe.step_rewards) is None:
        return None
    # From -1 to +1 is two; whatever is punished on that scale is halved with it.
    right = 1 / (1 - answer_reward(recipe.rewards).lowest)
    usual = [right] * (1 if recipe.overlong_cache_fraction is None else 2) + [1.0] * (len(names(recipe.rewards)) - 1)
    others = [1.0] * (bool(recipe.format_reward) + 2 * (recipe.temporal is not None))
    return [*usual, *others, step_rewards.key_steps, step_rewards.validity]


def overlong_cache(max_response_tokens: int, cache_fraction: float) -> int:
    """The length of the stretch before the limit over which the punishment grows, in tokens."""
    return max(1, int(cache_fraction * max_response_tokens))


def recomputes(sizes: TrainingSizes) -> bool:
    """Whether a backward pass computes activations once more instead of keeping them."""
    return sizes.max_prompt_tokens + sizes.max_response_tokens > CHECKPOINTING_TOKENS


def per_update(recipe: Recipe, profile: Profile) -> int:
    """How many completions, examples or pairs one optimiser step takes, on all devices together.

    Pairs are those of as many responses as an update on rollouts.
    """
    sizes = recipe.sizes(profile)
    if isinstance(recipe, RolloutRecipe):
        return _divide(sizes.prompts_per_rollout * sizes.group_size, recipe.updates_per_rollout(sizes), "updates")
    if isinstance(recipe, PreferenceRecipe):
        responses = sizes.prompts_per_rollout * sizes.group_size
        return _divide(responses, 2 * sizes.updates_per_rollout, "pairs of updates")
    return sizes.prompts_per_rollout


def most_devices(recipe: Recipe, profile: Profile, available: int, machines: int = 1) -> int:
    """On how many of these devices, as many of each machine, a run can be spread evenly; one of each at least."""
    of_a_machine = _divide(per_update(recipe, profile), machines, "machines")
    return machines * _largest_divisor(of_a_machine, available // machines)


def at_once(recipe: Recipe, profile: Profile, num_devices: int) -> int:
    """How many responses a device takes at once: of a pair both."""
    completions = 2 if isinstance(recipe, PreferenceRecipe) else 1
    most = max(1, recipe.sizes(profile).completions_per_device // completions)
    return completions * _largest_divisor(_divide(per_update(recipe, profile), num_devices, "devices"), most)


def _largest_divisor(total: int, most: int) -> int:
    return next(count for count in range(min(total, most), 0, -1) if total % count == 0)


def _divide(total: int, parts: int, name: str) -> int:
    if total % parts:
        raise InvalidFileError(
            f"{total} cannot be divided by {parts} {name}.",
            why="A rollout is split evenly over optimiser steps, and each of those over devices.",
            next_step="change prompts_per_rollout, group_size, updates_per_rollout or the number of devices",
        )
    return total // parts
