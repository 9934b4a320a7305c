"""What a run needs: devices, memory, hours, disk. Estimates from stated formulae, made without loading anything.

Memory of a device, with everything sharded evenly over N devices (accelerate, FSDP2):
    full:  (4 weights + 4 gradients + 8 Adam + 4 reference if there is a KL term or DPO) bytes per parameter / N
    lora:  2 bytes per parameter / N; adapters and their Adam state are below a hundredth of that
    + activations kept for recomputation: layers * hidden * 2 bytes per token of a micro-batch, and one layer's own
    + SAMPLER for the keys and values of the responses that are sampled at once: there are as many as fit into it
    + RESERVED for the runtime and fragmentation
Time: 2 FLOPs per parameter and token for a forward pass, 4 for a backward pass, 2 more where activations are
recomputed; scoring is one forward pass, two with a reference. Prompts and responses are taken to fill USED_FRACTION of
their limits. Decoding is bound by memory and has a rate of its own.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atrl_bench.profiles import Profile, TrainingSizes
from atrl_bench.resources import PACKAGE
from atrl_bench.training.arguments import CHECKPOINTING_TOKENS, num_rollouts
from atrl_bench.training.data import describe
from atrl_bench.training.recipe import PreferenceRecipe, Recipe, RolloutRecipe

GB = 1e9
DEVICE_GB = 80.0  # one A100 or H100
SAMPLER_GB = 15.0  # 42 sequences of the 7B model, each as long as the paper's limits allow
RESERVED_GB = 9.0
DEVICE_FLOPS = 0.4 * 312e12  # an A100 in bfloat16, 40 % of its peak
DECODED_PER_SECOND = 2000.0 * 7e9  # tokens times parameters, one device, transformers, a few dozen sequences at once
CPU_FLOPS = 5e10  # one core, float32
CPU_MAX_PARAMETERS = 50e6
USED_FRACTION = 0.3


@dataclass(frozen=True)
class ModelShape:
    """The size of a model, as far as memory and time depend on it."""

    num_parameters: float
    num_layers: int
    hidden_size: int
    intermediate_size: int


# From the models' configuration files and weight indices.
KNOWN_SHAPES = {
    "Qwen/Qwen2.5-VL-3B-Instruct": ModelShape(3.75e9, 36, 2048, 11008),
    "Qwen/Qwen2.5-VL-7B-Instruct": ModelShape(8.29e9, 28, 3584, 18944),
    "Qwen/Qwen2.5-VL-32B-Instruct": ModelShape(33.45e9, 64, 5120, 27648),
}


def model_shape(model: str) -> ModelShape | None:
    """Return the shape of a known hub id or of a local folder, read from its files; None for another hub id."""
    folder = PACKAGE / "mini" / "base" if model == "mini" else Path(model)
    if not (folder / "config.json").is_file():
        return KNOWN_SHAPES.get(model)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    text = config.get("text_config", config)
    count = sum(_num_parameters(path) for path in folder.glob("*.safetensors"))
    return ModelShape(count, text["num_hidden_layers"], text["hidden_size"], text["intermediate_size"])


def gpus_to_answer(profile: Profile) -> int:
    """Return how many GPUs the profile's model needs to answer: none if it is so small that the CPU will do."""
    shape = model_shape(profile.model)
    return 0 if shape is not None and shape.num_parameters <= CPU_MAX_PARAMETERS else 1


def _num_parameters(path: Path) -> int:
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")


def estimate(recipe: RolloutRecipe, profile: Profile) -> dict[str, Any]:
    """Return devices, memory, hours and disk of one run; numbers first, then the words that explain them."""
    sizes, rollouts = recipe.sizes(profile), num_rollouts(recipe, profile)
    responses = rollouts * sizes.prompts_per_rollout * sizes.group_size
    return _needs(
        recipe,
        profile,
        {"rollouts": rollouts, "responses": responses},
        sequences=responses,
        sampled=responses,
        scoring_passes=1 + bool(recipe.kl_coef) + bool(recipe.critic),
        reference=bool(recipe.kl_coef),
    )


def estimate_batches(recipe: Recipe, profile: Profile) -> dict[str, Any]:
    """Return the same for a run over batches of examples: no responses are drawn, and nothing is scored."""
    batches = num_rollouts(recipe, profile)
    examples = batches * recipe.sizes(profile).prompts_per_rollout
    return _needs(recipe, profile, {"batches": batches, "examples": examples}, sequences=examples)


def estimate_pairs(recipe: PreferenceRecipe, profile: Profile) -> dict[str, Any]:
    """Return the same for a run on preference pairs, with as many of them as there could be at most.

    A pair is two responses; each goes through the policy forward and backward, through the reference, and once more
    where there is a credit.
    """
    sizes, sampled = recipe.sizes(profile), 0
    counts = {"pairs": describe(recipe.data).num_rows}
    if recipe.pairs is not None:
        problems = min(num_rollouts(recipe, profile) * sizes.prompts_per_rollout, describe(recipe.data).num_rows)
        sampled = problems * sizes.group_size
        counts = {"responses": sampled, "pairs": problems * recipe.pairs.max_pairs_per_problem}
    return _needs(
        recipe,
        profile,
        counts,
        sequences=2 * recipe.num_epochs * counts["pairs"],
        sampled=sampled,
        scoring_passes=1 + (recipe.credit.rule != "uniform"),
        reference=True,
    )


def _needs(
    recipe: Recipe,
    profile: Profile,
    counts: dict[str, int],
    *,
    sequences: int,
    sampled: int = 0,
    scoring_passes: int = 0,
    reference: bool = False,
) -> dict[str, Any]:
    """Return the counts, and what training on so many sequences takes after so many responses have been sampled."""
    sizes, shape = recipe.sizes(profile), model_shape(profile.model)
    if shape is None:
        return {**counts, "basis": f"the size of {profile.model} is not known here"}
    response = USED_FRACTION * sizes.max_response_tokens
    tokens = sequences * (USED_FRACTION * sizes.max_prompt_tokens + response)
    checkpointing = sizes.max_prompt_tokens + sizes.max_response_tokens > CHECKPOINTING_TOKENS
    compute = ((8 if checkpointing else 6) + 2 * scoring_passes) * shape.num_parameters * tokens
    decoding = shape.num_parameters * sampled * response
    full = recipe.finetuning == "full"
    disk = shape.num_parameters * (4 + 2 * 12 if full else 2 + 0.1) / GB
    if shape.num_parameters <= CPU_MAX_PARAMETERS:
        minutes = (compute + 2 * decoding) / CPU_FLOPS / 60
        return {
            **counts,
            "gpus": 0,
            "minutes": round(minutes, 1),
            "disk_gb": round(disk, 2),
            "basis": f"{shape.num_parameters / 1e6:.2f} M parameters, one core at {CPU_FLOPS / 1e9:.0f} GFLOP/s",
        }
    gpus, memory = _devices(recipe, sizes, shape, reference)
    hours = (compute / DEVICE_FLOPS + decoding / DECODED_PER_SECOND) / 3600
    return {
        **counts,
        "gpus": gpus,
        "gb_per_gpu": round(memory),
        "gpu_hours": round(hours),
        "hours": round(hours / gpus, 1),
        "disk_gb": round(disk),
        "basis": f"{shape.num_parameters / GB:.2f} B parameters, {DEVICE_GB:.0f} GB devices, sharded by FSDP2; "
        "formulae in atrl_bench/training/cost_estimate.py",
    }


def _devices(recipe: Recipe, sizes: TrainingSizes, shape: ModelShape, reference: bool) -> tuple[int, float]:
    """Return the smallest power of two of devices that hold the run, and what one of them holds in GB."""
    per_parameter = 2.0 if recipe.finetuning == "lora" else 16.0 + (4.0 if reference else 0.0)
    tokens = sizes.completions_per_device * (sizes.max_prompt_tokens + sizes.max_response_tokens)
    kept = tokens * shape.num_layers * shape.hidden_size * 2
    one_layer = tokens * (8 * shape.hidden_size + 4 * shape.intermediate_size) * 2
    gpus = 1
    while True:
        memory = (shape.num_parameters * per_parameter / gpus + kept + one_layer) / GB + SAMPLER_GB + RESERVED_GB
        if memory <= DEVICE_GB or gpus >= 64:
            return gpus, memory
        gpus *= 2
