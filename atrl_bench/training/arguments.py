"""A recipe and a profile as the arguments of TRL's configs. Pure arithmetic: nothing heavy is imported.

Every value that TRL's defaults would decide otherwise is written out; `loss_type`, `beta` and `use_bias_correction_kl`
are the ones that silently change a method. The loss itself is ours (losses.py); these have TRL's be the same.
"""

from __future__ import annotations

import math
import os
from typing import Any

from atrl_bench.data.sets import find_set
from atrl_bench.errors import InvalidFileError
from atrl_bench.profiles import Profile, TrainingSizes
from atrl_bench.training.own_code import names
from atrl_bench.training.recipe import PreferenceRecipe, Recipe, RolloutRecipe
from atrl_bench.training.rewards.registry import answer_reward
from atrl_bench.training.rollout_engine import correction_arguments, uses_vllm

# TRL's name for each objective's reduction and gate; GSPO is a mean over responses, like GRPO. REINFORCE is a sum over
# tokens like DAPO's, which the trainer has divided by the number of responses.
LOSS_TYPES = {"grpo": "grpo", "dapo": "dapo", "gspo": "grpo", "sapo": "sapo", "reinforce": "dapo"}
LEARNING_RATE_SCHEDULES = {"constant": "constant_with_warmup", "cosine": "cosine"}
SAMPLER_GB = 15.0  # for the keys and values of the responses sampled at once: 42 of the 7B model at the paper's limits
# Beyond this many tokens a sequence's activations are worth recomputing instead of keeping.
CHECKPOINTING_TOKENS = 1024


def num_devices() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


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


def trl_arguments(
    recipe: RolloutRecipe, profile: Profile, *, rollouts: int, num_devices: int = 1, seed: int = 0
) -> dict[str, Any]:
    """The GRPOConfig fields of a run on `num_devices` devices, without its folder.

    One rollout is prompts_per_rollout * group_size completions, dealt out evenly over the schedule's optimiser steps
    and the devices; each device takes its part of a step in micro-batches of at most completions_per_device.
    """
    sizes = recipe.sizes(profile)
    updates = recipe.updates_per_rollout(sizes)
    common = common_arguments(recipe, profile, rollouts * updates, updates, num_devices, seed)
    token_form = recipe.objective != "gspo" or recipe.weighs_tokens
    arguments: dict[str, Any] = {
        # Rollouts
        "num_generations": sizes.group_size,
        "max_completion_length": sizes.max_response_tokens,
        "temperature": sizes.temperature,
        "top_p": sizes.top_p,
        "top_k": 0,
        "steps_per_generation": common["gradient_accumulation_steps"] * updates,
        "num_iterations": 1,
        "shuffle_dataset": False,  # the rows come in the order of training/order.py
        # Objective
        "loss_type": LOSS_TYPES[recipe.objective],
        "importance_sampling_level": "token" if token_form else "sequence",
        "beta": recipe.kl_coef,
        "use_bias_correction_kl": False,  # the paper's k3 is not multiplied by the ratio
        "scale_rewards": "group",
        "mask_truncated_completions": False,
        "top_entropy_quantile": recipe.entropy_fraction or 1.0,
        "entropy_coef": recipe.entropy_coef,
        **(correction_arguments(profile) if uses_vllm(recipe, profile) else {}),
        **common,
    }
    if (weights := reward_weights(recipe)) is not None:
        arguments["reward_weights"] = weights
    if recipe.objective == "sapo":
        arguments["sapo_temperature_pos"] = recipe.sapo_temperature_positive
        arguments["sapo_temperature_neg"] = recipe.sapo_temperature_negative
    elif recipe.objective != "reinforce":
        arguments["epsilon"] = recipe.clip_low
        arguments["epsilon_high"] = recipe.clip_high
    return arguments


def rollout_arguments(
    recipe: RolloutRecipe, profile: Profile, rollouts: int, num_devices: int, seed: int
) -> dict[str, Any]:
    """transformers' TrainingArguments of the loop on rollouts, without its folder."""
    updates = recipe.updates_per_rollout(recipe.sizes(profile))
    # A resumed run knows by its rollout's number which problems come next.
    return {
        **common_arguments(recipe, profile, rollouts * updates, updates, num_devices, seed),
        "ignore_data_skip": True,
        "ddp_find_unused_parameters": True,  # of the vision tower, in a batch without images
    }


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


def common_arguments(
    recipe: Recipe, profile: Profile, updates: int, updates_per_rollout: int, num_devices: int, seed: int
) -> dict[str, Any]:
    sizes = recipe.sizes(profile)
    completions = 2 if isinstance(recipe, PreferenceRecipe) else 1  # of what an update takes so many of
    most = max(1, sizes.completions_per_device // completions)
    at_once, accumulation = micro_batches(per_update(recipe, profile), num_devices, most)
    return {
        # Optimiser
        "max_steps": updates,
        "per_device_train_batch_size": at_once,
        "gradient_accumulation_steps": accumulation,
        "learning_rate": sizes.learning_rate,
        "lr_scheduler_type": LEARNING_RATE_SCHEDULES[sizes.learning_rate_schedule],
        "warmup_steps": sizes.warmup_steps,
        "adam_beta2": sizes.adam_beta2,
        "weight_decay": sizes.weight_decay,
        "max_grad_norm": sizes.max_grad_norm,
        "bf16": sizes.dtype == "bfloat16",
        "gradient_checkpointing": recomputes(sizes),
        # Bookkeeping
        "seed": seed,
        "save_strategy": "steps",
        "save_steps": sizes.save_every_rollouts * updates_per_rollout,
        "logging_steps": 1,
        "report_to": [],  # trackers.py adds those that are wanted, in one run from the start to the last resumption
        "disable_tqdm": True,
    }


def imitation_arguments(
    recipe: Recipe, profile: Profile, *, batches: int, num_devices: int = 1, seed: int = 0
) -> dict[str, Any]:
    """The SFTConfig fields of a run; a batch, of `prompts_per_rollout` examples, is one update."""
    return {
        "loss_type": "nll",
        "packing": False,
        "max_length": None,  # too long rows are left out, not cut: a cut prompt would lose its image
        "train_sampling_strategy": "sequential",  # the rows come in the order of training/order.py
        "dataset_kwargs": {"skip_prepare_dataset": True},
        "remove_unused_columns": False,
        **common_arguments(recipe, profile, batches, 1, num_devices, seed),
    }


def pair_arguments(
    recipe: PreferenceRecipe, profile: Profile, *, updates: int, num_devices: int = 1, seed: int = 0
) -> dict[str, Any]:
    """The DPOConfig fields of a run on `num_devices` devices, without its folder; a pair is two completions."""
    updates_per_rollout = recipe.sizes(profile).updates_per_rollout
    return {
        # Objective
        "loss_type": "sigmoid",
        "beta": recipe.beta,
        "label_smoothing": 0.0,
        # Data
        "max_length": None,  # a cut could part images from their places; prompts and responses are limited already
        "precompute_ref_log_probs": False,  # TRL stores sums, which cannot be weighted any more
        "train_sampling_strategy": "sequential",  # the pairs come in the order of training/order.py
        "remove_unused_columns": False,
        **common_arguments(recipe, profile, updates, updates_per_rollout, num_devices, seed),
    }


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


def most_devices(recipe: Recipe, profile: Profile, available: int) -> int:
    """On how many of these devices a run can be spread evenly; one at least."""
    return _largest_divisor(per_update(recipe, profile), available)


def micro_batches(per_update: int, num_devices: int, most_at_once: int) -> tuple[int, int]:
    """How many a device takes at once, at most `most_at_once`, and how often it does so for one update."""
    of_a_device = _divide(per_update, num_devices, "devices")
    at_once = _largest_divisor(of_a_device, most_at_once)
    return at_once, of_a_device // at_once


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
