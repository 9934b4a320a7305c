"""T-GRPO: its two rewards by hand, what is shuffled and what is trained on."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from trainer_parts import change_what_is_sampled, groups_of, noted, rollout_of
from transformers import AutoModelForImageTextToText

from atrl_bench.errors import InvalidFileError
from atrl_bench.mini import BASE
from atrl_bench.mini.model import build_processor
from atrl_bench.mini.problems import READING_PREFIX
from atrl_bench.mini.videos import FRAMES_PER_SECOND, draw_scene
from atrl_bench.models.local import Prompt, limit_pixels, model_inputs
from atrl_bench.models.mrope import put_words_after_videos
from atrl_bench.models.video import Video, spaced
from atrl_bench.profiles import load_profile
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.rewards.temporal import length_bonus, shuffled_order, shuffled_prompt, temporal_bonus

SETTINGS = load_recipe("t_grpo").temporal
REWARDED_LENGTHS = load_profile("paper").training.rewarded_lengths


@pytest.mark.parametrize(
    ("in_order", "shuffled", "bonus"),
    [
        # p = 0.5 and 0.8 * 0.5 = 0.4: order helps, and the right ones earn it.
        ([1, 1, 0, 0], [1, 0], [0.3, 0.3, 0, 0]),
        # The same of those that a reward of one's own has something to say of.
        ([1, math.nan, 0], [1, 0, math.nan], [0.3, 0, 0]),
        # p = 0.25 and 0.8 * 0.5 = 0.4: shuffled does better.
        ([1, 0, 0, 0], [1, 0], [0, 0, 0, 0]),
        # p = 0.75 < 0.8 * 1.
        ([1, 1, 1, 0], [1, 1], [0, 0, 0, 0]),
        # Equality counts: p = 0.8 and 0.8 * 1.
        ([1, 1, 1, 1, 0], [1, 1], [0.3, 0.3, 0.3, 0.3, 0]),
        # Nobody is right: p = p_shuffled = 0, and there is none to reward.
        ([0, 0, 0, 0], [0, 0], [0, 0, 0, 0]),
        # Parts of a point count in the means, and as right above 0.1: p = 0.3 and 0.8 * 0.2.
        ([0.9, 0.1, 0.2, 0.0], [0.4, 0.0], [0.3, 0, 0.3, 0]),
    ],
)
def test_the_bonus_for_order(in_order, shuffled, bonus):
    found = temporal_bonus(torch.tensor(in_order).float(), torch.tensor(shuffled).float(), SETTINGS)
    assert found.tolist() == pytest.approx(bonus)


@pytest.mark.parametrize(
    ("accuracy", "lengths", "bonus"),
    [
        # From 320 to 512 tokens.
        ([1, 1, 1, 1], [319, 320, 512, 513], [0, 0.2, 0.2, 0]),
        ([1, 1, 0, 0.1], [400, 400, 400, 400], [0.2, 0.2, 0, 0]),
        # One right response alone earns nothing.
        ([1, 0, 0, 0], [400, 400, 400, 400], [0, 0, 0, 0]),
        # The second right one need not be in the range.
        ([1, 1, 0, 0], [400, 10, 400, 400], [0.2, 0, 0, 0]),
    ],
)
def test_the_bonus_for_length(accuracy, lengths, bonus):
    found = length_bonus(torch.tensor(accuracy).float(), torch.tensor(lengths), REWARDED_LENGTHS, SETTINGS)
    assert found.tolist() == pytest.approx(bonus)


def test_frames_are_shuffled_the_same_way_every_time_and_never_into_their_own_order():
    orders = [shuffled_order(2, 0, f"0:0:{place}") for place in range(20)]
    assert orders == [[1, 0]] * 20
    orders = {tuple(shuffled_order(8, 0, f"0:0:{place}")) for place in range(20)}
    assert len(orders) == 20
    assert all(sorted(order) == list(range(8)) for order in orders)
    assert shuffled_order(8, 0, "0:0:7") == shuffled_order(8, 0, "0:0:7") != shuffled_order(8, 1, "0:0:7")


def test_temporal_rewards_need_accuracies_from_zero_to_one():
    with pytest.raises(InvalidFileError, match="rewards 'typed'"):
        load_recipe("t_grpo", rewards="accuracy")


def rows_about(trainer, medium, count):
    """Return the first rows about videos, or about images."""
    problems = trainer.data.problems
    return [row for row, problem in enumerate(problems) if bool(problem.videos) == (medium == "video")][:count]


def test_shuffled_frames_are_the_same_pictures_at_the_same_moments_in_another_order(make_video_trainer):
    trainer = make_video_trainer()
    rows = rows_about(trainer, "video", 1)
    [group] = groups_of(trainer, rows)
    prompt = shuffled_prompt(group, trainer.run_seed)
    prompts = trainer.read([prompt], ["0:0"])
    [ids], [visual] = prompts.token_ids_P, prompts.visuals_P
    assert ids == group.prompt_ids
    assert set(visual) == set(group.visual) == {"pixel_values_videos", "video_grid_thw", "second_per_grid_ts"}
    assert torch.equal(visual["second_per_grid_ts"], group.visual["second_per_grid_ts"])
    before, after = (value["pixel_values_videos"] for value in (group.visual, visual))
    assert not torch.equal(before, after)
    frames = group.example["videos"][0].frames
    [shown] = [part["video"] for part in prompt[0]["content"] if part["type"] == "video"]
    assert sorted(frame.tobytes() for frame in shown.frames) == sorted(frame.tobytes() for frame in frames)


def test_a_reward_of_ones_own_grades_shuffled_responses_as_it_does_the_others(make_video_trainer, tmp_path):
    code = "def odd(prompts, completions, completion_ids, **_):\n    return [len(ids) % 2 for ids in completion_ids]\n"
    (tmp_path / "mine.py").write_text(code)
    trainer = make_video_trainer(rewards=f"{tmp_path}/mine.py:odd")
    groups_of(trainer, rows_about(trainer, "video", 1))
    assert noted(trainer, "temporal/accuracy_shuffled")


def test_the_bonus_is_in_the_rewards_of_videos_and_not_of_images(make_video_trainer, monkeypatch):
    trainer = make_video_trainer()
    # Every shuffled response is wrong, so order helps wherever anyone is right.
    monkeypatch.setattr(
        trainer.rewards.functions[1],
        "shuffled_accuracies",
        lambda groups, _: [torch.zeros(2) if g.about_video else None for g in groups],
    )
    about_video, about_image = rows_about(trainer, "video", 2), rows_about(trainer, "image", 2)
    groups = groups_of(trainer, about_video + about_image)
    names = trainer.rewards.names
    assert names == ["accuracy", "temporal", "length"]
    for group in groups:
        accuracy_G, temporal_G = group.rewards_GF[:, 0], group.rewards_GF[:, 1]
        assert torch.equal(temporal_G, 0.3 * accuracy_G if group.row in about_video else torch.zeros(4))
    assert any(group.rewards_GF[:, 1].any() for group in groups)


def test_half_as_many_responses_are_drawn_on_shuffled_frames_and_none_of_them_is_trained_on(make_video_trainer):
    trainer = make_video_trainer()
    drawn = []
    change_what_is_sampled(trainer, lambda *sampled: drawn.append(sampled) or sampled)
    rows = rows_about(trainer, "video", 3) + rows_about(trainer, "image", 1)
    batch = rollout_of(trainer, rows)
    in_order, shuffled = (ids for ids, _ in drawn)
    assert (len(in_order), len(shuffled)) == (16, 6)
    found = [ids[mask.bool()].tolist() for ids, mask in zip(batch.response_ids_BT, batch.mask_BT, strict=True)]
    assert found == in_order
    assert len(batch.visuals_B) == 16


def test_credit_looks_at_every_place_of_the_video(make_video_trainer):
    trainer = make_video_trainer(credit="atrl")
    seen, original = [], trainer.credit.of_sampled

    def remember(responses):
        seen.extend(int(one.visual_S.sum()) for one in responses)
        return original(responses)

    trainer.credit.of_sampled = remember
    rows = rows_about(trainer, "video", 4)
    batch = rollout_of(trainer, rows)
    # Four frames of 84 by 84 pixels: two steps in time of three by three tokens.
    assert set(seen) == {18}
    assert batch.advantages.shape == batch.mask_BT.shape


# What a model that has learned the order reads --------------------------------------------------------------------


def shown(processor, scenes, orders):
    """Return the inputs for "The image shows 3 1 4 7" after each scene, its eight frames in this order."""
    prompts = []
    for scene, order in zip(scenes, orders, strict=True):
        frames = scene.frames()
        places = spaced(len(frames), 8)
        video = Video(frames[list(places)], places, len(frames), FRAMES_PER_SECOND)
        prompts.append(Prompt("", [], [], (video.reordered(order),)))
    texts = [f"<|video_pad|>{READING_PREFIX} {' '.join(map(str, scene.readings))}" for scene in scenes]
    return model_inputs(processor, texts, prompts, torch.float32)


def digit_logits(model, inputs):
    """Return the logits before each of the four digits, which stand at every second place from the end."""
    return model(**inputs).logits[:, -8:-1:2]


@pytest.mark.slow
def test_shuffled_frames_cost_a_model_that_has_learned_their_order_most_of_its_accuracy():
    processor = build_processor()  # its own: the limits are set on it
    model = put_words_after_videos(AutoModelForImageTextToText.from_pretrained(BASE, dtype=torch.float32))
    limit_pixels(processor, 56 * 56, 224 * 224, 112 * 112)
    rng = np.random.default_rng(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98))
    for _ in range(50):
        scenes = [draw_scene("passing", "train", rng) for _ in range(16)]
        inputs = shown(processor, scenes, [range(8)] * 16)
        loss = cross_entropy(digit_logits(model, inputs).flatten(0, 1), inputs["input_ids"][:, -7::2].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    scenes = [draw_scene("passing", "test", rng) for _ in range(64)]
    accuracies = []
    for orders in ([range(8)] * 64, [shuffled_order(8, 0, str(place)) for place in range(64)]):
        inputs = shown(processor, scenes, orders)
        with torch.no_grad():
            read = digit_logits(model, inputs).argmax(-1)
        accuracies.append((read == inputs["input_ids"][:, -7::2]).float().mean().item())
    in_order, shuffled = accuracies
    assert in_order > 0.4
    assert shuffled < 0.3  # of four different digits, one in four by chance
