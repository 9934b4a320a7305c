"""Which engine samples the responses that a training learns from, and what names it in the training's key.

Whether this machine has it is known without loading it.
"""

from __future__ import annotations

import importlib.metadata
import math
from typing import Any

from atrl_bench.engines.devices import GPUS_PER_NODE
from atrl_bench.errors import InvalidFileError, MissingDataError
from atrl_bench.profiles import Profile, Rollouts
from atrl_bench.training.recipe import Recipe, RolloutRecipe

OLDEST_VLLM, NEWEST_VLLM = "0.22", "0.30"  # as in pyproject.toml; TRL supports 0.31, which takes no transformers 5.18
VERL_VERSION = "0.9.1"  # that its configurations are written for, in an environment of its own
SUPPORTED_VLLM = f">={OLDEST_VLLM},<={NEWEST_VLLM}"
LOCAL = "--rollouts local"
INSTEAD = f"{LOCAL} (of mismatch: --engine local)"  # what a run folder or a verb chose before gives way
INSTALL = f"pip install 'atrl-bench[vllm]', or {INSTEAD}"
WEIGHTS_SHARE = 0.75  # of an engine's memory, for weights; the rest for keys, values and what a step computes
DEFAULT_CORRECTION = Rollouts.model_fields["correction"].default


def installed_vllm() -> str | None:
    try:
        return importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        return None


def _is_supported(version: str) -> bool:
    from packaging.specifiers import SpecifierSet  # which most have no use for, and takes long to load

    return version in SpecifierSet(SUPPORTED_VLLM)


def usual_sampler(profile: Profile) -> str:
    """What samples where nobody says: vLLM, if it is installed and the model needs GPUs."""
    version = installed_vllm()
    return "vllm" if not profile.generated_data and version is not None and _is_supported(version) else "local"


def uses_vllm(recipe: Recipe, profile: Profile) -> bool:
    """Whether vLLM samples for this recipe; what has no rollouts never asks for it."""
    return isinstance(recipe, RolloutRecipe) and profile.rollouts.engine == "vllm"


def uses_verl(recipe: Recipe, profile: Profile) -> bool:
    """Whether verl samples and trains this recipe; what has no rollouts is trained here in any case."""
    return isinstance(recipe, RolloutRecipe) and profile.rollouts.engine == "verl"


def devices_of_an_engine(settings: Rollouts, num_weights: float, device_gb: float) -> int:
    """How many devices share an engine of vLLM inside a training: as many as asked for, or the fewest that hold it."""
    if settings.server:
        return 1
    room_gb = WEIGHTS_SHARE * settings.gpu_memory_fraction * device_gb
    return settings.tensor_parallel or devices_that_hold(num_weights, room_gb)


def devices_that_hold(num_weights: float, room_gb: float) -> int:
    """The fewest devices of a node, a power of two, each with room for its part of so many weights of two bytes."""
    devices = 1
    while 2e-9 * num_weights / devices > room_gb and devices < GPUS_PER_NODE:
        devices *= 2
    return devices


def require_even_parts(devices: int, num_processes: int, config: Any) -> None:
    """Raise unless that many devices can share an engine: vLLM deals out processes, and heads, evenly."""
    text = config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    for number, what in ((num_processes, "processes of this training"), (heads, "heads of keys that the model has")):
        if number % devices:
            raise InvalidFileError(
                f"{devices} GPUs cannot share an engine of vLLM here.",
                why=f"{devices} does not divide the {number} {what}.",
                next_step=f"set rollouts.tensor_parallel in a profile of your own to a divisor of "
                f"{math.gcd(num_processes, heads)}",
            )


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
    if not _is_supported(version):
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
            next_step=f"set top_p or temperature to 1, or {INSTEAD}",
        )
    if has_videos and profile.rollouts.server is not None:
        raise InvalidFileError(
            f"A vLLM server cannot sample for {recipe.data}, which has videos.",
            why="TRL sends a server images alone.",
            next_step="--rollouts vllm, which samples in the training's own processes",
        )
