"""Actor-critic: advantages by hand, a critic that learns, and its place beside the policy."""

import hashlib
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch.distributed.checkpoint import FileSystemReader
from trainer_parts import loss_of, noted, rollout_of

from atrl_bench.errors import InvalidFileError
from atrl_bench.training.advantages.gae import Critic, generalised_advantages, hidden_states, value_losses, whitened
from atrl_bench.training.recipe import CreditChoice, load_recipe
from atrl_bench.training.recipe import CriticSettings as Settings
from atrl_bench.training.weights.credit import credit_weights


def test_three_tokens_by_hand():
    rewards, values = torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([[0.5, 0.2, 0.4]])
    found = generalised_advantages(rewards, values, torch.ones(1, 3), discount=0.9, gae_lambda=0.5)
    # delta_3 = 1 - 0.4 = 0.6;  delta_2 = 0.9 * 0.4 - 0.2 = 0.16;  delta_1 = 0.9 * 0.2 - 0.5 = -0.32.
    # A_3 = 0.6;  A_2 = 0.16 + 0.45 * 0.6 = 0.43;  A_1 = -0.32 + 0.45 * 0.43 = -0.1265.
    assert found[0].tolist() == pytest.approx([-0.1265, 0.43, 0.6])


numbers = st.floats(-2, 2, width=32)
tokens = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6)


@given(tokens, st.integers(0, 3), st.floats(0.1, 1), st.floats(0, 1))
def test_advantages_are_the_discounted_sums_of_differences(response, padding, discount, gae_lambda):
    rewards, values = (torch.tensor([[*column, *[3.0] * padding]]) for column in zip(*response, strict=True))
    mask = torch.tensor([[1.0] * len(response) + [0.0] * padding])
    found = generalised_advantages(rewards, values, mask, discount=discount, gae_lambda=gae_lambda)
    value = [v for _, v in response] + [0.0]
    deltas = [reward + discount * value[t + 1] - value[t] for t, (reward, _) in enumerate(response)]
    naive = [
        sum((discount * gae_lambda) ** (later - t) * deltas[later] for later in range(t, len(deltas)))
        for t in range(len(deltas))
    ]
    assert found[0].tolist() == pytest.approx([*naive, *[0.0] * padding], abs=1e-4)


def test_whitening_is_over_response_tokens_alone():
    found = whitened(torch.tensor([[1.0, 3.0], [5.0, 99.0]]), torch.tensor([[1.0, 1.0], [1.0, 0.0]]))
    # Mean 3, variance (4 + 0 + 4) / 3, standard deviation 1.63299.
    assert found.flatten().tolist() == pytest.approx([-1.22474, 0.0, 1.22474, 0.0], abs=1e-4)


def test_a_value_that_moved_beyond_the_clip_is_held_to_the_worse_of_both():
    found = value_losses(torch.tensor([0.5, 0.1]), torch.tensor([1.0, 1.0]), torch.zeros(2), clip=0.2)
    # (0.5 - 1)^2 = 0.25 is less than (0.2 - 1)^2 = 0.64; inside the clip (0.1 - 1)^2 = 0.81 counts as it is.
    assert found.tolist() == pytest.approx([0.32, 0.405])
    free = value_losses(torch.tensor([0.5]), torch.tensor([1.0]), torch.zeros(1), clip=None)
    assert free.tolist() == pytest.approx([0.125])


@pytest.fixture
def toy():
    """Sixty-four responses of three tokens whose return is a function of what the critic sees."""
    features = torch.randn(64, 3, 8, generator=torch.Generator().manual_seed(0))
    return features, torch.tanh(features[..., 0] - features[..., 1]), torch.ones(64, 3)


def test_a_clipped_critic_moves_little_in_one_rollout_and_far_in_many(toy):
    features, returns, mask = toy
    losses = {}
    for clip in (None, 0.05):
        critic = Critic(Settings(updates_per_rollout=50, value_clip=clip, learning_rate=1e-2), 8, run_seed=0)
        fits = [critic.fit(features, returns, critic.values(features), mask) for _ in range(10)]
        assert {len(fit) for fit in fits} == {50}
        losses[clip] = [fit[0] for fit in fits]
    assert losses[None][0] == losses[0.05][0]
    assert losses[0.05][1] > 3 * losses[None][1]
    assert losses[0.05][9] < 0.2 * losses[0.05][0]


@pytest.mark.parametrize("ungraded", [[], [0, 5], range(16)])
def test_before_the_critic_has_learned_advantages_are_the_discounted_rewards_whitened(make_trainer, ungraded):
    # Every value starts at zero and a response's only reward is at its end: A_t = 0.95^(T - t) R, then whitened; what
    # no reward could grade has none and is not learned from.
    trainer = make_trainer("actor_critic")
    rewards = {}
    original = trainer.rewards.total

    def total(group):
        reward_G = original(group)
        first = len(rewards) * len(reward_G)
        reward_G[[g for g in range(len(reward_G)) if first + g in ungraded]] = math.nan
        return rewards.setdefault(group.row, reward_G)

    trainer.rewards.total = total
    batch = rollout_of(trainer)
    plain = torch.cat(list(rewards.values()))
    counts_BT = (~plain.isnan()).float()[:, None] * torch.ones(16, 10)
    discounted_BT = plain.nan_to_num()[:, None] * 0.95 ** torch.arange(9, -1, -1)
    assert torch.allclose(batch.advantages, whitened(discounted_BT, counts_BT), atol=1e-5)
    assert not batch.advantages[list(ungraded)].any()
    assert (batch.advantages * batch.mask_BT).sum().item() == pytest.approx(0.0, abs=1e-3)
    assert all(map(math.isfinite, noted(trainer, "critic/loss")))


@pytest.mark.parametrize("schedule", ["strict", "minibatch4"])
def test_a_credit_of_one_for_every_token_leaves_the_advantages_of_gae(make_trainer, schedule):
    fields = {} if schedule == "strict" else {"objective": "grpo", "clip_low": 0.2, "clip_high": 0.2}
    plain = make_trainer("actor_critic", schedule=schedule, **fields)
    ones = make_trainer("actor_critic", schedule=schedule, **fields)
    ones.credit = credit_weights(CreditChoice(rule="uniform"), ones.model, ones.processor.tokenizer, 0)
    expected, found = rollout_of(plain), rollout_of(ones)
    assert torch.equal(expected.advantages, found.advantages)
    assert expected.advantages.shape == (16, 10)
    losses = [loss_of(trainer, batch) for trainer, batch in ((plain, expected), (ones, found))]
    assert torch.equal(*losses)


def test_a_credit_multiplies_the_whitened_advantages_and_the_critic_learns_the_same(make_trainer):
    fields = {"schedule": "minibatch4", "objective": "grpo", "clip_low": 0.2, "clip_high": 0.2}
    plain, weighted = make_trainer("actor_critic", **fields), make_trainer("actor_critic", credit="atrl", **fields)
    expected, found = rollout_of(plain), rollout_of(weighted)
    ratio_BT = found.advantages / expected.advantages
    assert not torch.allclose(ratio_BT, torch.ones(16, 10))
    assert torch.allclose(ratio_BT.mean(1), torch.ones(16), atol=1e-4), "credits have mean one over a response"
    for name in ("critic/loss", "critic/loss_after"):
        assert noted(plain, name) == noted(weighted, name)


def fingerprint(model):
    return hashlib.sha256(b"".join(value.detach().numpy().tobytes() for value in model.parameters())).hexdigest()


def test_the_critics_update_leaves_the_policy_alone_and_the_policys_loss_the_critic(make_trainer):
    trainer = make_trainer("actor_critic")
    before = fingerprint(trainer.model)
    batch = rollout_of(trainer)
    assert fingerprint(trainer.model) == before
    assert all(parameter.grad is None for parameter in trainer.model.parameters())
    head = fingerprint(trainer.estimator.critic.head)
    trainer.estimator.critic.optimizer.zero_grad()
    loss_of(trainer, batch).backward()
    assert fingerprint(trainer.estimator.critic.head) == head
    assert all(parameter.grad is None for parameter in trainer.estimator.critic.head.parameters())


def test_a_kl_in_the_reward_is_paid_by_every_token_and_not_by_the_loss(make_trainer):
    trainer = make_trainer("actor_critic", kl_coef=0.5, critic={"kl_in_reward": True, "gae_lambda": 0.0})
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.mul_(1.02)  # away from the reference
    batch = rollout_of(trainer)
    assert noted(trainer, "critic/kl")[0] != 0
    _, logprobs_BT = hidden_states(batch, trainer)
    rewards_BT = -0.5 * (logprobs_BT - batch.reference_BT)
    # Values are zero and lambda is zero, so before whitening A_t is the reward of token t alone; the last has +-1 too.
    order = rewards_BT[:, :-1].flatten().argsort()
    assert torch.equal(batch.advantages[:, :-1].flatten().argsort(), order)
    loss_of(trainer, batch)
    assert not noted(trainer, "kl"), "the loss has no KL term"
    assert trainer.reference is not None


def test_a_kl_in_the_reward_without_a_coefficient_is_refused():
    with pytest.raises(InvalidFileError, match="needs a kl_coef"):
        load_recipe("actor_critic", critic={"kl_in_reward": True})


def test_the_head_is_in_resume_checkpoints_and_not_in_the_model(make_trainer):
    trainer = make_trainer("actor_critic")
    trainer.train()
    (checkpoint,) = Path(trainer.checkpoints.folder).glob("checkpoint-*")
    assert "head.0.weight" in load_file(checkpoint / "critic.safetensors")
    saved = {name.partition(".")[2] for name in FileSystemReader(checkpoint).read_metadata().state_dict_metadata}
    assert saved == {name for name, _ in trainer.model.named_parameters()}
    lines = [line for line in trainer.lines if "loss" in line]
    assert all("critic/loss" in line and "seconds/critic" in line for line in lines)
