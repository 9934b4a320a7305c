"""Supervised training: what is imitated, what has a loss, and how it goes on after a kill."""

from __future__ import annotations

import json
from functools import partial

import pytest
import torch
from torch.nn.functional import cross_entropy

from atrl_bench.errors import MissingDataError
from atrl_bench.profiles import load_profile
from atrl_bench.training.data import load_training_data
from atrl_bench.training.describe import resolved_arguments
from atrl_bench.training.problem import response_of
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.supervised import IGNORED, Imitation, with_responses


@pytest.fixture
def small(profile):
    sizes = {"num_rollouts": 2, "prompts_per_rollout": 4, "completions_per_device": 2, "save_every_rollouts": 1}
    return profile.model_copy(update={"supervised": {**sizes, "max_response_tokens": 48}})


@pytest.fixture
def data(video_dir, profile):
    return load_training_data("video_r1_cot", video_dir).seen_at(profile.training)


def first_row(data, medium):
    """Return the first row about a video, or an image, that has a chain."""
    return next(
        row
        for row, problem in enumerate(data.problems)
        if bool(problem.videos) == (medium == "video") and problem.process != "<think></think>"
    )


@pytest.mark.parametrize(
    ("process", "form", "text"),
    [
        ("<think>3+4=7.</think>", "boxed", "3+4=7. The answer is \\boxed{7}."),
        ("<think>3+4=7.</think>", "tags", "<think>3+4=7.</think>\n<answer>7</answer>"),
        ("<think>3+4=7.</think>", "process", "<think>3+4=7.</think>"),
        ("<think></think>", "boxed", "The answer is \\boxed{7}."),
    ],
)
def test_what_is_imitated_has_one_of_three_forms(process, form, text):
    assert response_of(process, "7", form) == text


@pytest.mark.parametrize("medium", ["image", "video"])
def test_only_the_response_and_its_end_have_labels(data, mini_processor, medium):
    row = first_row(data, medium)
    problem = data.problems[row]
    batch = Imitation(data, mini_processor, "boxed", 0, torch.float32)([{"row": row}])
    [ids], [labels] = batch["input_ids"].tolist(), batch["labels"].tolist()
    tokenizer = mini_processor.tokenizer
    imitated = [token for token, label in zip(ids, labels, strict=True) if label != IGNORED]
    reasoning = problem.process.removeprefix("<think>").removesuffix("</think>")
    assert tokenizer.decode(imitated) == f"{reasoning} The answer is \\boxed{{{problem.answer}}}.<|im_end|>"
    # They are the last tokens, so the label of each is the token itself and nothing comes after the end.
    assert labels[-len(imitated) :] == ids[-len(imitated) :]
    prompt = ids[: -len(imitated)]
    assert set(labels[: len(prompt)]) == {IGNORED}
    pad = mini_processor.video_token_id if medium == "video" else mini_processor.image_token_id
    assert prompt.count(pad) == (batch["mm_token_type_ids"] == (2 if medium == "video" else 1)).sum()
    assert prompt.count(pad) > 0


def test_a_row_is_padded_on_the_left_without_attention_and_without_labels(data, mini_processor):
    rows = [first_row(data, "image"), first_row(data, "video")]
    batch = Imitation(data, mini_processor, "boxed", 0, torch.float32)([{"row": row} for row in rows])
    for ids, mask, labels in zip(batch["input_ids"], batch["attention_mask"], batch["labels"], strict=True):
        num_padding = int((mask == 0).sum())
        assert set(mask[:num_padding].tolist()) <= {0}
        assert set(ids[:num_padding].tolist()) <= {mini_processor.tokenizer.pad_token_id}
        assert set(labels[:num_padding].tolist()) <= {IGNORED}
        assert labels[-1] != IGNORED
    assert {"pixel_values", "image_grid_thw", "pixel_values_videos", "second_per_grid_ts"} <= set(batch)


@pytest.fixture
def make(open_trainer, video_dir, small):
    return lambda **overrides: open_trainer(load_recipe("sft_video", **overrides), video_dir, small)


def test_the_loss_of_a_step_is_the_mean_over_its_response_tokens_in_all_its_parts(make):
    trainer = make()
    model = trainer.model
    rows = trainer.train_dataset["row"][:4]
    total, count = 0.0, 0
    for row in rows:  # one by one and from the logits, where the trainer takes two at a time and no logits
        batch = trainer.data_collator([{"row": row}])
        labels = batch.pop("labels")
        with torch.no_grad():
            logits = model(**batch).logits
        total += cross_entropy(logits[0, :-1], labels[0, 1:], ignore_index=IGNORED, reduction="sum").item()
        count += int((labels != IGNORED).sum())
    trainer.train()
    assert trainer.args.gradient_accumulation_steps == 2
    assert trainer.state.log_history[0]["loss"] == pytest.approx(total / count, rel=1e-3)


def test_rows_come_in_the_order_of_the_run(make):
    trainer = make()
    seen = []
    original = trainer.data_collator
    trainer.data_collator = lambda rows: seen.extend(row["row"] for row in rows) or original(rows)
    trainer.train()
    assert seen[:8] == trainer.train_dataset["row"]


def test_a_run_that_was_killed_and_called_again_equals_an_uninterrupted_one(
    run, pull_the_plug, tmp_path, base_folder, video_dir, small
):
    run = partial(run, name="sft_video", data="video_r1_cot", data_dir=video_dir, profile=small)
    whole = run(tmp_path / "whole")
    pull_the_plug(partial(run, tmp_path / "killed"), 2)
    resumed = run(tmp_path / "killed")
    assert resumed.digest == whole.digest
    assert (whole.checkpoint / "model.safetensors").read_bytes() != (base_folder / "model.safetensors").read_bytes()
    lines = [json.loads(line) for line in (resumed.checkpoint / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    assert all({"loss", "mean_token_accuracy", "entropy"} <= set(line) for line in lines)


def test_rows_without_a_response_or_with_a_long_one_are_left_out_and_counted(data, video_dir, mini_processor):
    lengths = [
        len(mini_processor.tokenizer(response_of(p.process, p.answer, "boxed"))["input_ids"]) for p in data.problems
    ]
    limit = sorted(lengths)[8]  # one less than the ninth needs with its end
    kept = with_responses(data, mini_processor.tokenizer, "boxed", limit)
    assert kept.left_out == {"response too long": sum(length + 1 > limit for length in lengths)}
    with pytest.raises(MissingDataError, match="no responses to imitate"):
        with_responses(load_training_data("video_r1", video_dir), mini_processor.tokenizer, "boxed", 48)


def test_the_paper_profile_is_video_r1s_cold_start():
    resolved = resolved_arguments(load_recipe("sft_video"), load_profile("paper"), num_devices=4)
    trl = resolved["trl"]
    assert (trl["learning_rate"], trl["max_grad_norm"], resolved["recipe"]["data"]) == (1e-6, 5.0, "video_r1_cot")
    # Eight examples a step, one at a time on each device; 165,575 of them once.
    assert trl["per_device_train_batch_size"] * trl["gradient_accumulation_steps"] * 4 == 8
    assert resolved["batches"] == {"number": 20_696, "examples_each": 8}
