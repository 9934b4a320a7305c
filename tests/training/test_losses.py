"""The losses, by hand. That training with them is TRL's is in test_trainer.py."""

import math

import pytest
import torch

from atrl_bench.training import losses
from atrl_bench.training.recipe import load_recipe


def test_the_clip_takes_the_gradient_of_a_ratio_that_is_too_far_where_its_advantage_leads():
    ratio_BT = torch.tensor([[0.5, 1.0, 1.5, 0.5, 1.5]], requires_grad=True)
    advantage_BT = torch.tensor([[1.0, 1.0, 1.0, -1.0, -1.0]])
    loss_BT = losses.clipped(ratio_BT, advantage_BT, 0.2, 0.3)
    assert loss_BT[0].tolist() == pytest.approx([-0.5, -1.0, -1.3, 0.8, 1.5])
    loss_BT.sum().backward()
    assert ratio_BT.grad.tolist() == [[-1.0, -1.0, 0.0, 0.0, 1.0]]
    low_BT, high_BT = losses.are_clipped(ratio_BT, advantage_BT, 0.2, 0.3)
    assert (low_BT.tolist(), high_BT.tolist()) == ([[0, 0, 0, 1, 0]], [[0, 0, 1, 0, 0]])


def test_sapos_gate_has_the_gradient_of_the_ratio_at_one_and_less_beyond():
    ratio_BT = torch.tensor([[1.0, 2.0]], requires_grad=True)
    loss_BT = losses.sapo(ratio_BT, torch.tensor([[1.0, -1.0]]), 1.0, 2.0)
    # A token of the advantage 1 and the ratio 1: -sigmoid(0) * 4 / 1; of -1 and 2: sigmoid(2) * 4 / 2.
    assert loss_BT[0].tolist() == pytest.approx([-2.0, 2 / (1 + math.exp(-2))])
    loss_BT.sum().backward()
    assert ratio_BT.grad[0, 0] == -1
    assert 0 < ratio_BT.grad[0, 1] < 1


def test_gspo_in_its_token_form_is_the_sequence_ratio_with_a_gradient_for_each_token():
    logprob_BT = torch.tensor([[-1.0, -2.0, -9.0]], requires_grad=True)
    old_BT, mask_BT = torch.tensor([[-1.2, -2.4, -5.0]]), torch.tensor([[1, 1, 0]])
    # Log ratios 0.2 and 0.4, the third is padding: their mean is 0.3.
    assert losses.gspo_ratio(logprob_BT, old_BT, mask_BT).item() == pytest.approx(math.exp(0.3))
    ratio_BT = losses.gspo_token_ratio(logprob_BT, old_BT, mask_BT)
    assert torch.allclose(ratio_BT, torch.full((1, 3), 0.3).exp())
    ratio_BT.sum().backward()
    # d ratio_t / d logprob_t = ratio_t, and no token sees another's.
    assert torch.allclose(logprob_BT.grad, torch.full((1, 3), 0.3).exp())


def test_the_kl_estimate_is_zero_where_both_agree_and_never_negative():
    logprob_BT = torch.tensor([[-1.0, -1.0, -1.0]])
    found_BT = losses.k3(logprob_BT, torch.tensor([[-1.0, -1.5, -0.5]]))
    assert found_BT[0].tolist() == pytest.approx([0.0, math.exp(-0.5) - 0.5, math.exp(0.5) - 1.5], abs=1e-6)


def test_reductions_by_hand():
    # Two responses, of one and of three tokens, which an update takes in two passes like this one.
    loss_BT = torch.tensor([[6.0, 9.0, 9.0], [1.0, 2.0, 3.0]])
    mask_BT = torch.tensor([[1, 0, 0], [1, 1, 1]])
    assert (loss_BT * losses.mean_of_means(mask_BT, 4)).sum() == (6 + 2) / 2 / 2
    assert (loss_BT * losses.mean_of_sums(mask_BT, 4)).sum() == (6 + 6) / 2 / 2
    assert (loss_BT * losses.token_mean(mask_BT, 8)).sum() == (6 + 6) / 8


@pytest.mark.parametrize("name", ["grpo", "dapo", "gspo", "sapo", "reinforce"])
def test_where_every_ratio_is_one_each_objective_has_the_gradient_of_minus_the_advantage(name):
    recipe, mask_BT = load_recipe(name), torch.tensor([[1, 1, 0]])
    logprob_BT = torch.tensor([[-1.0, -2.0, -9.0]], requires_grad=True)
    ratio_BT = losses.importance_ratio(recipe, logprob_BT, logprob_BT.detach(), mask_BT)
    loss_BT = losses.policy_loss(recipe, ratio_BT, torch.tensor([[0.5]]))
    (loss_BT * losses.mean_of_means(mask_BT, 1)).sum().backward()
    assert logprob_BT.grad.tolist() == [[-0.25, -0.25, 0.0]]
