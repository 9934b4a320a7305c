"""Videos on their way through a rollout: every pass over a response is the plain forward pass over its own video."""

import copy
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from tokenizers.processors import TemplateProcessing
from trainer_parts import (
    drift,
    gradients_of,
    groups_of,
    logits_alone,
    logprobs_alone,
    logprobs_of,
    parts_of_rollout,
    rollout_of,
)

from atrl_bench.credit import visual_columns
from atrl_bench.models.mrope import put_words_after_videos
from atrl_bench.training.rollout import given_group, joined_visuals

ROWS = (0, 2, 4, 7)  # the last is about an image


def of_rows(trainer):
    assert [bool(trainer.data.problems[row].videos) for row in ROWS] == [True, True, True, False]
    return rollout_of(trainer, ROWS)


@pytest.mark.parametrize("trim", [True, False])
def test_scoring_and_reference_pass_equal_a_plain_forward_pass_of_each_response(make_video_trainer, trim):
    trainer = make_video_trainer()
    trainer.passes.trim_padding = trim
    drift(trainer.reference)
    batch = of_rows(trainer)
    for place, row in enumerate(row for row in ROWS for _ in range(4)):
        mask = batch.mask_BT[place].bool()
        ids = batch.response_ids_BT[place][mask].tolist()
        for model, found_BT in ((trainer.model, batch.old_BT), (trainer.reference, batch.reference_BT)):
            expected = logprobs_alone(model, trainer, row, ids)
            assert torch.allclose(found_BT[place][mask], expected, atol=2e-5), row
    assert not torch.allclose(batch.old_BT, batch.reference_BT, atol=1e-3)


def test_the_training_pass_sees_what_the_scoring_pass_saw_in_every_shuffled_part(make_video_trainer):
    trainer = make_video_trainer()
    parts = parts_of_rollout(trainer, ROWS)
    assert len(parts) == 4
    for part in parts:
        mask = part.mask_BT.bool()
        assert torch.allclose(logprobs_of(trainer, part)[mask], part.old_BT[mask], atol=2e-5)


def test_a_loss_on_videos_has_gradients_in_the_vision_tower(make_video_trainer):
    trainer = make_video_trainer()
    batch = of_rows(trainer)
    assert batch.advantages.any()
    assert any(value.any() for name, value in gradients_of(trainer, batch).items() if ".visual." in name)


def test_the_first_token_is_drawn_from_the_logits_of_a_plain_forward_pass(make_video_trainer, monkeypatch):
    trainer = make_video_trainer()
    drawn = []

    def remember(module, arguments, output):
        drawn.append(output.logits[:, -1].clone())

    handle = trainer.model.register_forward_hook(remember)
    groups_of(trainer, [0, 2, 7])
    handle.remove()
    first_RV, second_RV = drawn[0], drawn[1]
    for place, row in enumerate((0, 2, 7)):
        [expected_V] = logits_alone(trainer.model, trainer, row)
        # The image and video tokens, which may not be drawn, are not compared.
        allowed_V = first_RV[place] > torch.finfo(first_RV.dtype).min
        assert torch.allclose(first_RV[place][allowed_V], expected_V[allowed_V], atol=2e-5)
    assert len(second_RV) >= 3


def test_a_token_that_begins_a_text_begins_a_prompt_once_and_no_response(mini_processor):
    processor = copy.deepcopy(mini_processor)
    begin = processor.tokenizer.bos_token = "<|im_start|>"  # with which the chat template begins
    processor.tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        f"{begin} $A", special_tokens=[(begin, processor.tokenizer.bos_token_id)]
    )
    assert processor.tokenizer("2")["input_ids"][0] == processor.tokenizer.bos_token_id
    example = {"prompt": [{"role": "user", "content": [{"type": "text", "text": "1 + 1"}]}], "images": [], "videos": []}
    plain, begun = (given_group(one, 0, example, ["2"], torch.float32) for one in (mini_processor, processor))
    assert (begun.prompt_ids, begun.response_ids) == (plain.prompt_ids, plain.response_ids)


def test_the_moments_of_the_frames_reach_every_pass(make_video_trainer):
    trainer = make_video_trainer()
    batch = of_rows(trainer)
    before = batch.old_BT
    slower_frames = [
        visual | ({"second_per_grid_ts": 2 * visual["second_per_grid_ts"]} if "second_per_grid_ts" in visual else {})
        for visual in batch.visuals_B
    ]
    with torch.no_grad():
        slower = logprobs_of(trainer, replace(batch, visuals_B=slower_frames))
    changed = (slower - before).abs().amax(1) > 1e-4
    assert changed.tolist() == [True] * 12 + [False] * 4  # the last four are about an image


def test_reference_and_policy_place_words_after_videos_alike(make_video_trainer):
    trainer = make_video_trainer()
    for model in (trainer.model, trainer.reference):
        inner = model.model.get_rope_index
        assert put_words_after_videos(model).model.get_rope_index is inner, "it was done before"


@pytest.mark.parametrize("recipe", ["grpo", "vppo"])
def test_a_groups_images_are_read_once(make_trainer, recipe):
    batch = rollout_of(make_trainer(recipe, dynamic_sampling=None), range(4))
    assert len({id(visual) for visual in batch.visuals_B}) == 4


def test_tensors_of_several_prompts_are_joined_in_their_order():
    image = {"pixel_values": torch.zeros(4, 2), "image_grid_thw": torch.tensor([[1, 2, 2]])}
    films = [
        {"pixel_values_videos": torch.full((8, 2), float(n)), "second_per_grid_ts": torch.tensor([float(n)])}
        for n in (1, 2)
    ]
    found = joined_visuals([films[0], image, {}, films[1]], torch.device("cpu"))
    assert found["second_per_grid_ts"].tolist() == [1.0, 2.0]
    assert found["pixel_values_videos"][:, 0].tolist() == [1.0] * 8 + [2.0] * 8
    assert found["image_grid_thw"].tolist() == [[1, 2, 2]]


def test_image_tokens_are_found_by_kind_or_else_by_the_placeholders_of_the_config():
    ids = torch.tensor([[7, 7, 1, 2], [1, 7, 7, 9]])
    kinds = torch.tensor([[0, 1, 0, 0], [0, 0, 2, 0]])
    llava = SimpleNamespace(image_token_id=7)
    assert visual_columns(llava, ids, kinds).int().tolist() == kinds.ne(0).int().tolist()
    assert visual_columns(llava, ids).int().tolist() == [[1, 1, 0, 0], [0, 1, 1, 0]]
