"""The loop against plain TRL, and what credit, rewards and dynamic sampling make of a rollout."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from plain_trl import plain_logprobs, plain_trl
from trainer_parts import (
    assert_equal_weights,
    gradients_of,
    groups_of,
    largest_difference,
    logged,
    loss_of,
    noted,
    rollout_of,
    start,
    weights_of,
    without_advantage,
)

from atrl_bench.credit.workers import CreditWorkers
from atrl_bench.training.length_batching import Part, parts_of
from atrl_bench.training.loop import Loop
from atrl_bench.training.recipe import CreditChoice
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
def test_without_token_credit_training_is_plain_trl_bit_for_bit(make_trainer, name, schedule):
    ours = make_trainer(name, schedule=schedule, **({"dynamic_sampling": None} if name == "dapo" else {}))
    plain = plain_trl(ours)
    ours.train()
    plain.train()
    assert logged(ours, "loss") == logged(plain, "loss")
    assert_equal_weights(ours, plain)


@pytest.mark.parametrize("schedule", ["minibatch4", "strict"])
def test_a_credit_of_one_for_every_token_equals_plain_trl_bit_for_bit(make_trainer, schedule):
    ours = make_trainer("grpo", schedule=schedule)
    plain = plain_trl(ours)
    ours.credit = credit_weights(CreditChoice(rule="uniform"), ours.model, ours.processing_class.tokenizer, 0)
    ours.train()
    plain.train()
    assert logged(ours, "loss") == logged(plain, "loss")
    assert_equal_weights(ours, plain)


@pytest.mark.parametrize("schedule", ["minibatch4", "strict"])
def test_token_credit_changes_the_weights_and_is_logged(make_trainer, schedule):
    uniform, weighted = make_trainer("grpo", schedule=schedule), make_trainer("grpo", schedule=schedule, credit="atrl")
    uniform.train()
    weighted.train()
    assert largest_difference(weights_of(uniform), weights_of(weighted)) > 0
    for name in ("credit/entropy", "credit/top15_share", "credit/num_with_anchors", "seconds/credit"):
        assert logged(weighted, name)


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
    beside.credit.workers = workers = CreditWorkers(1)
    begin, score, events = workers.begin, beside.passes.score, []

    def noted_begin(prepare):
        events.append("begin")
        join = begin(prepare)
        return lambda: [events.append("join"), join()][1]

    def noted_score(model, *arguments, **options):
        if model is beside.ref_model:
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
        with torch.no_grad():
            for parameter in trainer.model.parameters():
                parameter.mul_(1.05)
        losses.append(loss_of(trainer, batch).item())
    assert losses[0] == losses[1] > 0


def test_advantages_per_token_survive_shuffling_and_splitting(make_trainer):
    trainer = make_trainer("grpo", credit="atrl")
    start(trainer)
    whole, order = trainer.make_rollout(trainer.rows[:4])
    parts = trainer.micro_batches(whole, order)
    expected = {
        tuple(ids.tolist()): advantages for ids, advantages in zip(whole.response_ids_BT, whole.advantages, strict=True)
    }
    assert [len(part) for part in parts] == [4] * 4
    assert sorted(order) == list(range(16)) != order
    for part in parts:
        for ids, advantages in zip(part.response_ids_BT, part.advantages, strict=True):
            assert torch.equal(expected[tuple(ids.tolist())], advantages)


def test_with_one_update_per_rollout_grpo_gspo_and_sapo_have_the_same_gradient(make_trainer):
    # No KL in this comparison: GRPO's is a term of its own.
    found = {}
    for name in ("grpo", "gspo", "sapo"):
        trainer = make_trainer(name, schedule="strict", kl_coef=0)
        found[name] = gradients_of(trainer, rollout_of(trainer))
    scale = max(value.abs().max().item() for value in found["grpo"].values())
    assert scale > 0
    assert largest_difference(found["grpo"], found["gspo"]) < 1e-5 * scale
    assert largest_difference(found["grpo"], found["sapo"]) < 1e-5 * scale


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
        batch.response_ids_BT = batch.response_ids_BT.where(kept, trainer.processing_class.tokenizer.pad_token_id)
        found[trim] = gradients_of(trainer, batch)
    scale = max(value.abs().max().item() for value in found[False].values())
    assert largest_difference(found[True], found[False]) < 1e-4 * scale


def drifted_batch(trainer, shift=3e-5):
    """Return a batch whose old log-probabilities are off by a known amount per token, within GSPO's clip range."""
    batch = rollout_of(trainer)
    position_T = torch.arange(batch.response_ids_BT.shape[1])
    batch.old_BT = batch.old_BT - shift * (1 + position_T % 3)
    return batch


def test_gspo_in_its_token_form_equals_gspo_where_the_advantage_is_constant(make_trainer):
    plain = make_trainer("gspo")
    batch = drifted_batch(plain)
    expected = gradients_of(plain, batch)
    token = make_trainer("gspo", credit="atrl")
    start(token)
    found = gradients_of(
        token, replace(batch, advantages=batch.advantages.unsqueeze(1).expand_as(batch.response_ids_BT))
    )
    scale = max(value.abs().max().item() for value in expected.values())
    assert largest_difference(expected, found) < 1e-5 * scale


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
        gradient.view(-1)[0] = number if trainer.state.global_step == 1 else gradient.view(-1)[0]
        return gradient

    next(trainer.model.parameters()).register_hook(broken)
    trainer.train()
    counts = [line["skipped_updates"] for line in trainer.state.log_history if "loss" in line]
    assert counts == [0.0, 1.0, 0.0, 0.0]
    assert all(torch.isfinite(value).all() for value in weights_of(trainer).values())


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


def test_problems_that_do_not_come_out_even_are_answered_twice_and_counted_once(monkeypatch):
    generated = {}

    def groups_of(rows):
        made = {"prompt_ids": [], "token_fields": {}, "response_ids": [[1]] * 2, "logprobs": None}
        return [Group(row, f"0:0:{row}", **made, rewards_GF=torch.zeros(2, 1), example={"here": 1}) for row in rows]

    def process(index):
        monkeypatch.setattr(
            "atrl_bench.training.loop.gather_object",
            lambda own: [
                replace(group, process=other).without_media()
                for other in (0, 1)
                for group in groups_of(dealt_rows[other])
            ],
        )
        trainer = SimpleNamespace(
            generate_own=lambda rows, key: generated.setdefault(index, rows) and groups_of(rows),
            accelerator=SimpleNamespace(process_index=index, num_processes=2),
            note_all=lambda _: None,
            eos_ids=[],
        )
        return Loop.generate(trainer, [5, 6, 7], "0:0")

    dealt_rows = [[5, 6], [7, 5]]
    for index in (0, 1):
        groups = process(index)
        assert generated[index] == dealt_rows[index]
        assert [(group.row, group.process) for group in groups] == [(5, 0), (6, 0), (7, 1)]
        assert [bool(group.example) for group in groups] == [group.process == index for group in groups]


def test_a_sharded_model_generates_in_slices_that_say_what_one_call_says(make_trainer, monkeypatch):
    calls, found = [], {}
    for most in (6, 16):
        monkeypatch.setattr("atrl_bench.training.sampler.sequences_at_once", lambda *_, most=most: most)
        trainer = make_trainer("grpo")
        trainer.sampler.from_one_prefill = False  # as for a model that is sharded over devices
        original = trainer.model.generate

        def greedily(input_ids, generation_config, original=original, **inputs):
            calls.append(len(input_ids))
            generation_config.do_sample = False
            return original(input_ids=input_ids, generation_config=generation_config, **inputs)

        trainer.model.generate = greedily
        found[most] = [group.response_ids for group in groups_of(trainer, range(4))]
    assert calls == [6, 6, 4, 16], "sixteen responses, six at a time, and then all at once"
    assert found[6] == found[16]
    assert len({str(responses[0]) for responses in found[6]}) > 1, "the images differ, and so does what is said of them"


@pytest.mark.parametrize("is_sharded", [False, True])
def test_no_response_has_the_token_of_an_image_or_a_video(make_trainer, is_sharded):
    trainer = make_trainer("grpo")
    trainer.sampler.from_one_prefill = not is_sharded
    media = [trainer.model.config.image_token_id, trainer.model.config.video_token_id]

    def prefer_media(_module, _arguments, output):
        output.logits[..., media] = 1e4

    trainer.model.register_forward_hook(prefer_media)
    groups = groups_of(trainer, [0, 1])
    assert not {token for group in groups for response in group.response_ids for token in response} & set(media)


def test_credit_finds_the_image_where_the_processor_does_not_tell_the_kinds_of_token(make_trainer, monkeypatch):
    seen = []
    for told in (True, False):
        trainer = make_trainer("grpo", credit="atrl")
        original = trainer.credit.weights

        def remember(recording, original=original, **inputs):
            seen.append(inputs["visual_BS"])
            return original(recording, **inputs)

        trainer.credit.weights = remember
        if not told:  # as LLaVA's and InternVL's; the model here needs them, so they are taken away after its pass
            monkeypatch.setattr("atrl_bench.training.passes.parts_of", without_kinds)
        rollout_of(trainer)
    half = len(seen) // 2
    assert all(visual_BS.any(1).all() for visual_BS in seen)
    assert all(torch.equal(left, right) for left, right in zip(seen[:half], seen[half:], strict=True))


def without_kinds(*arguments, **options):
    """Return the parts of a batch, whose kinds of token go to the model and to nobody else."""
    parts = parts_of(*arguments, **options)
    return [Part(part.rows, ForTheModel(part.batch), part.num_tokens) for part in parts]


class ForTheModel(dict):
    def get(self, name, default=None):
        return default if name == "mm_token_type_ids" else super().get(name, default)
