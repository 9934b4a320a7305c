"""Without KL, with an entropy bonus: terms beside the policy's, which no credit may scale."""

import pytest
from trainer_parts import loss_of, noted, rollout_of, step_down, without_advantage

from atrl_bench.training.recipe import load_recipe


@pytest.mark.parametrize(
    ("base", "name", "field"),
    [("grpo", "grpo_kl_free", "kl_coef"), ("grpo_kl_free", "grpo_entropy_bonus", "entropy_coef")],
)
def test_each_is_the_other_with_one_number_changed(base, name, field):
    before, after = load_recipe(base).model_dump(), load_recipe(name).model_dump()
    assert {other for other in before if before[other] != after[other]} == {"name", "title", field}
    assert after["kl_coef"] == 0


@pytest.mark.parametrize("credit", ["uniform", "atrl"])
def test_without_kl_there_is_no_reference_pass_and_no_loss_without_an_advantage(make_trainer, credit):
    trainer = make_trainer("grpo_kl_free", credit=credit)
    batch = rollout_of(trainer)
    assert trainer.reference is None
    assert batch.reference_BT is None
    assert loss_of(trainer, without_advantage(batch)).item() == 0


def test_the_entropy_bonus_does_not_see_the_credit(make_trainer):
    # With every advantage at zero the loss is minus the bonus alone: 0.01 times the mean entropy of a response token.
    losses = []
    for credit in ("uniform", "atrl"):
        trainer = make_trainer("grpo_entropy_bonus", credit=credit)
        losses.append(loss_of(trainer, without_advantage(rollout_of(trainer))).item())
        assert losses[-1] == pytest.approx(-0.01 * noted(trainer, "entropy")[-1], rel=1e-5)
    assert losses[0] == losses[1] < 0


def test_the_entropy_bonus_raises_the_entropy(make_trainer):
    trainer = make_trainer("grpo_entropy_bonus")
    before, after = step_down(trainer, without_advantage(rollout_of(trainer)))
    assert after < before
