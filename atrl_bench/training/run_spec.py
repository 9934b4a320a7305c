"""Everything that can change the weights of a training, and so names it: known without what trains."""

from __future__ import annotations

from typing import Any

from atrl_bench.data.own import is_own, short
from atrl_bench.plugins import code_of
from atrl_bench.profiles import Profile
from atrl_bench.training import own_code
from atrl_bench.training.recipe import Recipe, RolloutRecipe
from atrl_bench.training.rewards.registry import own_rewards, short_names
from atrl_bench.training.rollout_engine import engine_spec

# Part of every run's key: raise it when the same recipe would give other weights.
TRAINING_VERSION = 2
OF_RUN = "run:"  # before the key of the training that a second stage starts from, in place of a digest
OF_FILES = ("_digest", "_code")  # how the names of `contents_of` end
# Of trainings on pairs that are sampled: an answer that was cut is not taught to end. And of those on data of the
# user's own: the letter of an option that the row names by its text, and each of several answers, is right.
YOUNGER_VERSION = 3
YOUNGER = ("losses", "advantages", "freeze", "lora_targets", "template", "system")
CHANGES_NOTHING = ("checks", "save_every_rollouts", "measures_looking")  # sizes that no weight depends on


def run_spec(
    recipe: Recipe,
    profile: Profile,
    base_digest: str,
    data_digest: str,
    seed: int,
    recorded_vllm: str | None = None,
) -> dict[str, Any]:
    """Everything that can change the weights of a run; the hash of it names the run.

    `recorded_vllm`: the version that made the numbers of the run folder, for a machine without vLLM.
    """
    return {
        "kind": "training",
        "version": YOUNGER_VERSION if getattr(recipe, "pairs", None) or is_own(recipe.data) else TRAINING_VERSION,
        "recipe": recipe_fields(recipe),
        # A size that has a default is younger than stored runs, whose keys do not have it.
        "sizes": recipe.sizes(profile).model_dump(mode="json", exclude_defaults=True, exclude=set(CHANGES_NOTHING)),
        "profile": profile.name,
        "seed": seed,
        **engine_spec(recipe, profile, recorded_vllm),
        **contents_of(recipe, base_digest, data_digest),
    }


def recipe_fields(recipe: Recipe) -> dict[str, Any]:
    """What a key says of it: without what changes nothing, and without places."""
    described = type(recipe).model_fields
    # A field that has a default and is younger than stored runs is in no key that does not use it.
    unused = {name for name in YOUNGER if name in described and getattr(recipe, name) == described[name].default}
    fields = recipe.model_dump(mode="json", exclude={"name", "title", "overrides"} | unused)
    # What is the user's own is named by its contents, wherever it lies.
    own: dict[str, Any] = {"data": short(recipe.data)} if is_own(recipe.data) else {}
    if isinstance(recipe, RolloutRecipe):
        own["rewards"] = short_names(recipe.rewards)
    for name in fields.keys() & {"losses", "advantages"}:
        own[name] = {own_code.short(code): settings for code, settings in fields[name].items()}
    return fields | own


def contents_of(recipe: Recipe, base_digest: str, data_digest: str) -> dict[str, str]:
    """What a key says of files, which change when their owners like: model, data, and code that is not shipped."""
    # Our own rules change with TRAINING_VERSION.
    credit_code = code_of("rules", recipe.credit.rule) if hasattr(recipe, "credit") else None
    credit = {} if credit_code is None else {"credit_code": credit_code}
    return {"base_digest": base_digest, "data_digest": data_digest, **credit, **own_code_of(recipe)}


def own_code_of(recipe: Recipe) -> dict[str, str]:
    """The hashes of the code that is the user's own."""
    if not isinstance(recipe, RolloutRecipe):
        return {}
    codes = {
        "reward_code": own_code.digest("rewards", own_rewards(recipe.rewards)),
        "losses_code": own_code.digest("losses", recipe.losses),
        "advantages_code": own_code.digest("advantages", recipe.advantages),
    }
    return {name: code for name, code in codes.items() if code is not None}
