"""The local sampler's log-probabilities in place of a pass over what it has sampled."""

from __future__ import annotations

import pytest
import torch
from plain_trl import plain_logprobs
from trainer_parts import change_what_is_sampled, rollout_of

from atrl_bench.training.multimodal import padded
from atrl_bench.training.sampler_check import agree


def count_passes(trainer):
    """Return a list that gets the name of each pass of the policy or the reference."""
    names, original = [], trainer.clock.phase

    def phase(name):
        names.append(name)
        return original(name)

    trainer.clock.phase = phase
    return names


def test_they_are_those_of_a_plain_pass_and_save_one_from_the_second_rollout_on(make_trainer):
    trainer = make_trainer("grpo")
    passes, counts = count_passes(trainer), []
    for _ in range(2):
        passes.clear()
        batch = rollout_of(trainer, range(4))
        counts.append(passes.count("scoring"))
        mask = batch.mask_BT.bool()
        expected = plain_logprobs(trainer, batch)[mask]
        assert expected.abs().min() > 0.01, "this test would see nothing"
        assert torch.allclose(batch.old_BT[mask], expected, atol=1e-5)
        assert batch.sampled_BT is None
    assert counts == [2, 1], "the reference's, and in the first rollout the policy's, to compare"
    assert trainer.pass_record["old_logprobs"] == "of the sampler"


def test_a_sampler_of_another_policy_is_found_out_and_its_log_probabilities_are_not_used(make_trainer):
    trainer = make_trainer("grpo")
    change_what_is_sampled(
        trainer, lambda ids, logprobs: (ids, logprobs and [[value - 0.01 for value in of] for of in logprobs])
    )
    for _ in range(2):
        batch = rollout_of(trainer, range(4))
        mask = batch.mask_BT.bool()
        assert torch.allclose(batch.old_BT[mask], plain_logprobs(trainer, batch)[mask], atol=1e-5)
    assert trainer.pass_record["old_logprobs"] == "of a pass"


def test_they_are_compared_again_once_in_a_while(make_trainer, monkeypatch):
    trainer, counts = make_trainer("grpo"), []
    monkeypatch.setattr("atrl_bench.training.loop.CHECK_EVERY", 1)
    passes = count_passes(trainer)
    for _ in range(2):
        passes.clear()
        batch = rollout_of(trainer, range(4))
        counts.append(passes.count("scoring"))
    assert counts == [2, 2], "the reference's, and each time the policy's, to compare"
    assert trainer.pass_record["old_logprobs"] == "of the sampler"
    assert batch.old_BT is not None


@pytest.mark.parametrize(
    ("recipe", "options"),
    [("grpo", {"credit": "atrl"}), ("grpo", {"schedule": "strict"}), ("vppo", {}), ("actor_critic", {})],
)
def test_a_method_that_needs_the_pass_makes_it(make_trainer, recipe, options):
    assert not make_trainer(recipe, **options).keeps_logprobs


def test_padding_is_zero_and_a_nan_never_agrees():
    sampled_BT = padded([[-1.0, -2.0], [-3.0]], 0.0, "right")
    assert sampled_BT.tolist() == [[-1.0, -2.0], [-3.0, 0.0]]
    mask_BT = sampled_BT != 0
    assert agree(sampled_BT, sampled_BT + 5e-5, mask_BT)
    assert not agree(sampled_BT, sampled_BT + 2e-4, mask_BT)
    assert not agree(sampled_BT * float("nan"), sampled_BT, mask_BT)
