"""Token credit in a TRL trainer of your own: three lines of this program are about it.

    python examples/credit_in_your_trainer.py                                  # the shipped tiny model, on any machine
    python examples/credit_in_your_trainer.py --model Qwen/Qwen2.5-VL-3B-Instruct --steps 500

The task is to read one handwritten digit, so that the example downloads nothing.
"""

import argparse

import torch
from datasets import Dataset, Features, Image, Value
from PIL import Image as Pillow
from sklearn.datasets import load_digits
from transformers import AutoProcessor
from trl import GRPOConfig, GRPOTrainer

from atrl_bench.credit.trl import with_credit
from atrl_bench.models.local import find_model

QUESTION = [
    {
        "role": "user",
        "content": [{"type": "image"}, {"type": "text", "text": "Which digit is it? Answer in \\boxed{}."}],
    }
]


def handwritten(num_rows: int) -> Dataset:
    """Return rows as TRL wants them: a prompt with a place for a picture, the picture, and what the reward reads."""
    digits = load_digits()
    pictures = [
        Pillow.fromarray((255 - scan * 15).astype("uint8")).resize((56, 56)) for scan in digits.images[:num_rows]
    ]
    rows = {
        "prompt": [QUESTION] * num_rows,
        "images": [[picture.convert("RGB")] for picture in pictures],
        "answer": [str(digit) for digit in digits.target[:num_rows]],
    }
    part = {"type": Value("string"), "text": Value("string")}
    prompt = [{"role": Value("string"), "content": [part]}]
    return Dataset.from_dict(rows, Features({"prompt": prompt, "images": [Image()], "answer": Value("string")}))


def says_the_digit(completions, answer, **_):
    """Return the rewards: 1 for a response that has the digit in it."""
    return [float(right in response[0]["content"]) for response, right in zip(completions, answer, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="mini")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", default="runs/credit_in_your_trainer")
    options = parser.parse_args()
    folder = find_model(options.model, download=True).folder

    Trainer = with_credit(GRPOTrainer, rule="atrl")
    trainer = Trainer(
        model=str(folder),
        reward_funcs=says_the_digit,
        args=GRPOConfig(
            output_dir=options.out,
            max_steps=options.steps,
            num_generations=4,
            per_device_train_batch_size=8,
            max_completion_length=32,
            learning_rate=1e-5,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=not torch.cuda.is_available(),
        ),
        train_dataset=handwritten(64),
        processing_class=AutoProcessor.from_pretrained(folder, padding_side="left"),
    )
    trainer.train()
    trainer.save_model()
    last = next(line for line in reversed(trainer.state.log_history) if "credit/top15_share" in line)
    share = last["credit/top15_share"]
    print(f"The 15 % of tokens with the most credit had {share:.0%} of it; uniform credit gives them 15 %.")


if __name__ == "__main__":
    main()
