"""One step of GRPO on four responses about two images, by TRL with our credit: what verl's step is compared with."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from PIL import Image
from torch import Tensor
from transformers import AutoModelForImageTextToText, AutoProcessor
from trl import GRPOConfig, GRPOTrainer

from atrl_bench.credit.trl import with_credit
from atrl_bench.mini import BASE

RESPONSES = [
    "The digits are 3 and 4. 3 + 4 = 7. The answer is 7.",
    "The answer is 5.",
    "I see the digits 9, 1 and 2 in the image. 9 + 1 + 2 = 12. The answer is \\boxed{12}.",
    "The digits are 8 and 1. The answer is 9.",
]
REWARDS = [1.0, -1.0, 0.5, -0.25]


@dataclass
class TrlStep:
    """The batch that TRL trained on, and the gradient that it had."""

    ids: list[Tensor]  # of prompt and response, without padding
    prompt_lengths: list[int]
    pixel_values: list[Tensor]
    grids: list[Tensor]
    advantages_B: Tensor
    credit: list[Tensor]  # of each response's tokens
    logprobs: list[Tensor]
    gradient: dict[str, Tensor]


def problems():
    """Return two problems, whose images differ in size."""
    rng = np.random.default_rng(0)
    shapes = [(56, 112), (112, 112)]
    images = [Image.fromarray(rng.integers(0, 255, (*shape, 3), dtype=np.uint8)) for shape in shapes]
    text = ["What is the sum of the digits?", "Add all digits in the picture, please."]
    return [
        {"prompt": [{"role": "user", "content": question}], "image": image}
        for question, image in zip(text, images, strict=True)
    ]


def trl_step(rule: str, folder: Path) -> TrlStep:
    """Return what TRL did with two responses to each problem."""
    processor = AutoProcessor.from_pretrained(BASE)
    trainer = with_credit(_Recorded, rule)(
        model=AutoModelForImageTextToText.from_pretrained(BASE, dtype=torch.float32),
        reward_funcs=[lambda completions, **_: REWARDS],
        args=GRPOConfig(
            output_dir=str(folder),
            per_device_train_batch_size=4,
            num_generations=2,
            gradient_accumulation_steps=1,
            # A second update of the same rollout: TRL scores the old policy in a pass of its own, as verl does.
            num_iterations=2,
            max_completion_length=64,
            max_steps=1,
            seed=0,  # of the partitions too
            learning_rate=0.0,
            max_grad_norm=1e9,
            loss_type="grpo",
            beta=0.0,
            shuffle_dataset=False,
            report_to=[],
            disable_tqdm=True,
            save_strategy="no",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
        ),
        train_dataset=Dataset.from_list(problems()),
        processing_class=processor,
    )
    trainer.train()
    return _step(trainer)


class _Recorded(GRPOTrainer):
    """TRL's trainer with responses from a list, which keeps what it trains on and the gradient of its first step."""

    def _generate_single_turn(self, prompt_ids, *_, **__):
        tokenizer = self.processing_class.tokenizer
        ids = [tokenizer(text)["input_ids"] + [tokenizer.eos_token_id] for text in RESPONSES]
        return ids, None

    def _generate_and_score_completions(self, inputs):
        self.images = [one["image"] for one in inputs]
        self.batch = super()._generate_and_score_completions(inputs)
        return self.batch

    def training_step(self, *arguments, **options):
        loss = super().training_step(*arguments, **options)
        self.gradient = {
            name: value.grad.detach().clone() for name, value in self.model.named_parameters() if value.grad is not None
        }
        return loss


def _step(trainer: _Recorded) -> TrlStep:
    batch = trainer.batch
    is_prompt_BS, is_response_BT = batch["prompt_mask"].bool(), batch["completion_mask"].bool()
    pixels = [trainer.processing_class.image_processor(images=[image], return_tensors="pt") for image in trainer.images]
    return TrlStep(
        ids=[
            torch.cat([prompt[is_prompt], response[is_response]])
            for prompt, is_prompt, response, is_response in zip(
                batch["prompt_ids"], is_prompt_BS, batch["completion_ids"], is_response_BT, strict=True
            )
        ],
        prompt_lengths=is_prompt_BS.sum(1).tolist(),
        pixel_values=[one["pixel_values"] for one in pixels],
        grids=[one["image_grid_thw"] for one in pixels],
        advantages_B=batch["advantages"],
        credit=[row[mask] for row, mask in zip(batch["credit"], is_response_BT, strict=True)],
        logprobs=[row[mask] for row, mask in zip(batch["old_per_token_logps"], is_response_BT, strict=True)],
        gradient=trainer.gradient,
    )
