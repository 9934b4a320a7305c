"""Training on rollouts: the trainer of a `RolloutRecipe`, its rewards and its arguments.

A recipe's settings choose the trainer: each class in `TRAINERS` adds one idea to `CreditTrainer`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import warnings
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from atrl_bench.profiles import Profile
from atrl_bench.training.arguments import num_rollouts, overlong_cache, trl_arguments
from atrl_bench.training.cost_estimate import estimate
from atrl_bench.training.recipe import RolloutRecipe
from atrl_bench.training.trainer_inputs import TrainerInputs

if TYPE_CHECKING:
    from atrl_bench.training.trainer import CreditTrainer

# The field of a recipe whose presence asks for another trainer, and where that is.
TRAINERS: dict[str, tuple[str, str]] = {
    "critic": ("critic", "CriticTrainer"),
    "temporal": ("temporal", "TemporalTrainer"),
    "vppo": ("vppo", "VPPOTrainer"),
}

ACCURACY = {
    "accuracy": "+1 correct, -1 otherwise, by the grader of the evaluation",
    "typed": "0 to 1 by the sort of answer: choice, numerical, OCR, free-form or regression",
}


def trainer_class(recipe: RolloutRecipe) -> type[CreditTrainer]:
    """Return the trainer that a recipe's settings ask for."""
    for field, (module, name) in TRAINERS.items():
        if getattr(recipe, field) is not None:
            found: type[CreditTrainer] = getattr(import_module(f"atrl_bench.training.{module}"), name)
            return found
    from atrl_bench.training.trainer import CreditTrainer

    return CreditTrainer


@contextlib.contextmanager
def build(start: TrainerInputs[RolloutRecipe]) -> Iterator[CreditTrainer]:
    """Yield the trainer of a run, with the grader that gives its rewards."""
    import torch
    from datasets import Dataset
    from trl import GRPOConfig

    from atrl_bench.grading.grade import GradingPool
    from atrl_bench.training.order import problem_order
    from atrl_bench.training.rewards.accuracy import AccuracyReward, Reward, overlong_reward
    from atrl_bench.training.rewards.steps import chain_validity, check_key_steps, key_step_match
    from atrl_bench.training.rewards.video_r1 import FormatReward, TypedReward

    recipe, profile, data = start.recipe, start.profile, start.data
    sizes = recipe.sizes(profile)
    rollouts = num_rollouts(recipe, profile, len(data.problems))
    num_devices = int(os.environ.get("WORLD_SIZE", "1"))
    with warnings.catch_warnings():
        # TRL 1.16 passes the old name of this field whatever we give.
        warnings.filterwarnings("ignore", message=".*gradient_checkpointing", category=FutureWarning)
        arguments = GRPOConfig(
            output_dir=str(start.resume_folder),
            use_cpu=not torch.cuda.is_available(),
            **trl_arguments(recipe, profile, rollouts=rollouts, num_devices=num_devices, seed=start.seed),
        )
    rows = problem_order(len(data.problems), rollouts * sizes.prompts_per_rollout, start.seed)
    with GradingPool() as pool:
        rewards: list[Reward] = [TypedReward(pool) if recipe.rewards == "typed" else AccuracyReward(pool)]
        if recipe.overlong_cache_fraction is not None:
            rewards.append(overlong_reward(sizes.max_response_tokens, recipe.overlong_cache_fraction))
        if recipe.format_reward:
            rewards.append(FormatReward(recipe.format_reward))
        if recipe.temporal is not None:
            from atrl_bench.training.temporal import LENGTH, TEMPORAL, FilledLater

            rewards += [FilledLater(TEMPORAL), FilledLater(LENGTH)]
        if recipe.step_rewards is not None:
            if recipe.step_rewards.key_steps:
                check_key_steps(data.name, [problem.key_steps for problem in data.problems])
            rewards += [key_step_match, chain_validity]
        yield trainer_class(recipe)(
            recipe=recipe,
            data=data,
            sizes=sizes,
            run_seed=start.seed,
            updates_per_rollout=recipe.updates_per_rollout(sizes),
            model=start.model,
            reward_funcs=rewards,
            args=arguments,
            train_dataset=Dataset.from_dict({"row": rows}),
            processing_class=start.processor,
            peft_config=start.peft_config,
        )


def describe(recipe: RolloutRecipe, profile: Profile) -> dict[str, Any]:
    """Return rewards, credit, TRL's arguments and what the run needs, without loading anything."""
    credit: dict[str, Any] = {"rule": recipe.credit.rule}
    if recipe.credit.rule != "uniform":  # the credit rules import torch, which a plain recipe need not wait for
        from atrl_bench.training.weights.credit import credit_config

        credit |= dataclasses.asdict(credit_config(recipe.credit))
    sizes = recipe.sizes(profile)
    rollouts, needs = num_rollouts(recipe, profile), estimate(recipe, profile)
    rewards: dict[str, Any] = {"accuracy": ACCURACY[recipe.rewards]}
    if recipe.overlong_cache_fraction is not None:
        cache = overlong_cache(sizes.max_response_tokens, recipe.overlong_cache_fraction)
        rewards["overlong"] = f"0 down to -1 over the last {cache} of {sizes.max_response_tokens} tokens"
    if recipe.format_reward:
        rewards["format"] = f"+{recipe.format_reward:g} in <think> and <answer> tags"
    if (temporal := recipe.temporal) is not None:
        shortest, longest = sizes.rewarded_lengths
        shuffled = max(1, round(temporal.shuffled_fraction * sizes.group_size))
        rewards["temporal"] = (
            f"+{temporal.bonus:g} if right, where the group is right at least {temporal.tolerance:g} times as often as "
            f"{shuffled} responses to shuffled frames"
        )
        rewards["length"] = f"+{temporal.length_bonus:g} if right and of {shortest} to {longest} tokens"
    if recipe.step_rewards is not None:
        rewards["key_step_match"] = "the share of the problem's key steps that the chain takes, 0 to 1"
        rewards["chain_validity"] = "1 for a chain with all its sections in order, else 0"
    return {
        "rollouts": {"number": rollouts, "problems_each": sizes.prompts_per_rollout},
        "rewards": rewards,
        "credit": credit,
        "trl": trl_arguments(recipe, profile, rollouts=rollouts, num_devices=max(1, needs.get("gpus", 1))),
        "needs": needs,
    }
