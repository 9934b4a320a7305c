"""The file that docs/other_trainers.md shows, by ms-swift: a step of GRPO on images with the mini base, on a CPU."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from eager_credit import BASE, eager_credit
from PIL import Image
from swift.pipelines import rlhf_main
from swift.rewards import orms
from swift.rlhf_trainers import GRPOTrainer
from swift.template.templates.qwen import Qwen2VLTemplate
from swift.trainers import TrainerFactory
from torch import Tensor

PAGE = Path(__file__).parents[2] / "docs" / "other_trainers.md"
SEED = 42  # ms-swift's own
ARGUMENTS = """--rlhf_type grpo --model_type qwen2_5_vl --template qwen2_5_vl --reward_funcs by_place --tuner_type full
    --torch_dtype float32 --bf16 false --fp16 false --attn_impl sdpa --gradient_checkpointing false --use_vllm false
    --num_generations 2 --per_device_train_batch_size 4 --max_completion_length 24 --max_steps 1 --learning_rate 0
    --beta 0 --split_dataset_ratio 0 --eval_strategy no --save_strategy no --report_to none --use_hf true
    --load_from_cache_file false --dataset_num_proc 1 --dataloader_num_workers 0"""


@dataclass
class Step:
    """What one rollout was trained on: of B responses and the last T positions, or all S of them."""

    inputs: dict[str, Tensor]
    mask_BT: Tensor
    plain_BT: Tensor  # ms-swift's advantages
    used_BT: Tensor  # those that its loss was given


def plugin(rule: str) -> str:
    block = re.search(
        r"^## ms-swift\n.*?```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert block is not None
    assert block[1].count('"atrl"') == 1
    return block[1].replace('"atrl"', f'"{rule}"')


def dataset(folder: Path) -> Path:
    """Write two problems, whose images differ in size."""
    rng, rows = np.random.default_rng(0), []
    for name, shape in {"wide": (56, 112), "square": (112, 112)}.items():
        Image.fromarray(rng.integers(0, 255, (*shape, 3), dtype=np.uint8)).save(folder / f"{name}.png")
        question = {"role": "user", "content": f"<image>What is the sum of the {name} digits?"}
        rows.append({"messages": [question], "images": [str(folder / f"{name}.png")]})
    path = folder / "problems.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def train(tmp_path, monkeypatch):
    """A function from a rule to the step that ms-swift makes with the page's file."""
    config = json.loads((BASE / "config.json").read_text(encoding="utf-8"))
    # ms-swift has the ids of Qwen's own vocabulary in its code, and the mini base another one.
    monkeypatch.setattr(Qwen2VLTemplate, "image_token_id", config["image_token_id"])
    monkeypatch.setitem(TrainerFactory.TRAINER_MAPPING, "grpo", TrainerFactory.TRAINER_MAPPING["grpo"])
    monkeypatch.setitem(orms, "by_place", lambda *_, **__: lambda completions, **__: [1.0, -1.0, 0.5, -0.25])
    plain, steps = [], []
    post_process, compute_loss = GRPOTrainer._postprocess_batch, GRPOTrainer._compute_loss

    def keep_plain(trainer, samples, batches):
        post_process(trainer, samples, batches)
        plain.extend(batch["grpo_batch"].advantages.clone() for batch in batches)

    def keep_used(trainer, model, model_inputs, grpo_batch, *rest):
        inputs = {name: value for name, value in model_inputs.items() if isinstance(value, Tensor)}
        steps.append(Step(inputs, grpo_batch.completion_mask, plain[len(steps)], grpo_batch.advantages.clone()))
        return compute_loss(trainer, model, model_inputs, grpo_batch, *rest)

    monkeypatch.setattr(GRPOTrainer, "_postprocess_batch", keep_plain)
    monkeypatch.setattr(GRPOTrainer, "_compute_loss", keep_used)

    def trained(rule: str) -> Step:
        path = tmp_path / "credit_plugin.py"
        path.write_text(plugin(rule), encoding="utf-8")
        places = ["--model", str(BASE), "--dataset", str(dataset(tmp_path)), "--output_dir", str(tmp_path / "out")]
        rlhf_main([*ARGUMENTS.split(), *places, "--external_plugins", str(path)])
        (step,) = steps
        return step

    return trained


def test_the_advantage_of_each_token_is_multiplied_by_its_credit(train):
    step = train("atrl")
    expected_BT = step.plain_BT.clone()
    for b, credit_T in enumerate(credits_by_eager_attention(step)):
        expected_BT[b, step.mask_BT[b].bool()] *= credit_T
    assert step.plain_BT.shape == step.mask_BT.shape, "ms-swift's advantages are one a token"
    torch.testing.assert_close(step.used_BT, expected_BT, atol=1e-4, rtol=1e-4)
    for used_T, plain_T, mask_T in zip(step.used_BT, step.plain_BT, step.mask_BT.bool(), strict=True):
        assert used_T[mask_T].std() > 0.01, "a credit of one everywhere would pass, too"
        assert used_T[mask_T].mean().item() == pytest.approx(plain_T[0].item(), abs=1e-5)


def test_a_credit_of_one_is_plain_ms_swift(train):
    step = train("uniform")
    assert step.plain_BT.abs().min() > 0
    assert torch.equal(step.used_BT, step.plain_BT)


def credits_by_eager_attention(step: Step) -> list[Tensor]:
    """Return the credit of each response, of attention as transformers itself returns it for one sequence alone."""
    columns_BS, grids = step.inputs["attention_mask"].bool(), step.inputs["image_grid_thw"]
    pixels_B = step.inputs["pixel_values"].split(grids.prod(1).tolist())
    is_response_BS = torch.zeros_like(columns_BS)
    is_response_BS[:, -step.mask_BT.shape[1] :] = step.mask_BT.bool()
    return [
        eager_credit(ids_S[column_S], is_response_S[column_S], pixels, grid, SEED)
        for ids_S, column_S, is_response_S, pixels, grid in zip(
            step.inputs["input_ids"], columns_BS, is_response_BS, pixels_B, grids, strict=True
        )
    ]
