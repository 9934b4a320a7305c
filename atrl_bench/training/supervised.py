"""Supervised training: imitate the responses of a data set, as the start of reinforcement learning.

The loss is the mean negative log-likelihood of the tokens of the response and of the token that ends it, over the whole
batch: the prompt and the places of images and videos have none. (The released code of Video-R1 trains on the prompt
too and, for Qwen2.5-VL, on the places of its video.) Prompts are those of the rollouts, pixel for pixel.

Shapes: B responses, S positions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from trl import SFTConfig, SFTTrainer
from trl.trainer.utils import pad

from atrl_bench.errors import MissingDataError
from atrl_bench.training.arguments import imitation_arguments, num_devices, num_rollouts
from atrl_bench.training.data import TrainingData
from atrl_bench.training.multimodal import joined_visuals, read_prompt, token_types, with_media
from atrl_bench.training.order import problem_order
from atrl_bench.training.problem import response_of
from atrl_bench.training.recipe import SupervisedRecipe
from atrl_bench.training.resumable import Resumable
from atrl_bench.training.trainer_inputs import TrainerInputs

IGNORED = -100  # the label of a token that is not imitated


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


class Imitation:
    """Makes a batch of rows: prompts and responses padded on the left, with labels on the responses alone."""

    def __init__(self, data: TrainingData, processor: Any, form: str, run_seed: int, dtype: torch.dtype) -> None:
        self._data, self._processor, self._form = data, processor, form
        self._run_seed, self._dtype = run_seed, dtype

    def __call__(self, rows: Sequence[dict[str, int]]) -> dict[str, Tensor]:
        """The inputs of the model with `labels`: the response and its end, IGNORED everywhere else."""
        tokenizer = self._processor.tokenizer
        ids_B, labels_B, visuals_B = [], [], []
        for row in rows:
            example = self._data.example(row["row"], self._run_seed)
            messages = with_media(example["prompt"], example["images"], example["videos"])
            prompt_ids, visual = read_prompt(self._processor, messages, self._dtype)
            response = response_of(example["process"], example["answer"], self._form)
            response_ids = [*tokenizer(response)["input_ids"], tokenizer.eos_token_id]
            ids_B.append(torch.tensor(prompt_ids + response_ids))
            labels_B.append(torch.tensor([IGNORED] * len(prompt_ids) + response_ids))
            visuals_B.append(visual)
        input_ids_BS = pad(ids_B, padding_value=tokenizer.pad_token_id, padding_side="left")
        types_BS = token_types(input_ids_BS, self._processor.image_token_id, self._processor.video_token_id)
        return {
            "input_ids": input_ids_BS,
            "attention_mask": pad([torch.ones_like(ids) for ids in ids_B], padding_value=0, padding_side="left"),
            "labels": pad(labels_B, padding_value=IGNORED, padding_side="left"),
            "mm_token_type_ids": types_BS,
            **joined_visuals(visuals_B, torch.device("cpu")),
        }


class ImitationTrainer(Resumable, SFTTrainer):
    """TRL's SFTTrainer on rows of a TrainingData."""

    def __init__(self, inputs: TrainerInputs[SupervisedRecipe], **trl: Any) -> None:
        super().__init__(inputs, peft_config=inputs.peft_config, **trl)
        # Qwen2.5-VL's own forward pass does not take the number of tokens; TRL's loss divides by it. Without it the
        # loss would be a mean of the micro-batches' means, in which long responses count less.
        self.model_accepts_loss_kwargs = True


@contextlib.contextmanager
def build(inputs: TrainerInputs[SupervisedRecipe]) -> Iterator[ImitationTrainer]:
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
