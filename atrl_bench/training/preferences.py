"""Training on preferences: the trainer of a `PreferenceRecipe`, its pairs and its arguments."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from atrl_bench.profiles import Profile
from atrl_bench.training.arguments import most_pairs, num_devices, num_rollouts, pair_arguments, per_update
from atrl_bench.training.order import problem_order
from atrl_bench.training.recipe import PreferenceRecipe
from atrl_bench.training.trainer_inputs import TrainerInputs
from atrl_bench.training.weights import describe_credit

if TYPE_CHECKING:
    from atrl_bench.training.dpo import CreditDPOTrainer


def num_updates(recipe: PreferenceRecipe, profile: Profile, num_pairs: int) -> int:
    """How many updates the passes over the pairs take; the last one is filled from the next pass."""
    return math.ceil(recipe.num_epochs * num_pairs / per_update(recipe, profile))


@contextlib.contextmanager
def build(inputs: TrainerInputs[PreferenceRecipe]) -> Iterator[CreditDPOTrainer]:
    """Yield the trainer of a run on its pairs, which are sampled first unless the run has them already."""
    from datasets import Dataset
    from trl import DPOConfig

    from atrl_bench.training.dpo import CreditDPOTrainer
    from atrl_bench.training.pairs import given_pairs, refuse_videos, sampled_pairs

    recipe, profile, data = inputs.recipe, inputs.profile, inputs.data
    refuse_videos(data)
    without: dict[str, int] = {}
    if recipe.pairs is None:
        pairs = given_pairs(data)
    else:
        count = num_rollouts(recipe, profile, len(data.problems)) * recipe.sizes(profile).prompts_per_rollout
        # No problem twice: its answers would be the same.
        rows = problem_order(len(data.problems), min(count, len(data.problems)), inputs.seed)
        pairs, without = sampled_pairs(recipe.pairs, inputs, rows)
    updates = num_updates(recipe, profile, len(pairs))
    fields = pair_arguments(recipe, profile, updates=updates, num_devices=num_devices(), seed=inputs.seed)
    order = problem_order(len(pairs), updates * per_update(recipe, profile), inputs.seed)

    def examples(batch: dict[str, list[int]]) -> dict[str, list[Any]]:
        batch_pairs = [pairs[index] for index in batch["pair"]]
        problems = [data.example(pair.row, inputs.seed) for pair in batch_pairs]
        return {
            "prompt": [problem["prompt"] for problem in problems],
            "images": [problem["images"] for problem in problems],
            "chosen": [[{"role": "assistant", "content": pair.chosen}] for pair in batch_pairs],
            "rejected": [[{"role": "assistant", "content": pair.rejected}] for pair in batch_pairs],
        }

    yield CreditDPOTrainer(
        dataclasses.replace(inputs, data=dataclasses.replace(data, left_out=data.left_out | without)),
        args=inputs.trl_config(DPOConfig, fields),
        train_dataset=Dataset.from_dict({"pair": order}).with_transform(examples),
    )


def describe(recipe: PreferenceRecipe, profile: Profile, num_devices: int) -> dict[str, Any]:
    """Pairs, credit and TRL's arguments, without loading anything."""
    source = {} if recipe.credit.rule == "uniform" else {"from": recipe.credit_from}
    num_pairs, _ = most_pairs(recipe, profile)
    updates = num_updates(recipe, profile, num_pairs)
    return {
        "pairs": {"number": f"at most {num_pairs}", "per_update": per_update(recipe, profile)},
        "credit": describe_credit(recipe.credit, **source),
        "trl": pair_arguments(recipe, profile, updates=updates, num_devices=num_devices),
    }
