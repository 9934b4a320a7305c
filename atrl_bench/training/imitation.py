"""TRL's SFTTrainer on prompts with images and videos, and the batches it is given.

Shapes: B responses, S positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from trl import SFTTrainer
from trl.trainer.utils import pad

from atrl_bench.training.data import TrainingData
from atrl_bench.training.multimodal import joined_visuals, read_prompt, token_types, with_media
from atrl_bench.training.problem import response_of
from atrl_bench.training.recipe import SupervisedRecipe
from atrl_bench.training.resumable import Resumable
from atrl_bench.training.trainer_inputs import TrainerInputs

IGNORED = -100  # the label of a token that is not imitated


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
        super().__init__(inputs, **trl)
        # Qwen2.5-VL's own forward pass does not take the number of tokens; TRL's loss divides by it. Without it the
        # loss would be a mean of the micro-batches' means, in which long responses count less.
        self.model_accepts_loss_kwargs = True
