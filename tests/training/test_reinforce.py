"""REINFORCE against its closed form: the mean over responses of sum_t A_t grad log pi(y_t)."""

import pytest
import torch
from plain_trl import plain_logprobs
from trainer_parts import gradient_of, loss_of, rollout_of

from atrl_bench.errors import InvalidFileError
from atrl_bench.training.recipe import load_recipe


def cut_rollout(trainer):
    batch = rollout_of(trainer)
    # The random model never ends a response, so they are cut here, to lengths from 1 to 10.
    kept = torch.arange(10) <= (torch.arange(len(batch)) * 3 % 10)[:, None]
    batch.mask_BT = batch.mask_BT * kept
    return batch


@pytest.mark.parametrize("per_token", [False, True], ids=["advantages of responses", "advantages of tokens"])
def test_the_gradient_is_the_closed_form(make_trainer, per_token):
    trainer = make_trainer("reinforce")
    batch = cut_rollout(trainer)
    if per_token:
        weights_BT = torch.rand(len(batch), 10, generator=torch.Generator().manual_seed(0))
        batch.advantages = batch.advantages[:, None] * weights_BT
    found = gradient_of(loss_of(trainer, batch), trainer.model)

    logprobs_BT = plain_logprobs(trainer, batch)
    advantages_BT = batch.advantages if per_token else batch.advantages[:, None].expand(len(batch), 10)
    objective = (advantages_BT * logprobs_BT * batch.mask_BT).sum() / len(batch)
    expected = gradient_of(-objective, trainer.model)
    assert expected.abs().max() > 0
    assert (found - expected).abs().max() < 1e-5 * expected.abs().max()


def test_it_is_refused_where_responses_would_be_older_than_the_policy():
    with pytest.raises(InvalidFileError, match="no ratio to correct"):
        load_recipe("reinforce", schedule="minibatch4")
