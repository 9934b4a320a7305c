"""Supervised training: what is imitated, and what has a loss."""

import pytest
from plain_trl import plain_logprobs
from trainer_parts import gradient_of

from atrl_bench.errors import MissingDataError
from atrl_bench.profiles import load_profile
from atrl_bench.training.data import load_training_data
from atrl_bench.training.describe import resolved_arguments
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.rollout import joined_visuals
from atrl_bench.training.supervised import response_of, with_responses


@pytest.fixture
def small(profile):
    sizes = {"num_rollouts": 2, "prompts_per_rollout": 4, "completions_per_device": 2, "save_every_rollouts": 1}
    return profile.model_copy(update={"supervised": {**sizes, "max_response_tokens": 48}})


@pytest.fixture
def data(mini_world, profile):
    return load_training_data("video_r1_cot", mini_world).seen_at(profile.training)


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


@pytest.fixture
def make(open_trainer, mini_world, small):
    return lambda **overrides: open_trainer(load_recipe("sft_video", **overrides), mini_world, small)


@pytest.mark.parametrize("medium", ["image", "video"])
def test_only_the_response_and_its_end_are_imitated(make, medium):
    trainer = make()
    row = first_row(trainer.data, medium)
    problem, tokenizer = trainer.data.problems[row], trainer.processor.tokenizer
    batch = trainer.batch([row])
    reasoning = problem.process.removeprefix("<think>").removesuffix("</think>")
    imitated = batch.response_ids_BT[0][batch.mask_BT[0].bool()].tolist()
    assert tokenizer.decode(imitated) == f"{reasoning} The answer is \\boxed{{{problem.answer}}}.<|im_end|>"
    pad = trainer.processor.video_token_id if medium == "video" else trainer.processor.image_token_id
    num_places = (batch.prompt_ids_BS[0] == pad).sum()
    assert num_places == (batch.token_fields["mm_token_type_ids"] == (2 if medium == "video" else 1)).sum() > 0


def test_a_tag_that_the_prompt_ends_in_is_not_imitated_once_more(make, monkeypatch):
    monkeypatch.setattr("atrl_bench.training.supervised.begun_thought", lambda _: "<think>\n")
    trainer = make(response="tags")
    text = trainer.processor.tokenizer.decode(trainer.batch([0]).response_ids_BT[0])
    assert ("<think>" in text, "</think>" in text) == (False, True)


def test_the_loss_of_a_step_is_the_mean_over_its_response_tokens_in_all_its_parts(make):
    trainer = make()
    total, count = 0.0, 0
    for row in trainer.rows[:4]:  # one by one and from the logits, where the trainer takes two at a time and no logits
        batch = trainer.batch([row])
        logprobs_BT = plain_logprobs(trainer, batch, temperature=1.0)
        total, count = total - logprobs_BT.sum().item(), count + int(batch.mask_BT.sum())
    assert [len(part) for part in trainer.updates(0)[0]] == [2, 2]
    trainer.train()
    assert trainer.lines[0]["loss"] == pytest.approx(total / count, rel=1e-5)


def test_the_loss_and_the_gradient_are_those_of_trls_trainer(make):
    trainer = make()
    [batches] = trainer.updates(0)
    found = gradient_of(sum(map(trainer.loss, batches)), trainer.model)
    # What TRL's SFTTrainer minimises by its loss type "nll": the model's own loss over the number of items.
    num_items, loss = sum(int(batch.mask_BT.sum()) for batch in batches), 0.0
    for batch in batches:
        ids_BS, num_tokens = batch.input_ids, batch.mask_BT.shape[1]
        labels_BS = ids_BS.masked_fill(batch.attention_mask == 0, -100)
        labels_BS[:, :-num_tokens] = -100
        visuals = joined_visuals(batch.visuals_B, ids_BS.device)
        inputs = {"input_ids": ids_BS, "attention_mask": batch.attention_mask, **batch.token_fields, **visuals}
        loss += trainer.model(**inputs, labels=labels_BS, num_items_in_batch=num_items).loss
    expected = gradient_of(loss, trainer.model)
    assert expected.abs().max() > 1e-3
    assert (found - expected).abs().max() < 1e-6


def test_rows_come_in_the_order_of_the_run(make):
    trainer = make()
    seen, batch = [], trainer.batch
    trainer.batch = lambda rows: seen.extend(rows) or batch(rows)
    trainer.train()
    assert seen == trainer.rows
    assert len(seen) == 8
    assert all({"loss", "entropy"} <= line.keys() for line in trainer.lines)


def test_rows_without_a_response_or_with_a_long_one_are_left_out_and_counted(data, mini_world, mini_processor):
    lengths = [
        len(mini_processor.tokenizer(response_of(p.process, p.answer, "boxed"))["input_ids"]) for p in data.problems
    ]
    limit = sorted(lengths)[len(lengths) // 2]  # one less than this one needs with its end
    kept = with_responses(data, mini_processor.tokenizer, "boxed", limit)
    assert kept.left_out == {"response too long": sum(length + 1 > limit for length in lengths)}
    with pytest.raises(MissingDataError, match="no responses to imitate"):
        with_responses(load_training_data("video_r1", mini_world), mini_processor.tokenizer, "boxed", 48)


def test_the_paper_profile_is_video_r1s_cold_start():
    resolved = resolved_arguments(load_recipe("sft_video"), load_profile("paper"), num_devices=4)
    updates = resolved["updates"]
    # Eight examples a step, one at a time on each device; 165,575 of them once.
    assert (updates["responses_each"], updates["responses_at_once"], updates["micro_batches"]) == (8, 1, 2)
    assert resolved["batches"] == {"number": 20_696, "examples_each": 8}
