"""Supervised training: imitate the responses of a data set, as the start of reinforcement learning.

The loss is the mean negative log-likelihood of the tokens of the response and of the token that ends it, over the whole
batch: the prompt and the places of images and videos have none. (The released code of Video-R1 trains on the prompt
too and, for Qwen2.5-VL, on the places of its video.) Prompts are those of the rollouts, pixel for pixel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from atrl_bench.errors import MissingDataError
from atrl_bench.profiles import Profile
from atrl_bench.training.arguments import imitation_arguments, num_devices, num_rollouts
from atrl_bench.training.data import TrainingData
from atrl_bench.training.order import problem_order
from atrl_bench.training.problem import response_of
from atrl_bench.training.recipe import SupervisedRecipe
from atrl_bench.training.trainer_inputs import TrainerInputs

if TYPE_CHECKING:
    from atrl_bench.training.imitation import ImitationTrainer


def with_responses(data: TrainingData, tokenizer: Any, form: str, max_response_tokens: int) -> TrainingData:
    """The data without rows that have no reasoning, or whose response is longer than this with its end."""
    with_process = [problem for problem in data.problems if problem.process]
    if not with_process:
        raise MissingDataError(
            f"{data.name} has no responses to imitate.",
            why="Its rows have no column `process`.",
            next_step="train on a set with reasoning, such as video_r1_cot",
        )
    texts = [response_of(problem.process, problem.answer, form) for problem in with_process]
    lengths = [len(ids) + 1 for ids in tokenizer(texts)["input_ids"]]
    kept = [problem for problem, length in zip(with_process, lengths, strict=True) if length <= max_response_tokens]
    num_read = len(with_process)
    left_out = {"no response": len(data.problems) - num_read, "response too long": num_read - len(kept)}
    if not kept:
        raise MissingDataError(
            f"Every response of {data.name} is longer than {max_response_tokens} tokens.",
            next_step="raise max_response_tokens",
        )
    return replace(data, problems=kept, left_out=data.left_out | {why: n for why, n in left_out.items() if n})


@contextlib.contextmanager
def build(inputs: TrainerInputs[SupervisedRecipe]) -> Iterator[ImitationTrainer]:
    from datasets import Dataset
    from trl import SFTConfig

    from atrl_bench.training.imitation import Imitation, ImitationTrainer

    recipe, profile = inputs.recipe, inputs.profile
    sizes = recipe.sizes(profile)
    data = with_responses(inputs.data, inputs.processor.tokenizer, recipe.response, sizes.max_response_tokens)
    batches = num_rollouts(recipe, profile, len(data.problems))
    fields = imitation_arguments(recipe, profile, batches=batches, num_devices=num_devices(), seed=inputs.seed)
    rows = problem_order(len(data.problems), batches * sizes.prompts_per_rollout, inputs.seed)
    yield ImitationTrainer(
        replace(inputs, data=data),
        args=inputs.trl_config(SFTConfig, fields),
        train_dataset=Dataset.from_dict({"row": rows}),
        data_collator=Imitation(data, inputs.processor, recipe.response, inputs.seed, inputs.model.dtype),
    )


def describe(recipe: SupervisedRecipe, profile: Profile, num_devices: int) -> dict[str, Any]:
    """What is imitated and TRL's arguments, without loading anything."""
    sizes = recipe.sizes(profile)
    batches = num_rollouts(recipe, profile)
    return {
        "batches": {"number": batches, "examples_each": sizes.prompts_per_rollout},
        "response": {"form": recipe.response, "max_tokens": sizes.max_response_tokens},
        "trl": imitation_arguments(recipe, profile, batches=batches, num_devices=num_devices),
    }
