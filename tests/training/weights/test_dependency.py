"""VPPO: its three formulas by hand, its patches against pictures blackened before the processor, and the trainer."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from trainer_parts import (
    loss_of,
    noted,
    rollout_of,
    step_down,
    what_the_loss_sees,
    without_advantage,
)

from atrl_bench.credit.blackening import black_patch, blackened, token_dependency
from atrl_bench.credit.truth import TokenTruth
from atrl_bench.errors import InvalidFileError
from atrl_bench.profiles import load_profile
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.run import build_trainer, load_inputs
from atrl_bench.training.weights.dependency import draws_of, most_dependent, note_anchors, trajectory_scale


def test_the_dependency_is_the_k3_estimate_from_the_sampled_token():
    # d = -1, 0 and +1: 1/e + 1 - 1, 0, and e - 1 - 1.
    found = token_dependency(torch.tensor([[-3.0, -2.0, -1.0]]), torch.tensor([[-2.0, -2.0, -2.0]]))
    assert torch.allclose(found, torch.tensor([[1 / math.e, 0.0, math.e - 2]]))


def test_the_dependency_of_a_token_that_became_hopeless_is_capped():
    # exp(-20) + 20 - 1 is 19 and exp(30) is astronomical; both are cut to 10.
    assert token_dependency(torch.tensor([-50.0, 0.0]), torch.tensor([0.0, -30.0])).tolist() == [10.0, 10.0]


def test_two_fifths_of_the_tokens_are_kept_rounded_up_and_padding_never():
    dependency = torch.tensor([[0.1, 0.9, 0.5, 0.2, 0.3], [0.3, 0.1, 0.2, 9.0, 9.0]])
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    # ceil(0.4 * 5) = 2 of the first response, ceil(0.4 * 3) = 2 of the second.
    assert most_dependent(dependency, mask, 0.4).tolist() == [
        [False, True, True, False, False],
        [True, False, True, False, False],
    ]


def test_a_response_that_depends_on_nothing_keeps_its_first_tokens():
    assert most_dependent(torch.zeros(1, 4), torch.ones(1, 4), 0.4).tolist() == [[True, True, False, False]]


@given(st.lists(st.integers(1, 60), min_size=1, max_size=5), st.sampled_from([0.2, 0.4, 0.5, 1.0]))
def test_every_response_keeps_the_ceiling_of_its_share(lengths, fraction):
    mask = torch.arange(60)[None, :] < torch.tensor(lengths)[:, None]
    dependency = torch.rand(len(lengths), 60, generator=torch.Generator().manual_seed(sum(lengths)))
    kept = most_dependent(dependency, mask, fraction)
    # In whole tenths, where 0.4 * 5 is exactly 2.
    assert kept.sum(1).tolist() == [-(-length * round(10 * fraction) // 10) for length in lengths]
    assert not (kept & ~mask).any()


def test_the_scale_runs_from_its_minimum_and_averages_one():
    # Scores 1, 2, 4 become 0, 1/3, 1 with mean 4/9; the slope is 0.1 * 9/4 = 0.225.
    found = trajectory_scale(torch.tensor([1.0, 2.0, 4.0]), 0.9)
    assert torch.allclose(found, torch.tensor([0.9, 0.975, 1.125]))
    assert found.mean().item() == pytest.approx(1.0)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=20), st.floats(0.1, 1.0))
def test_the_scale_averages_one_whatever_the_scores(scores, min_scale):
    found = trajectory_scale(torch.tensor(scores, dtype=torch.float64), min_scale)
    assert found.mean().item() == pytest.approx(1.0)
    assert found.min().item() >= min_scale - 1e-9


def test_responses_of_equal_dependency_keep_their_advantage():
    assert trajectory_scale(torch.tensor([0.3, 0.3]), 0.9).tolist() == [1.0, 1.0]


def test_blackened_rows_are_what_the_processor_makes_of_a_picture_blackened_there(mini_processor):
    rng = np.random.default_rng(0)
    picture = rng.integers(0, 256, (56, 84, 3), dtype=np.uint8)
    processor = mini_processor.image_processor
    plain = processor(images=[Image.fromarray(picture)], return_tensors="pt")
    assert plain["image_grid_thw"].tolist() == [[1, 4, 6]], "patches of 14 pixels"
    draws = torch.rand(24, generator=torch.Generator().manual_seed(0))
    found = blackened(plain["pixel_values"], black_patch(processor), draws < 0.5)
    is_black = (found != plain["pixel_values"]).any(1)
    assert 0 < is_black.sum() < len(is_black)
    # Row 4 m + n of the processor is patch (n // 2, n % 2) of the m-th square of 2 x 2 patches.
    for row in is_black.nonzero().flatten().tolist():
        square, inner = divmod(row, 4)
        top, left = 2 * (square // 3) + inner // 2, 2 * (square % 3) + inner % 2
        picture[14 * top : 14 * top + 14, 14 * left : 14 * left + 14] = 0
    expected = processor(images=[Image.fromarray(picture)], return_tensors="pt")["pixel_values"]
    assert torch.equal(found, expected)


def test_a_response_has_the_same_patches_wherever_it_is_and_another_seed_draws_others():
    def draws(numbers, seed=0):
        return draws_of(numbers, [3, 0, 2, 4], torch.Generator().manual_seed(seed)).tolist()

    every = draws([0, 1, 2, 3])
    assert len(set(every)) == 9
    # The third response has the fourth and fifth numbers, the first the first three.
    assert draws([2, 0]) == every[3:5] + every[:3]
    assert not set(draws([0, 1, 2, 3], seed=1)) & set(every)


# The trainer ----------------------------------------------------------------------------------------------------------

WITHOUT_REFILLING = {"dynamic_sampling": None}


def six(trainer):
    return rollout_of(trainer, trainer.rows[:6])


@pytest.mark.parametrize("profile", ["mini", "smoke"])
def test_three_updates_leave_the_size_of_an_update_as_it_is(profile):
    profile = load_profile(profile)
    sizes, usual = load_recipe("vppo").sizes(profile), profile.training
    assert 4 * sizes.prompts_per_rollout == 3 * usual.prompts_per_rollout
    assert 3 * sizes.num_rollouts <= 4 * usual.num_rollouts < 3 * (sizes.num_rollouts + 1)


def test_videos_are_refused_before_anything_is_trained(open_trainer, tmp_path):
    from atrl_bench.mini.world import write_world

    world = write_world(tmp_path / "world", load_profile("smoke"), ["video_r1"])
    with pytest.raises(InvalidFileError, match=r"blackens images, .* and video_r1 has videos"):
        open_trainer(load_recipe("vppo", data="video_r1"), world)


@pytest.mark.parametrize("schedule", ["minibatch4", "strict"])
def test_each_response_keeps_two_fifths_of_its_tokens_at_a_scale_that_averages_one(make_trainer, schedule):
    trainer = make_trainer("vppo", schedule=schedule, **WITHOUT_REFILLING)
    batch = six(trainer)
    scale_BT, mask_BT = batch.weights_BT, batch.mask_BT
    lengths = mask_BT.sum(1).tolist()
    assert (scale_BT > 0).sum(1).tolist() == [-(-4 * length // 10) for length in lengths]
    assert scale_BT.max(1).values.mean().item() == pytest.approx(1.0, abs=1e-6)
    assert scale_BT.max(1).values.min().item() == pytest.approx(0.9)
    assert noted(trainer, "vppo/dependency")[0] > 0
    assert 0.4 < noted(trainer, "vppo/kept_dependency")[0] <= 1


def test_how_well_dependency_finds_the_digits_read_from_the_image_is_logged(make_trainer):
    trainer = make_trainer("vppo", **WITHOUT_REFILLING)
    ids = trainer.processor.tokenizer("The image shows 3 4. The answer is 7.")["input_ids"]
    texts = [trainer.processor.tokenizer.decode([token]) for token in ids]
    is_anchor = torch.tensor([[float(text in "34") for text in texts]])
    batch = SimpleNamespace(mask_BT=torch.ones(1, len(ids), dtype=torch.long))
    responses = [SimpleNamespace(token_ids=ids, example={"token_truth": TokenTruth("3 4")})]
    note_anchors(is_anchor, batch, responses, trainer)
    note_anchors(-is_anchor, batch, responses, trainer)
    assert noted(trainer, "vppo/anchor_auc") == [1.0, 0.0]


def test_the_siblings_of_a_group_see_different_patches(make_trainer, monkeypatch):
    trainer = make_trainer("vppo", **WITHOUT_REFILLING)
    seen, original = [], trainer.score
    monkeypatch.setattr(trainer, "score", lambda batch: seen.append(batch.visuals_B) or original(batch))
    six(trainer)
    first, second = (visual["pixel_values"] for visual in seen[-1][:2])  # two responses to the first problem
    assert not torch.equal(first, second)


def test_the_loss_is_masked_scaled_and_penalised_and_nothing_else(make_trainer):
    trainer = make_trainer("vppo", **WITHOUT_REFILLING)
    batch = six(trainer)
    batch.advantages = torch.ones_like(batch.advantages)
    # The old policy is this one, so every ratio is one: the policy term is minus the sum of the scales over the tokens
    # of an update, and the penalty 0.06 times the mean of minus the log-probabilities.
    expected = -batch.weights_BT.sum() - 0.06 * (batch.old_BT * batch.mask_BT).sum()
    found = loss_of(trainer, batch)
    assert found.item() == pytest.approx((expected / batch.mask_BT.sum()).item(), rel=1e-4)


def test_without_an_advantage_only_the_penalty_is_left_and_it_pulls_likely_tokens_up(make_trainer):
    trainer = make_trainer("vppo", **WITHOUT_REFILLING)
    batch = six(trainer)
    before, after = step_down(trainer, without_advantage(batch), size=0.05)
    assert after < before


@pytest.mark.parametrize("schedule", ["minibatch4", "strict"])
def test_credit_multiplies_what_vppo_leaves(make_trainer, schedule):
    trainer = make_trainer("vppo", schedule=schedule, credit="atrl", **WITHOUT_REFILLING)
    batch = six(trainer)
    seen = what_the_loss_sees(trainer, batch)
    kept = batch.weights_BT > 0
    assert (seen[~kept] == 0).all()
    # A response's kept tokens have one scale, so where they differ it is the credit that tells them apart.
    spread = [row[mask].unique().numel() for row, mask in zip(seen, kept, strict=True)]
    assert max(spread) > 1


def test_a_rollout_that_is_made_again_has_the_same_scale_for_every_token(make_trainer):
    first, second = (six(make_trainer("vppo", **WITHOUT_REFILLING)) for _ in range(2))
    assert torch.equal(first.weights_BT, second.weights_BT)


@pytest.mark.parametrize(("name", "sizes"), [("vppo", {}), ("grpo", {"measures_looking": True})])
def test_a_processor_whose_patches_cannot_be_blackened_is_refused_before_anything_is_sampled(
    name, sizes, tmp_path, base_folder, data_dir, profile
):
    recipe = load_recipe(name, data="geometry3k", overrides=sizes)
    inputs = load_inputs(tmp_path / "run", recipe, profile, str(base_folder), data_dir, 0)
    inputs.processor.image_processor = None
    with pytest.raises(InvalidFileError, match="cannot be blackened"), build_trainer(inputs):
        pass
