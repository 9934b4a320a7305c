"""How a run's settings differ from those of its method's authors, which are in `recipes/official.yaml`."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

from pydantic import Field, TypeAdapter

from atrl_bench.printable import flat
from atrl_bench.profiles import Profile, TrainingSizes
from atrl_bench.resources import folder
from atrl_bench.settings import Settings, read_yaml
from atrl_bench.training.arguments import num_rollouts
from atrl_bench.training.recipe import Recipe, RolloutRecipe

Value = float | int | str | None


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
    """What is known, by the names of recipes."""
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
    if isinstance(recipe, RolloutRecipe):
        settings["updates_per_rollout"] = recipe.updates_per_rollout(sizes)
    return settings


def describe_differences(recipe: Recipe, profile: Profile) -> dict[str, Any]:
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
