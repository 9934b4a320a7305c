"""Rewards, advantages and token weights of several methods in one recipe, each in a real training of a few updates."""

import math
from dataclasses import replace

import pytest
import torch
from trainer_parts import rollout_of, what_the_loss_sees

from atrl_bench.training.advantages.gae import hidden_states
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.rollout import per_token

VPPO = load_recipe("vppo").vppo.model_dump()
REFILLING = load_recipe("dapo").dynamic_sampling.model_dump()


def trained(trainer):
    """Train, and return the names of all metrics; the weights have to move and stay finite."""
    before = {name: value.detach().clone() for name, value in trainer.model.named_parameters()}
    trainer.train()
    assert any(not torch.equal(before[name], value) for name, value in trainer.model.named_parameters())
    assert all(torch.isfinite(value).all() for value in trainer.model.parameters())
    lines = [line for line in trainer.lines if "loss" in line]
    assert len(lines) >= 2
    assert all(math.isfinite(line["loss"]) and line["skipped_updates"] == 0 for line in lines)
    return {name for line in lines for name in line}


@pytest.mark.parametrize(
    ("name", "fields", "logged"),
    [
        ("vppo", {"critic": {}, "dynamic_sampling": None}, {"vppo/max_scale", "vppo/kept_dependency", "critic/loss"}),
        ("actor_critic", {"vppo": VPPO, "credit": "atrl"}, {"vppo/dependency", "critic/loss", "credit/entropy"}),
        ("gspo", {"critic": {}}, {"critic/loss"}),
        ("gspo", {"vppo": VPPO}, {"vppo/dependency", "seconds/dependency"}),
        ("dapo", {"critic": {}, "vppo": VPPO}, {"critic/loss", "dynamic_sampling/num_generations"}),
    ],
)
def test_critic_vppo_and_credit_go_with_each_other_and_with_any_objective(make_trainer, name, fields, logged):
    assert logged <= trained(make_trainer(name, **fields))


@pytest.mark.parametrize(
    ("fields", "logged"),
    [
        ({"dynamic_sampling": REFILLING}, {"temporal/accuracy_in_order", "dynamic_sampling/num_generations"}),
        ({"critic": {}, "credit": "atrl"}, {"temporal/accuracy_in_order", "critic/loss", "credit/entropy"}),
        ({"critic": {"kl_in_reward": True}, "temporal": None}, {"critic/kl"}),
        ({"step_rewards": {"key_steps": 0, "validity": 1}}, {"rewards/length/mean", "rewards/chain_validity/mean"}),
    ],
)
def test_t_grpos_rewards_go_with_dynamic_sampling_a_critic_and_the_rewards_of_stepgrpo(
    make_video_trainer, fields, logged
):
    assert logged <= trained(make_video_trainer(**fields))


def test_the_parts_of_a_combination_are_what_they_are_alone(make_trainer):
    fields = {"dynamic_sampling": None}
    both = rollout_of(make_trainer("vppo", critic={}, **fields))
    critic = rollout_of(make_trainer("vppo", critic={}, vppo=None, **fields))
    vppo = rollout_of(make_trainer("vppo", **fields))
    assert torch.equal(both.advantages, critic.advantages)
    assert torch.equal(both.weights_BT, vppo.weights_BT)
    assert critic.weights_BT is None


def test_the_loss_sees_the_product_of_credit_and_the_weights_beside_it(make_trainer):
    trainer = make_trainer("vppo", credit="atrl", critic={}, dynamic_sampling=None)
    batch = rollout_of(trainer)
    seen = what_the_loss_sees(trainer, batch)
    assert set(batch.weights_BT.unique().tolist()) > {0.0}
    assert torch.equal(seen, per_token(batch.advantages) * batch.weights_BT)
    kept = batch.weights_BT > 0
    scale_B = batch.weights_BT.max(1).values
    assert scale_B.mean().item() == pytest.approx(1.0), "VPPO's scales have mean one"
    assert torch.equal(batch.weights_BT, kept * scale_B[:, None])


def test_gspo_has_its_token_form_wherever_tokens_have_advantages_of_their_own():
    token_forms = {}
    for name, fields in (
        ("plain", {}),
        ("critic", {"critic": {}}),
        ("vppo", {"vppo": VPPO}),
        ("credit", {"credit": "atrl"}),
    ):
        token_forms[name] = load_recipe("gspo", **fields).weighs_tokens
    assert token_forms == {"plain": False, "critic": True, "vppo": True, "credit": True}


def test_the_critic_reads_the_video_of_each_response(make_video_trainer):
    trainer = make_video_trainer(critic={})
    batch = rollout_of(trainer)
    features_BTH, logprobs_BT = hidden_states(batch, trainer)
    assert features_BTH.shape[:2] == batch.mask_BT.shape
    mask = batch.mask_BT.bool()
    assert torch.allclose(logprobs_BT[mask], batch.old_BT[mask], atol=2e-5)
    films = [{name: torch.flip(value, [0]) for name, value in visual.items()} for visual in batch.visuals_B]
    other_BTH, _ = hidden_states(replace(batch, visuals_B=films), trainer)
    about_video = torch.tensor(["pixel_values_videos" in visual for visual in batch.visuals_B])
    assert about_video.any()
    changed_B = (other_BTH - features_BTH).abs().amax((1, 2)) > 1e-4
    assert changed_B[about_video].all()
