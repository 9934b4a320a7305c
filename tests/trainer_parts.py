"""What tests ask of a loop between its rollouts and its updates; its private methods have their names here alone."""

from dataclasses import replace
from unittest.mock import patch

import torch
from tiny_vlms import token_types

from atrl_bench.training import loop as loop_module
from atrl_bench.training.group_sampling import Responses
from atrl_bench.training.rollout import messages_of


def rollout_of(trainer, rows=None):
    """Return a rollout of four responses to each of these problems, before shuffling."""
    trainer.model.train()
    rollout, *_ = trainer.make_rollout(list(trainer.rows[:4] if rows is None else rows))
    return rollout


def parts_of_rollout(trainer, rows):
    """Return the micro-batches of all updates on one rollout."""
    trainer.model.train()
    updates = trainer.updates_on(*trainer.make_rollout(list(rows)))
    return [part for update in updates for part in update]


def groups_of(trainer, rows):
    """Return the responses to each of these problems, not yet scored."""
    trainer.model.train()
    return trainer.generate(list(rows), "0:0")


def prompts_of(trainer, rows):
    """Return the prompts of these problems as the trainer reads them, each under its row as key."""
    messages = [messages_of(trainer.data.example(row, trainer.run_seed)) for row in rows]
    return trainer.read(messages, list(map(str, rows)))


def logits_alone(model, trainer, row, response_ids=()):
    """Return logits_TV of a response and what follows it, by one forward pass over it alone, without padding."""
    prompts = prompts_of(trainer, [row])
    ids_1S = torch.tensor([[*prompts.token_ids_P[0], *response_ids]])
    kinds = [getattr(model.config, f"{kind}_token_id", None) for kind in ("image", "video")]
    types = {name: token_types(ids_1S, *kinds) for name in prompts.token_fields_P}
    with torch.no_grad():
        # Names unlike those of the trainer's own calls: positions are worked out from grids and seconds here.
        logits_SV = model(input_ids=ids_1S, **types, **prompts.visuals_P[0]).logits[0]
    return logits_SV[-len(response_ids) - 1 :]


def logprobs_alone(model, trainer, row, response_ids):
    logprobs_TV = logits_alone(model, trainer, row, response_ids)[:-1].log_softmax(-1)
    return logprobs_TV.gather(1, torch.tensor(response_ids)[:, None])[:, 0]


def loss_of(trainer, rollout):
    """Return the loss of a rollout that is one update."""
    tokens = trainer.updates_per_rollout * rollout.num_tokens
    rollout = replace(rollout, num_tokens=tokens)
    return trainer.loss(replace(rollout, counts_BT=trainer.counts(rollout, len(rollout))))


def logprobs_of(trainer, rollout):
    """Return logprobs_BT as a training pass has them."""
    return trainer.passes.train(trainer.model, rollout).logprob_BT


def gradients_of(trainer, batch):
    """Return the gradient of a batch's loss, by parameter."""
    trainer.model.zero_grad()
    loss_of(trainer, batch).backward()
    return {name: value.grad.clone() for name, value in trainer.model.named_parameters() if value.grad is not None}


def gradient_of(loss, model):
    """Return the gradient of a loss, in one row."""
    model.zero_grad()
    loss.backward()
    return torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])


def drift(model):
    """Move the weights a little: policy and reference are then two models."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.05)


def trained_gradients(trainer):
    """Train, and return the gradient of each update as its optimiser sees it."""
    found, step = [], trainer.optimizer.step

    def remember(*arguments, **options):
        weights = [weight for group in trainer.optimizer.param_groups for weight in group["params"]]
        found.append(torch.cat([weight.grad.flatten() for weight in weights if weight.grad is not None]).clone())
        return step(*arguments, **options)

    trainer.optimizer.step = remember
    trainer.train()
    return found


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
    return replace(batch, advantages=torch.zeros_like(batch.advantages))


def what_the_loss_sees(trainer, batch):
    """Return the advantages of a batch as the objective reads them, with the credit and other token weights in them."""
    with patch.object(loop_module, "policy_loss", wraps=loop_module.policy_loss) as policy_loss:
        loss_of(trainer, batch)
    return policy_loss.call_args.args[2]


def noted(trainer, name):
    """Return what was noted under this name since the last line of metrics."""
    return [value for value, _ in trainer.notes[name]]


def change_what_is_sampled(trainer, change):
    """Have whatever the trainer samples pass through `change(token ids, log-probabilities)`."""
    original = trainer.sample

    def sample(*arguments, **options):
        token_ids, logprobs, rows = original(*arguments, **options)
        return Responses(*change(token_ids, logprobs), rows)

    trainer.sample = sample


def weights_of(trainer):
    return {name: value.detach().clone() for name, value in trainer.model.state_dict().items()}


def logged(trainer, name):
    """Return the values of a metric, line by line."""
    lines = trainer.lines if hasattr(trainer, "lines") else trainer.state.log_history
    return [line[name] for line in lines if name in line]


def largest_difference(left, right):
    return max((left[name] - right[name]).abs().max().item() for name in left)
