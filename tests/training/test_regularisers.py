"""Without KL, with an entropy bonus: terms beside the policy's, which no credit may scale."""

from __future__ import annotations

import pytest
import torch

from atrl_bench.training.recipe import load_recipe


def scored_batch(trainer):
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    rows = [{"row": row} for row in trainer.train_dataset["row"][:4] for _ in range(4)]
    return trainer._generate_and_score_completions(rows)


def test_the_kl_free_recipe_is_grpo_with_one_number_changed():
    grpo, free = load_recipe("grpo").model_dump(), load_recipe("grpo_kl_free").model_dump()
    assert {field for field in grpo if grpo[field] != free[field]} == {"name", "title", "kl_coef"}
    assert free["kl_coef"] == 0


def test_the_entropy_bonus_takes_the_place_of_the_kl_term():
    free, bonus = load_recipe("grpo_kl_free").model_dump(), load_recipe("grpo_entropy_bonus").model_dump()
    assert {field for field in free if free[field] != bonus[field]} == {"name", "title", "entropy_coef"}


@pytest.mark.parametrize("credit", ["uniform", "atrl"])
def test_without_kl_there_is_no_reference_pass_and_no_loss_without_an_advantage(make_trainer, credit):
    trainer = make_trainer("grpo_kl_free", credit=credit)
    batch = scored_batch(trainer)
    assert trainer.ref_model is None
    assert "ref_per_token_logps" not in batch
    batch["advantages"] = torch.zeros_like(batch["advantages"])
    assert trainer._compute_loss(trainer.model, batch).item() == 0


def test_the_entropy_bonus_does_not_see_the_credit(make_trainer):
    # With every advantage at zero the loss is minus the bonus alone: 0.01 times the mean entropy of a response token.
    losses = []
    for credit in ("uniform", "atrl"):
        trainer = make_trainer("grpo_entropy_bonus", credit=credit)
        batch = scored_batch(trainer)
        batch["advantages"] = torch.zeros_like(batch["advantages"])
        losses.append(trainer._compute_loss(trainer.model, batch).item())
        entropy = trainer._metrics["train"]["entropy"][-1]
        assert losses[-1] == pytest.approx(-0.01 * entropy, rel=1e-5)
    assert losses[0] == losses[1] < 0


def test_the_entropy_bonus_raises_the_entropy(make_trainer):
    trainer = make_trainer("grpo_entropy_bonus")
    batch = scored_batch(trainer)
    batch["advantages"] = torch.zeros_like(batch["advantages"])
    before = trainer._compute_loss(trainer.model, batch)
    before.backward()
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            if parameter.grad is not None:
                parameter -= parameter.grad
        assert trainer._compute_loss(trainer.model, batch) < before
