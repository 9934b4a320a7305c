"""Which engine samples the responses that a training learns from, and what names it in the training's key.

Whether this machine has it is known without loading it.
"""

from __future__ import annotations

import importlib.metadata
from typing import Any

from packaging.specifiers import SpecifierSet

from atrl_bench.errors import InvalidFileError, MissingDataError
from atrl_bench.profiles import Profile, Rollouts
from atrl_bench.training.recipe import Recipe, RolloutRecipe

OLDEST_VLLM, NEWEST_VLLM = "0.22", "0.30"  # as in pyproject.toml; TRL supports 0.31, which takes no transformers 5.18
VERL_VERSION = "0.9.1"  # that its configurations are written for, in an environment of its own
SUPPORTED_VLLM = SpecifierSet(f">={OLDEST_VLLM},<={NEWEST_VLLM}")
INSTALL = "pip install 'atrl-bench[vllm]', or leave --rollouts out"
DEFAULT_CORRECTION = Rollouts.model_fields["correction"].default


def installed_vllm() -> str | None:
    try:
        return importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        return None


def usual_sampler(profile: Profile) -> str:
    """What samples where nobody says: vLLM, if it is installed and the model needs GPUs."""
    version = installed_vllm()
    return "vllm" if not profile.generated_data and version is not None and version in SUPPORTED_VLLM else "local"


def uses_vllm(recipe: Recipe, profile: Profile) -> bool:
    """Whether vLLM samples for this recipe; what has no rollouts never asks for it."""
    return isinstance(recipe, RolloutRecipe) and profile.rollouts.engine == "vllm"


def uses_verl(recipe: Recipe, profile: Profile) -> bool:
    """Whether verl samples and trains this recipe; what has no rollouts is trained here in any case."""
    return isinstance(recipe, RolloutRecipe) and profile.rollouts.engine == "verl"


def engine_spec(recipe: Recipe, profile: Profile, recorded_version: str | None = None) -> dict[str, Any]:
    """What a training's key says of the engine: nothing where transformers samples.

    `recorded_version` is the one that made the run folder's numbers; it counts where vLLM is not installed, so that a
    report can be written on another machine.
    """
    if uses_verl(recipe, profile):
        return {"engine": {"name": "verl", "version": VERL_VERSION}}
    if not uses_vllm(recipe, profile):
        return {}
    return {
        "rollouts": {
            "engine": "vllm",
            "version": installed_vllm() or recorded_version or "not installed",
            "on_server": profile.rollouts.server is not None,
            "dtype": recipe.sizes(profile).dtype,
            **({} if (chosen := profile.rollouts.correction) == DEFAULT_CORRECTION else {"correction": chosen}),
        }
    }


def require_sampler(recipe: Recipe, profile: Profile, *, has_videos: bool = False) -> None:
    """Raise if vLLM is to sample and cannot; `has_videos` is known once the data was read."""
    if not uses_vllm(recipe, profile):
        return
    version, sizes = installed_vllm(), recipe.sizes(profile)
    if version is None:
        raise MissingDataError(
            "vLLM is to sample the rollouts, and it is not installed.",
            why=f"This environment has no package vllm, of {OLDEST_VLLM} to {NEWEST_VLLM}.",
            next_step=INSTALL,
        )
    if version not in SUPPORTED_VLLM:
        raise MissingDataError(
            f"vLLM {version} cannot sample the rollouts.",
            why=f"TRL and transformers take {OLDEST_VLLM} to {NEWEST_VLLM}; others may answer wrongly.",
            next_step=INSTALL,
        )
    if sizes.top_p < 1 and (sizes.temperature != 1 or profile.rollouts.server is not None):
        raise InvalidFileError(
            f"vLLM cannot sample with top_p {sizes.top_p:g} here.",
            why="It tells log-probabilities of the nucleus then; the trainer scores the whole distribution. Of that "
            "vLLM tells them only at temperature 1 and in the training's own processes.",
            next_step="set top_p or temperature to 1, or leave --rollouts out",
        )
    if has_videos and profile.rollouts.server is not None:
        raise InvalidFileError(
            f"A vLLM server cannot sample for {recipe.data}, which has videos.",
            why="TRL sends a server images alone.",
            next_step="--rollouts vllm, which samples in the training's own processes",
        )
