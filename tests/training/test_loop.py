"""The loop against plain TRL, and what credit, rewards and dynamic sampling make of a rollout."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from plain_trl import plain_logprobs, plain_trl
from trainer_parts import (
    drift,
    gradients_of,
    groups_of,
    largest_difference,
    logged,
    loss_of,
    noted,
    rollout_of,
    trained_gradients,
    weights_of,
    without_advantage,
)

from atrl_bench.credit.workers import CreditWorkers
from atrl_bench.errors import AtrlBenchError
from atrl_bench.training.advantages import group_relative
from atrl_bench.training.loop import Loop
from atrl_bench.training.recipe import CreditChoice
from atrl_bench.training.rewards.combined import Rewards
from atrl_bench.training.rollout import Group
from atrl_bench.training.weights.credit import credit_weights


@pytest.mark.parametrize(
    ("name", "schedule"),
    [
        ("grpo", "minibatch4"),
        ("grpo", "strict"),
        ("sapo", "minibatch4"),
        ("gspo", "minibatch4"),
        ("dapo", "minibatch4"),
    ],
)
def test_without_token_credit_every_update_has_the_loss_and_the_gradient_of_plain_trl(make_trainer, name, schedule):
    ours = make_trainer(name, schedule=schedule, **({"dynamic_sampling": None} if name == "dapo" else {}))
    assert_trains_like(ours, plain_trl(ours, steps=0.05))


@pytest.mark.parametrize(("credit", "most"), [("uniform", 19), ("atrl", 34)])
def test_a_rollout_and_the_updates_on_it_run_in_few_files(make_trainer, entered_files, credit, most):
    trainer = make_trainer("grpo", credit=credit)

    def train_on(rollout):
        for update in trainer.updates(rollout):
            trainer.update(update)
            trainer.step += 1

    trainer.model.train()
    train_on(0)  # once in a run are the optimiser made and the sampler compared with the policy
    with entered_files() as files:
        train_on(1)
    assert {"training/loop.py", "training/losses.py"} < files
    assert len(files) <= most, sorted(files)


@pytest.mark.parametrize("schedule", ["minibatch4", "strict"])
def test_with_a_credit_of_one_for_every_token_it_does_too(make_trainer, schedule):
    ours = make_trainer("grpo", schedule=schedule)
    plain = plain_trl(ours, steps=0.05)
    ours.credit = credit_weights(CreditChoice(rule="uniform"), ours.model, ours.processor.tokenizer, 0)
    assert_trains_like(ours, plain)


def assert_trains_like(ours, plain):
    found, expected = trained_gradients(ours), trained_gradients(plain)
    assert len(found) == len(expected) == ours.num_updates
    for mine, theirs in zip(found, expected, strict=True):
        assert theirs.abs().max() > 1e-3
        assert (mine - theirs).abs().max() < 1e-6
    assert logged(ours, "loss") == pytest.approx(logged(plain, "loss"), abs=1e-6)


def test_credit_multiplies_each_token_of_a_response_and_keeps_its_mean(make_trainer):
    plain, weighted = rollout_of(make_trainer("grpo")), rollout_of(make_trainer("grpo", credit="atrl"))
    assert torch.equal(plain.response_ids_BT, weighted.response_ids_BT)
    advantages_B, advantages_BT, mask_BT = plain.advantages, weighted.advantages, weighted.mask_BT
    assert advantages_BT.shape == mask_BT.shape
    means_B = (advantages_BT * mask_BT).sum(1) / mask_BT.sum(1)
    assert torch.allclose(means_B, advantages_B, atol=1e-5)
    assert (advantages_BT.std(1)[advantages_B != 0] > 0).any()


def test_credit_of_workers_is_waited_for_after_the_reference_pass(make_trainer):
    plain, beside = make_trainer("grpo", credit="atrl"), make_trainer("grpo", credit="atrl")
    plain.keeps_logprobs = beside.keeps_logprobs = False  # the rows are those of the pass for the old policy
    beside.credit.workers = workers = CreditWorkers(1)
    begin, score, events = workers.begin, beside.passes.score, []

    def noted_begin(prepare):
        events.append("begin")
        join = begin(prepare)
        return lambda: [events.append("join"), join()][1]

    def noted_score(model, *arguments, **options):
        if model is beside.reference:
            events.append("reference")
        return score(model, *arguments, **options)

    workers.begin, beside.passes.score = noted_begin, noted_score
    batch = rollout_of(beside)
    workers.close()
    num_parts = events.count("begin")
    assert events == ["begin"] * num_parts + ["reference"] + ["join"] * num_parts
    assert num_parts > 0
    assert torch.equal(batch.advantages, rollout_of(plain).advantages)


def test_the_kl_term_does_not_see_the_credit(make_trainer):
    # With every advantage at zero the loss is the KL term alone.
    losses = []
    for credit in ("uniform", "atrl"):
        trainer = make_trainer("grpo", credit=credit)
        batch = without_advantage(rollout_of(trainer))
        drift(trainer.model)
        losses.append(loss_of(trainer, batch).item())
    assert losses[0] == losses[1] > 0


@pytest.mark.parametrize("schedule", ["minibatch4", "strict"])
def test_without_its_padding_a_batch_has_the_same_loss_and_gradient(make_trainer, schedule):
    found = {}
    for trim in (True, False):
        trainer = make_trainer("grpo", schedule=schedule, credit="atrl")
        trainer.passes.trim_padding = trim
        batch = rollout_of(trainer)
        # The random model never ends a response, so they are cut here, to lengths from 1 to 10.
        kept = torch.arange(10) <= (torch.arange(16) * 3 % 10)[:, None]
        batch.mask_BT = batch.mask_BT * kept
        batch.response_ids_BT = batch.response_ids_BT.where(kept, trainer.processor.tokenizer.pad_token_id)
        found[trim] = gradients_of(trainer, batch)
    scale = max(value.abs().max().item() for value in found[False].values())
    assert largest_difference(found[True], found[False]) < 1e-4 * scale


def drifted_batch(trainer, shift=3e-5):
    """Return a batch whose old log-probabilities are off by a known amount per token, within GSPO's clip range."""
    batch = rollout_of(trainer)
    position_T = torch.arange(batch.response_ids_BT.shape[1])
    batch.old_BT = batch.old_BT - shift * (1 + position_T % 3)
    return batch


def test_gspo_in_its_token_form_is_a_weighted_sum_of_token_gradients(make_trainer):
    trainer = make_trainer("gspo", credit="atrl")
    batch = drifted_batch(trainer)
    assert batch.advantages.ndim == 2
    found = gradients_of(trainer, batch)
    # The same by hand: mean over responses of 1/T sum_t s A_t log pi(y_t), s held fixed.
    trainer.model.zero_grad()
    logprobs = plain_logprobs(trainer, batch)
    token_mask = batch.mask_BT
    log_ratio = ((logprobs.detach() - batch.old_BT) * token_mask).sum(1) / token_mask.sum(1)
    assert ((log_ratio.exp() - 1).abs() < 3e-4).all(), "inside the clip range, where nothing is clipped"
    per_response = (log_ratio.exp()[:, None] * batch.advantages * logprobs * token_mask).sum(1) / token_mask.sum(1)
    (-per_response.mean()).backward()
    expected = {name: value.grad for name, value in trainer.model.named_parameters() if value.grad is not None}
    scale = max(value.abs().max().item() for value in expected.values())
    assert largest_difference(expected, found) < 1e-4 * scale


def test_ft_rl_averages_over_the_tokens_it_selects(make_trainer):
    trainer = make_trainer("ft_rl", dynamic_sampling=None, overlong_cache_fraction=None)
    batch = rollout_of(trainer)
    batch.advantages = torch.ones_like(batch.advantages)
    # Ratio one and advantage one: every selected token contributes -1, so their mean is -1, whatever the share.
    part = replace(batch, old_BT=None)
    assert loss_of(trainer, part).item() == pytest.approx(-1.0, abs=1e-6)


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_an_update_with_one_number_in_its_gradient_that_is_not_finite_is_skipped_and_counted(make_trainer, number):
    """Clipping spreads a NaN over the whole gradient; of an infinity it makes one NaN, and zeros of the rest."""
    trainer = make_trainer("sapo", overrides={"weight_decay": 0.0})

    def broken(gradient):
        gradient = gradient.clone()
        gradient.view(-1)[0] = number if trainer.step == 1 else gradient.view(-1)[0]
        return gradient

    next(trainer.model.parameters()).register_hook(broken)
    trainer.train()
    counts = [line["skipped_updates"] for line in trainer.lines if "loss" in line]
    assert counts == [0.0, 1.0, 0.0, 0.0]
    assert all(torch.isfinite(value).all() for value in weights_of(trainer).values())


def test_a_training_whose_every_gradient_is_not_finite_is_no_training(make_trainer):
    trainer = make_trainer("sapo")
    next(trainer.model.parameters()).register_hook(lambda gradient: gradient * math.nan)
    with pytest.raises(AtrlBenchError, match="has changed nothing"):
        trainer.train()
    [checkpoint] = trainer.checkpoints.folder.iterdir()
    again = make_trainer("sapo")
    again.resume(checkpoint)  # the same command once more, whose updates are all done
    with pytest.raises(AtrlBenchError, match="has changed nothing"):
        again.train()


def test_an_only_update_that_would_be_the_first_of_a_warm_up_is_refused_since_its_rate_is_zero(make_trainer):
    trainer = make_trainer("grpo", schedule="strict", num_rollouts=1, warmup_steps=1)
    with pytest.raises(AtrlBenchError, match="only update of this training has a learning rate of 0"):
        trainer.train()


def give_rewards(trainer, *columns):
    """Have every group of four responses get these rewards, a column for each reward function."""
    rewards_GF = torch.tensor(columns).T
    trainer.rewards.of_responses = lambda examples, *_: rewards_GF.repeat(len(examples), 1)
    return trainer


def test_responses_that_differ_in_any_reward_get_their_credit(make_trainer):
    trainer = make_trainer("grpo", credit="atrl", overlong_cache_fraction=0.2)
    batch = rollout_of(give_rewards(trainer, [1.0] * 4, [0.0, 0.0, -0.5, -1.0]))  # all are right, and two too long
    assert (batch.advantages.abs().sum(1) > 0).all()
    assert (batch.advantages.std(1) > 0).all()


def test_the_reward_of_a_response_is_the_weighted_sum_of_its_rewards(make_trainer):
    trainer = make_trainer("grpo", overlong_cache_fraction=0.2)
    give_rewards(trainer, [1.0, -1.0, 1.0, 1.0], [0.0, 0.0, -0.5, -1.0])
    trainer.rewards.weights = torch.tensor([0.5, 2.0])
    [group] = groups_of(trainer, [0])
    assert trainer.rewards.total(group).tolist() == [0.5, -0.5, -0.5, -1.5]


def test_dynamic_sampling_leaves_only_groups_with_both_kinds_of_answer(make_trainer):
    trainer = make_trainer("dapo", overlong_cache_fraction=None)
    calls = []

    def first_group_all_correct(examples, *_):
        calls.append(len(examples))
        return torch.tensor([[1.0] * 4] + [[1.0, -1.0] * 2] * (len(examples) - 1)).reshape(-1, 1)

    trainer.rewards.of_responses = first_group_all_correct
    batch = rollout_of(trainer)
    assert calls == [4, 2], "one group was constant, so two further problems were drawn for it"
    assert (batch.advantages.abs() > 0).all()
    assert noted(trainer, "dynamic_sampling/num_generations") == [2.0]
    assert noted(trainer, "dynamic_sampling/num_unfilled") == [0.0]


def test_equal_rewards_have_no_advantage_though_their_mean_rounds_to_another_number():
    reward_PG = torch.full((2, 8), 0.7)
    assert reward_PG[0].mean() < reward_PG[0, 0], "in single precision eight times 0.7 by eight is less"
    reward_PG[1, 0] = math.nan
    assert not group_relative(reward_PG).any()


def test_a_problem_that_comes_twice_in_a_rollout_is_answered_anew(make_trainer):
    trainer = make_trainer("grpo")
    once, again = trainer.generate([3, 3], "0:0")
    assert once.response_ids != again.response_ids
    assert once.response_ids == trainer.generate([3], "0:0")[0].response_ids


def test_what_a_reward_logs_is_of_the_problems_that_count_and_of_as_many_as_it_says(make_trainer):
    trainer, given = make_trainer("grpo"), []

    def lengths(completion_ids, log_metric, **_):
        given.append(len(completion_ids))
        log_metric("of all", 1.0)
        log_metric("of three", 1.0, count=3)
        return [0.0] * len(completion_ids)

    trainer.rewards = Rewards([lengths])
    groups = trainer.generate_own([3, 4, 5], ["0:0:3", "0:0:4", "0:0:5"], 2)
    assert [group.row for group in groups] == [3, 4]
    assert given == [8], "four responses to each of two problems"
    assert [trainer.notes[name] for name in ("of all", "of three")] == [[(1.0, 8.0)], [(1.0, 3.0)]]
    assert trainer.generate_own([3], ["0:0:3"], 0) == []
    assert given == [8], "a reward is not asked about nothing"


def test_problems_that_do_not_come_out_even_are_answered_twice_and_counted_once():
    generated = {}

    def groups_of(rows):
        made = {"prompt_ids": [], "token_fields": {}, "response_ids": [[1]] * 2, "logprobs": None}
        return [Group(row, f"0:0:{row}", **made, rewards_GF=torch.zeros(2, 1), example={"here": 1}) for row in rows]

    def process(index):
        def gather(_own):
            return [
                replace(group, process=other).without_media()
                for other in (0, 1)
                for group in groups_of(counted_rows[other])
            ]

        trainer = SimpleNamespace(
            generate_own=lambda rows, _, count: generated.setdefault(index, rows) and groups_of(rows[:count]),
            processes=SimpleNamespace(index=index, count=2, meet=lambda *_: None, gather=gather),
            note_all=lambda _: None,
            eos_ids=[],
        )
        return Loop.generate(trainer, [5, 6, 7], "0:0")

    dealt_rows, counted_rows = [[5, 6], [7, 5]], [[5, 6], [7]]
    for index in (0, 1):
        groups = process(index)
        assert generated[index] == dealt_rows[index]
        assert [(group.row, group.process) for group in groups] == [(5, 0), (6, 0), (7, 1)]
        assert [bool(group.example) for group in groups] == [group.process == index for group in groups]
