"""What a recipe file says: which objective, which credit, which data, which parameters move.

A file names the file it starts from (`base:`) and holds only the fields that differ. AT-RL is one changed field of any
recipe, `credit`; how large a run is comes from the profile and never from here. `method` says which kind of recipe it
is: training on `rollouts`, `supervised` training, or training on `preferences`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from atrl_bench.errors import InvalidFileError, UnknownNameError
from atrl_bench.profiles import Profile, TrainingSizes, line_of
from atrl_bench.resources import folder
from atrl_bench.training.data import TRAINING_SETS

MAX_BASES = 8  # a chain longer than this is a circle


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CreditChoice(_Settings):
    """Which rule turns a response into token weights, and its hyperparameters."""

    rule: str = Field(description="a rule of `atrl-bench list credit`; `uniform` is the plain method")
    preset: Literal["default", "literal"] = Field("default", description="the reading of the paper to start from")
    settings: dict[str, float | int | str | bool | None] = Field({}, description="fields of CreditConfig that differ")


class DynamicSampling(_Settings):
    """DAPO's dynamic sampling: problems every response solves, or none, are replaced before the update."""

    max_extra_generations: int = Field(ge=1, description="further generations per rollout, at most")
    oversampling: float = Field(ge=1, description="new problems drawn per missing one; the surplus is discarded")


class Recipe(_Settings):
    """What every training method says."""

    name: str = Field(description="how tables and the command line call it")
    title: str = Field(description="how a report prints it")
    method: Literal["rollouts", "supervised", "preferences"] = Field("rollouts", description="the kind of recipe")
    data: str = Field(description="the training set")
    start_from: str | None = Field(None, description="the recipe whose checkpoint is the base; null: the base model")
    finetuning: Literal["full", "lora"] = Field(description="lora: low-rank adapters, merged into the final checkpoint")
    lora_rank: int = Field(16, gt=0, description="rank of the adapters; alpha is twice the rank")
    overrides: dict[str, float | int | str | None] = Field({}, description="sizes that replace the profile's")

    @field_validator("data")
    @classmethod
    def _known_data(cls, value: str) -> str:
        if value not in TRAINING_SETS:
            raise ValueError(f"no training set {value!r}; known: {', '.join(TRAINING_SETS)}")
        return value

    @field_validator("overrides")
    @classmethod
    def _known_sizes(cls, value: dict[str, Any]) -> dict[str, Any]:
        unknown = sorted(set(value) - set(TrainingSizes.model_fields))
        if unknown:
            raise ValueError(f"no such size: {', '.join(unknown)}; known: {', '.join(TrainingSizes.model_fields)}")
        return value

    def sizes(self, profile: Profile) -> TrainingSizes:
        """Return the profile's training sizes with this recipe's overrides."""
        return TrainingSizes.model_validate({**profile.training.model_dump(), **self.overrides})

    def as_yaml(self) -> str:
        """Return the recipe as a file without a base."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)


class RolloutRecipe(Recipe):
    """A method that samples responses and trains on their rewards."""

    objective: Literal["grpo", "dapo", "gspo", "sapo"] = Field(
        description="grpo: clipped token ratio, mean over responses of token means; dapo: the same, mean over tokens; "
        "gspo: clipped sequence ratio; sapo: soft gate on the token ratio"
    )
    clip_low: float | None = Field(gt=0, lt=1, description="the ratio is clipped below 1 - clip_low; null for sapo")
    clip_high: float | None = Field(gt=0, description="the ratio is clipped above 1 + clip_high; null for sapo")
    sapo_temperature_positive: float | None = Field(None, gt=0, description="gate temperature where the advantage > 0")
    sapo_temperature_negative: float | None = Field(None, gt=0, description="gate temperature where it is <= 0")
    kl_coef: float = Field(ge=0, description="weight of the k3 estimate of the KL divergence to the base model")
    entropy_fraction: float | None = Field(None, gt=0, lt=1, description="train on this share of highest entropy only")
    dynamic_sampling: DynamicSampling | None = None
    overlong_cache_fraction: float | None = Field(
        None, gt=0, lt=1, description="share of the longest length over which the length punishment grows to -1"
    )
    schedule: Literal["strict", "minibatch4"] = Field(
        description="optimiser steps per rollout: strict: one; minibatch4: as many as the profile says, four"
    )
    credit: CreditChoice

    @field_validator("credit", mode="before")
    @classmethod
    def _rule_alone(cls, value: Any) -> Any:
        return {"rule": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _fields_of_the_objective(self) -> Self:
        """A field that the objective does not read would be a knob without effect."""
        clips = {"clip_low": self.clip_low, "clip_high": self.clip_high}
        gates = {
            "sapo_temperature_positive": self.sapo_temperature_positive,
            "sapo_temperature_negative": self.sapo_temperature_negative,
        }
        if self.entropy_fraction is not None and self.objective != "dapo":
            raise ValueError("entropy_fraction is a mean over the selected tokens: it needs objective 'dapo'")
        needed, unread = (gates, clips) if self.objective == "sapo" else (clips, gates)
        for name, value in needed.items():
            if value is None:
                raise ValueError(f"objective {self.objective!r} needs {name}")
        for name, value in unread.items():
            if value is not None:
                raise ValueError(f"objective {self.objective!r} does not read {name}; set it to null")
        return self

    def updates_per_rollout(self, sizes: TrainingSizes) -> int:
        """Return the number of optimiser steps after each rollout (DESIGN D6)."""
        return 1 if self.schedule == "strict" else sizes.updates_per_rollout


KINDS: dict[str, type[Recipe]] = {"rollouts": RolloutRecipe}


def list_recipes() -> list[str]:
    """Return the names of the shipped recipes."""
    return sorted(path.stem for path in folder("recipes").glob("*.yaml") if "title" in _mapping(path))


def load_recipe(name_or_path: str | Path, **overrides: Any) -> Recipe:
    """Return a recipe by its name or its file, with `overrides` (`credit="atrl"`, `schedule="strict"`) on top.

    `credit` given as a rule's name keeps the preset and settings of the file.
    """
    files = _with_bases(_find(str(name_or_path)))
    fields: dict[str, Any] = {}
    for path in reversed(files):
        fields |= {key: value for key, value in _mapping(path).items() if key != "base"}
    credit = overrides.get("credit")
    if isinstance(credit, str) and isinstance(fields.get("credit"), dict):
        overrides["credit"] = {**fields["credit"], "rule": credit}
    kind = KINDS.get(str(fields.get("method", "rollouts")), Recipe)
    unknown = sorted(set(overrides) - set(kind.model_fields))
    if unknown:
        raise UnknownNameError("recipe field", unknown[0], kind.model_fields, next_step=f"read {files[0]}")
    try:
        return kind.model_validate({**fields, **overrides})
    except ValidationError as error:
        raise _explain(error, files, overrides) from None


def _find(name: str) -> Path:
    path = Path(name)
    if path.suffix in {".yaml", ".yml"}:
        for candidate in (path, folder("recipes") / path.name):
            if candidate.is_file():
                return candidate
    elif name in list_recipes():
        return folder("recipes") / f"{name}.yaml"
    raise UnknownNameError("recipe", name, list_recipes(), next_step="atrl-bench list recipes")


def _with_bases(path: Path) -> list[Path]:
    """Return the file, its base, the base's base, and so on."""
    files = [path]
    while base := _base_of(files[-1]):
        beside = files[-1].parent / f"{base}.yaml"
        found = beside if beside.is_file() else folder("recipes") / f"{base}.yaml"
        if not found.is_file() or len(files) >= MAX_BASES:
            line = line_of(files[-1].read_text(encoding="utf-8"), ("base",))
            why = "No such recipe." if not found.is_file() else "The bases go round in a circle."
            raise InvalidFileError(
                f"{files[-1]}:{line}: field 'base': {base!r}.", why=why, next_step=f"edit {files[-1]} at line {line}"
            )
        files.append(found)
    return files


def _base_of(path: Path) -> str | None:
    base = _mapping(path).get("base")
    return base if isinstance(base, str) else None


def _mapping(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise InvalidFileError(f"{path} is not YAML.", why=str(error), next_step=f"edit {path}") from None
    if not isinstance(content, dict):
        raise InvalidFileError(f"{path} is not a YAML mapping.", next_step=f"edit {path}")
    return content


def _explain(error: ValidationError, files: list[Path], overrides: dict[str, Any]) -> InvalidFileError:
    """Return the first problem with the file and line that hold the field, or the option that set it."""
    problem = error.errors()[0]
    location = problem["loc"]
    field, message = ".".join(str(part) for part in location), problem["msg"]
    if location and location[0] in overrides:
        value = overrides[str(location[0])]
        return InvalidFileError(
            f"{location[0]}={value!r}: field {field!r}: {message}.", next_step=f"give another {location[0]}"
        )
    holder = next((path for path in files if location and location[0] in _mapping(path)), files[0])
    line = line_of(holder.read_text(encoding="utf-8"), location)
    where = f"field {field!r}: " if field else ""
    return InvalidFileError(f"{holder}:{line}: {where}{message}.", next_step=f"edit {holder} at line {line}")
