"""What a run would be started with, as `train --dry-run` prints it: without a GPU, a network or a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from atrl_bench.data.sets import GENERATED_SETS, TRAINING_SETS, find_set
from atrl_bench.profiles import Profile
from atrl_bench.training.arguments import (
    imitation_arguments,
    most_pairs,
    num_pair_updates,
    num_rollouts,
    pair_arguments,
    per_update,
    trl_arguments,
)
from atrl_bench.training.official import describe_differences
from atrl_bench.training.recipe import CreditChoice, PreferenceRecipe, Recipe, RolloutRecipe, SupervisedRecipe
from atrl_bench.training.rewards.accuracy import overlong_cache
from atrl_bench.training.rewards.registry import ANSWER_REWARDS
from atrl_bench.training.rollout_engine import engine_spec


def resolved_arguments(recipe: Recipe, profile: Profile, *, num_devices: int = 1) -> dict[str, Any]:
    sizes = recipe.sizes(profile)
    return {
        "recipe": recipe.model_dump(mode="json"),
        "model": {
            "base": profile.model if recipe.start_from is None else f"the checkpoint of {recipe.start_from}",
            "compute": sizes.dtype,
            "min_pixels": sizes.min_pixels,
            "max_pixels": sizes.max_pixels,
        },
        "data": {
            "name": recipe.data,
            "source": "the generated mini world"
            if profile.generated_data and recipe.data in TRAINING_SETS
            else "generated"
            if recipe.data in GENERATED_SETS
            else find_set(recipe.data).hub_id or recipe.data,
            "max_prompt_tokens": sizes.max_prompt_tokens,
        },
        **METHODS[recipe.method](recipe, profile, num_devices),
        **describe_differences(recipe, profile),
    }


def _rollouts(recipe: RolloutRecipe, profile: Profile, num_devices: int) -> dict[str, Any]:
    sizes = recipe.sizes(profile)
    rollouts = num_rollouts(recipe, profile)
    rewards: dict[str, Any] = {"accuracy": ANSWER_REWARDS[recipe.rewards].description}
    if recipe.overlong_cache_fraction is not None:
        cache = overlong_cache(sizes.max_response_tokens, recipe.overlong_cache_fraction)
        rewards["overlong"] = f"0 down to -1 over the last {cache} of {sizes.max_response_tokens} tokens"
    if recipe.format_reward:
        rewards["format"] = f"+{recipe.format_reward:g} in <think> and <answer> tags"
    if (temporal := recipe.temporal) is not None:
        shortest, longest = sizes.rewarded_lengths
        rewards["temporal"] = (
            f"+{temporal.bonus:g} if right, where the group is right at least {temporal.tolerance:g} times as often as "
            f"{temporal.num_shuffled(sizes.group_size)} responses to shuffled frames"
        )
        rewards["length"] = f"+{temporal.length_bonus:g} if right and of {shortest} to {longest} tokens"
    if recipe.step_rewards is not None:
        rewards["key_step_match"] = "the share of the problem's key steps that the chain takes, 0 to 1"
        rewards["chain_validity"] = "1 for a chain with all its sections in order, else 0"
    return {
        "rollouts": {
            "number": rollouts,
            "problems_each": sizes.prompts_per_rollout,
            **engine_spec(recipe, profile).get("rollouts", {}),
        },
        "rewards": rewards,
        "credit": _credit(recipe.credit),
        "trl": trl_arguments(recipe, profile, rollouts=rollouts, num_devices=num_devices),
    }


def _supervised(recipe: SupervisedRecipe, profile: Profile, num_devices: int) -> dict[str, Any]:
    sizes = recipe.sizes(profile)
    batches = num_rollouts(recipe, profile)
    return {
        "batches": {"number": batches, "examples_each": sizes.prompts_per_rollout},
        "response": {"form": recipe.response, "max_tokens": sizes.max_response_tokens},
        "trl": imitation_arguments(recipe, profile, batches=batches, num_devices=num_devices),
    }


def _preferences(recipe: PreferenceRecipe, profile: Profile, num_devices: int) -> dict[str, Any]:
    source = {} if recipe.credit.rule == "uniform" else {"from": recipe.credit_from}
    num_pairs, _ = most_pairs(recipe, profile)
    updates = num_pair_updates(recipe, profile, num_pairs)
    return {
        "pairs": {"number": f"at most {num_pairs}", "per_update": per_update(recipe, profile)},
        "credit": _credit(recipe.credit, **source),
        "trl": pair_arguments(recipe, profile, updates=updates, num_devices=num_devices),
    }


def _credit(choice: CreditChoice, **source: str) -> dict[str, Any]:
    """The rule and, where there is one, all its hyperparameters."""
    if choice.rule == "uniform":  # the credit rules import torch, which a plain recipe need not wait for
        return {"rule": choice.rule}
    from atrl_bench.training.weights.credit import credit_config

    return {"rule": choice.rule, **source, **asdict(credit_config(choice))}


METHODS: Mapping[str, Callable[[Any, Profile, int], dict[str, Any]]] = {
    "rollouts": _rollouts,
    "supervised": _supervised,
    "preferences": _preferences,
}
