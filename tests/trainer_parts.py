"""What tests ask of a trainer between its rollouts and its updates; its private methods have their names here alone."""

from __future__ import annotations

from unittest.mock import patch

import torch

from atrl_bench.training import trainer as trainer_module
from atrl_bench.training.multimodal import token_types


def start(trainer):
    """Set what `train` would set before the first rollout."""
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1


def rollout_of(trainer, rows=None):
    """Return the batch of one rollout of four responses to each of these problems, before shuffling."""
    start(trainer)
    rows = trainer.train_dataset["row"][:4] if rows is None else rows
    return trainer._generate_and_score_completions([{"row": row} for row in rows for _ in range(4)])


def parts_of_rollout(trainer, rows):
    """Return the batches of the updates of one rollout."""
    start(trainer)
    trainer._prepare_inputs([{"row": row} for row in rows for _ in range(4)])
    return trainer._buffered_inputs


def groups_of(trainer, rows):
    """Return the responses to each of these problems, not yet scored."""
    trainer.model.train()
    return trainer._generate_groups(list(rows), "0:0")


def loss_of(trainer, batch):
    return trainer._compute_loss(trainer.model, batch)


def logprobs_of(trainer, batch):
    """Return logprobs_BT as the trainer's next pass has them."""
    ids_BS = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    mask_BS = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    return trainer._get_per_token_logps_and_entropies(trainer.model, ids_BS, mask_BS, batch["completion_ids"].shape[1])


def gradients_of(trainer, batch):
    """Return the gradient of a batch's loss, by parameter."""
    trainer.model.zero_grad()
    loss_of(trainer, batch).backward()
    return {name: value.grad.clone() for name, value in trainer.model.named_parameters() if value.grad is not None}


def step_down(trainer, batch, size=1.0):
    """Return the loss of a batch before and after one step against its gradient."""
    before = loss_of(trainer, batch)
    before.backward()
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            if parameter.grad is not None:
                parameter -= size * parameter.grad
        return before, loss_of(trainer, batch)


def without_advantage(batch):
    return batch | {"advantages": torch.zeros_like(batch["advantages"])}


def what_the_loss_sees(trainer, batch):
    """Return the advantages of a batch as the objective reads them, with the credit and other token weights in them."""
    with patch.object(trainer_module, "policy_loss", wraps=trainer_module.policy_loss) as policy_loss:
        loss_of(trainer, batch)
    return policy_loss.call_args.args[2]


def noted(trainer, name):
    """Return what was noted under this name since the last line of metrics."""
    return trainer._metrics["train"][name]


def kinds_of_token(trainer, ids_BS):
    return token_types(ids_BS, *trainer._media_ids)


def change_what_is_sampled(trainer, change):
    """Have whatever the trainer samples pass through `change(token ids, log-probabilities)`."""
    original = trainer._generate_single_turn
    trainer._generate_single_turn = lambda *arguments, **options: change(*original(*arguments, **options))


def weights_of(trainer):
    return {name: value.detach().clone() for name, value in trainer.model.state_dict().items()}


def assert_equal_weights(ours, theirs):
    expected = weights_of(theirs)
    for name, value in weights_of(ours).items():
        assert torch.equal(value, expected[name]), name


def logged(trainer, name):
    """Return the values of a metric, line by line."""
    return [line[name] for line in trainer.state.log_history if name in line]


def largest_difference(left, right):
    return max((left[name] - right[name]).abs().max().item() for name in left)
