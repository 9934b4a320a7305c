"""What a run would be started with, as `train --dry-run` prints it, and how its method's authors differ.

No GPU, network or model is asked. What the authors run is in `recipes/official.yaml`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cache
from typing import Any, NamedTuple

from pydantic import Field, TypeAdapter

from atrl_bench.data.sets import GENERATED_SETS, TRAINING_SETS, find_set
from atrl_bench.models.templates import template_name
from atrl_bench.printable import flat
from atrl_bench.profiles import Profile, TrainingSizes
from atrl_bench.resources import folder
from atrl_bench.settings import Settings, read_yaml
from atrl_bench.training.arguments import (
    at_once,
    most_pairs,
    num_pair_updates,
    num_rollouts,
    overlong_cache,
    per_update,
    recomputes,
)
from atrl_bench.training.own_code import names, short
from atrl_bench.training.recipe import CreditChoice, PreferenceRecipe, Recipe, RolloutRecipe, SupervisedRecipe
from atrl_bench.training.rewards.registry import answer_reward, find_reward
from atrl_bench.training.rollout_engine import engine_spec

Value = float | int | str | None


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
        **_describe_differences(recipe, profile),
    }


def _rollouts(recipe: RolloutRecipe, profile: Profile, num_devices: int) -> dict[str, Any]:
    sizes = recipe.sizes(profile)
    rollouts = num_rollouts(recipe, profile)
    rewards: dict[str, Any] = {"accuracy": answer_reward(recipe.rewards).description}
    rewards |= {short(name): find_reward(name).description for name in names(recipe.rewards)[1:]}
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
            "group_size": sizes.group_size,
            **engine_spec(recipe, profile).get("rollouts", {}),
        },
        "rewards": rewards,
        "credit": _credit(recipe.credit),
        "updates": _updates(recipe, profile, rollouts * recipe.updates_per_rollout(sizes), num_devices),
    }


def _supervised(recipe: SupervisedRecipe, profile: Profile, num_devices: int) -> dict[str, Any]:
    sizes = recipe.sizes(profile)
    batches = num_rollouts(recipe, profile)
    return {
        "batches": {"number": batches, "examples_each": sizes.prompts_per_rollout},
        "response": {"form": recipe.response, "max_tokens": sizes.max_response_tokens},
        "updates": _updates(recipe, profile, batches, num_devices),
    }


def _preferences(recipe: PreferenceRecipe, profile: Profile, num_devices: int) -> dict[str, Any]:
    source = {} if recipe.credit.rule == "uniform" else {"from": recipe.credit_from}
    num_pairs, _ = most_pairs(recipe, profile)
    updates = num_pair_updates(recipe, profile, num_pairs)
    return {
        "pairs": {"number": f"at most {num_pairs}", "per_update": per_update(recipe, profile)},
        "credit": _credit(recipe.credit, **source),
        "updates": _updates(recipe, profile, updates, num_devices),
    }


def _updates(recipe: Recipe, profile: Profile, number: int, num_devices: int) -> dict[str, Any]:
    """The optimiser's steps: how many, on what of a device, and how large."""
    sizes, most = recipe.sizes(profile), at_once(recipe, profile, num_devices)
    each = per_update(recipe, profile) * (2 if isinstance(recipe, PreferenceRecipe) else 1)
    names = ("learning_rate", "learning_rate_schedule", "warmup_steps", "adam_beta2", "weight_decay", "max_grad_norm")
    return {
        "number": number,
        "responses_each": each,
        "responses_at_once": most,
        "micro_batches": each // num_devices // most,
        "recomputes_activations": recomputes(sizes),
        **{name: getattr(sizes, name) for name in names},
    }


def _credit(choice: CreditChoice, **source: str) -> dict[str, Any]:
    if choice.rule == "uniform":  # the credit rules import torch, which a plain recipe need not wait for
        return {"rule": choice.rule}
    from atrl_bench.training.weights.credit import credit_config

    return {"rule": choice.rule, **source, **asdict(credit_config(choice))}


METHODS: Mapping[str, Callable[[Any, Profile, int], dict[str, Any]]] = {
    "rollouts": _rollouts,
    "supervised": _supervised,
    "preferences": _preferences,
}


# The authors' settings ------------------------------------------------------------------------------------------------


class OfficialSettings(Settings):
    """What a method's authors run."""

    source: str = Field(description="where it is said")
    values: dict[str, Value] = Field(description="settings by the names they have here")
    without: dict[str, Value] = Field({}, description="settings that have no name here")


class OfficialDifference(NamedTuple):
    """One setting that is another than the authors'."""

    setting: str
    here: str
    official: str

    @property
    def text(self) -> str:
        return f"{self.setting} {self.here} (official: {self.official})"


@cache
def official_settings() -> dict[str, OfficialSettings]:
    text = (folder("recipes") / "official.yaml").read_text(encoding="utf-8")
    return TypeAdapter(dict[str, OfficialSettings]).validate_python(read_yaml(text))


def differences(recipe: Recipe, profile: Profile) -> list[OfficialDifference]:
    """Which settings of a run are other than its method's official ones.

    On generated data those of its size are left out: all of them differ there.
    """
    official = official_settings().get(recipe.name)
    if official is None:
        return []
    settings = resolved_settings(recipe, profile)
    left_out = set(TrainingSizes.model_fields) - {"updates_per_rollout"} if profile.generated_data else set()
    differing = [
        OfficialDifference(name, _text(settings[name]), _text(value))
        for name, value in official.values.items()
        if name not in left_out and not _equal(settings[name], value)
    ]
    return differing + [OfficialDifference(name, "none", _text(value)) for name, value in official.without.items()]


def resolved_settings(recipe: Recipe, profile: Profile) -> dict[str, Value]:
    """Every setting of a run by its name: sizes, and fields of the recipe such as `vppo.kept_fraction`."""
    sizes = recipe.sizes(profile)
    settings = {**sizes.model_dump(), **flat(recipe.model_dump(exclude={"overrides"}))}
    settings["num_rollouts"] = num_rollouts(recipe, profile)
    settings["template"] = "three of ours" if recipe.template is None else template_name(recipe.template)
    if isinstance(recipe, RolloutRecipe):
        settings["updates_per_rollout"] = recipe.updates_per_rollout(sizes)
    return settings


def _describe_differences(recipe: Recipe, profile: Profile) -> dict[str, Any]:
    """Where the official settings are from and how a run's differ, as `train --dry-run` prints it."""
    official = official_settings().get(recipe.name)
    if official is None:
        return {}
    differ = {name: {"here": here, "official": other} for name, here, other in differences(recipe, profile)}
    return {"official": {"source": official.source, "differs": differ or "in nothing that is known"}}


def _equal(here: Value, official: Value) -> bool:
    if isinstance(here, float | int) and isinstance(official, float | int):
        return math.isclose(here, official)
    return here == official


def _text(value: Value) -> str:
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:g}"
    return "none" if value is None else str(value)
