"""DPO: plain TRL where the credit is uniform, the equation by hand where it is not, and whole runs."""

import json
import math
from functools import partial
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pyarrow.parquet
import pytest
import torch
from datasets import Dataset
from PIL import Image
from plain_trl import plain_logprobs
from safetensors.torch import load_file
from trainer_parts import drift, gradient_of, noted
from trl import DPOConfig, DPOTrainer

from atrl_bench.errors import InvalidFileError, MissingDataError
from atrl_bench.experiments.cost import training_needs
from atrl_bench.plugins import plugins
from atrl_bench.profiles import load_profile
from atrl_bench.training import pairs
from atrl_bench.training.describe import resolved_arguments
from atrl_bench.training.recipe import CreditChoice, load_recipe
from atrl_bench.training.rollout import joined_visuals
from atrl_bench.training.weights.credit import credit_weights

# Pairs a problem: two are enough for four updates of four, one for two.
TWO, ONE = {"max_pairs_per_problem": 2}, {"max_pairs_per_problem": 1}


def first_batch(trainer):
    """Return the pairs of the first update, all at once."""
    trainer.model.train()
    return trainer.batch(trainer.order[: trainer.per_update])


def credit_of(trainer, batch):
    """Return the credits that a loss multiplies by."""
    seen, wait = [], trainer.waited_for
    trainer.waited_for = lambda credit: seen.append(wait(credit)) or seen[-1]
    trainer.loss(batch)
    trainer.waited_for = wait
    return seen[0]


def ratios_of(trainer, batch):
    """Return log pi / pi_ref of each token by plain forward passes."""
    reference = SimpleNamespace(model=trainer.reference, sizes=trainer.sizes)
    return plain_logprobs(trainer, batch, 1.0) - plain_logprobs(reference, batch, 1.0)


@pytest.mark.parametrize("credit", ["uniform", "ones"])
def test_without_credit_the_loss_and_the_gradient_are_those_of_plain_trl(make_trainer, tmp_path, credit):
    ours = make_trainer("dpo", pairs=ONE)
    batch = first_batch(ours)
    drift(ours.model)
    if credit == "ones":
        ours.credit = credit_weights(CreditChoice(rule="uniform"), ours.reference, ours.processor.tokenizer, 0)
    loss = ours.loss(batch)
    found = gradient_of(loss, ours.model)
    ours.release()

    example = ours.data.example(0, 0)
    row = {name: example[name] for name in ("prompt", "images")}
    row |= {kind: [{"role": "assistant", "content": kind}] for kind in ("chosen", "rejected")}
    config = DPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to=[], beta=0.1, max_length=None)
    plain = DPOTrainer(ours.model, ours.reference, args=config, train_dataset=Dataset.from_list([row]))
    order = [*range(0, len(batch), 2), *range(1, len(batch), 2)]  # first the better ones, then the worse
    pairs, num_tokens = batch.take(order), batch.mask_BT.shape[1]
    inputs = {"input_ids": pairs.input_ids, "attention_mask": pairs.attention_mask, **pairs.token_fields}
    completion_mask = torch.nn.functional.pad(pairs.mask_BT, (pairs.prompt_ids_BS.shape[1], 0))
    inputs |= {"completion_mask": completion_mask, **joined_visuals(pairs.visuals_B, pairs.mask_BT.device)}
    expected = plain._compute_loss(plain.model, inputs, return_outputs=False)
    assert num_tokens > 1
    assert abs(loss.item() - math.log(2)) > 1e-3, "the policy is not the reference"
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    theirs = gradient_of(expected, plain.model)
    assert theirs.abs().max() > 1e-3
    assert (found - theirs).abs().max() < 1e-6


def test_the_loss_is_the_equation_of_both_responses_with_their_own_credits(make_trainer):
    trainer = make_trainer("dpo", credit="atrl")
    batch = first_batch(trainer)
    drift(trainer.model)
    weights_BT = credit_of(trainer, batch)
    assert trainer.recipe.beta == 0.1
    loss = trainer.loss(batch)

    with torch.no_grad():
        ratios_BT = ratios_of(trainer, batch)
    weighted_B = (ratios_BT * weights_BT).sum(1)
    better, worse = weighted_B[0::2], weighted_B[1::2]
    expected = -torch.nn.functional.logsigmoid(0.1 * (better - worse)).mean()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
    assert (weighted_B - ratios_BT.sum(1)).abs().max() > 1e-3
    assert noted(trainer, "rewards/chosen")[-1] == pytest.approx(0.1 * better.mean().item(), rel=1e-3)


def test_an_answer_that_was_cut_at_the_length_limit_is_not_taught_to_end(make_trainer, monkeypatch):
    sampled, original = [], pairs.sample_groups

    def sample(*arguments, eos_ids, **options):
        responses = original(*arguments, eos_ids=eos_ids, **options)
        for token_ids in responses.token_ids[::2]:
            token_ids[-1] = eos_ids[-1]  # half of them end, where the random model hardly ever does
        sampled.extend(responses.token_ids)
        return responses

    monkeypatch.setattr(pairs, "sample_groups", sample)
    trainer = make_trainer("dpo", pairs=ONE)
    tokenizer, batch = trainer.processor.tokenizer, first_batch(trainer)
    ended = {tokenizer.decode(ids, skip_special_tokens=True): ids[-1] == sampled[0][-1] for ids in sampled}
    taught = [trainer.pairs[number] for number in trainer.order[: trainer.per_update]]
    wanted = [ended[text] for pair in taught for text in (pair.chosen, pair.rejected)]
    last_B1 = batch.mask_BT.sum(1, keepdim=True) - 1
    found = (batch.response_ids_BT.gather(1, last_B1)[:, 0] == tokenizer.eos_token_id).tolist()
    assert found == wanted
    assert {*wanted} == {True, False}


def test_the_row_that_stands_in_for_a_damaged_one_brings_its_own_responses(open_trainer, tmp_path):
    rows = [{"prompt": f"{n}?", "image": f"{n}.png", "chosen": f"It is {n}.", "rejected": f"no {n}"} for n in range(3)]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for number in range(3):
        Image.new("RGB", (56, 56)).save(tmp_path / f"{number}.png")
    (tmp_path / "1.png").write_bytes((tmp_path / "1.png").read_bytes()[:60])
    trainer = open_trainer(load_recipe("dpo", data=f"{tmp_path}/mine.jsonl", pairs=None), None)
    batch = trainer.batch([1])
    decoded = trainer.processor.tokenizer.batch_decode(batch.input_ids, skip_special_tokens=True)
    assert [("2?" in text, "1" in text) for text in decoded] == [(True, False)] * 2


@pytest.mark.parametrize(("credit_from", "moves"), [("start", False), ("policy", True)])
def test_the_credit_follows_the_policy_only_where_the_recipe_says_so(make_trainer, credit_from, moves):
    trainer = make_trainer("dpo", credit="raw_attention", credit_from=credit_from)
    batch = first_batch(trainer)
    before = credit_of(trainer, batch)
    drift(trainer.model)
    assert torch.equal(before, credit_of(trainer, batch)) != moves


def test_adapters_leave_the_credit_of_the_start_alone(make_trainer):
    trainer = make_trainer("dpo", credit="raw_attention", pairs=ONE, finetuning="lora")
    batch = first_batch(trainer)
    before = credit_of(trainer, batch)
    trainer.train()
    assert trainer.reference is None, "one model: without its adapters it is the reference"
    assert torch.equal(before, credit_of(trainer, batch))


def test_by_the_entropy_only_the_policys_own_pass_can_give_a_credit(make_trainer):
    with pytest.raises(InvalidFileError, match="credit_from 'policy'"):
        load_recipe("dpo", credit="high_entropy")
    make_trainer("dpo", credit="high_entropy", credit_from="policy", pairs=ONE).train()


def test_what_a_rule_of_another_package_reads_is_asked_before_pairs_are_sampled(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(plugins("rules"), "mine", EntryPoint("mine", "rule_of_entropy:rule", "atrl_bench.rules"))
    (tmp_path / "rule_of_entropy.py").write_text("def rule(*_): ...\nrule.needs = {'entropy'}")
    with pytest.raises(InvalidFileError, match="'mine' reads the policy's entropy"):
        load_recipe("dpo", credit="mine")


def test_training_widens_the_margin_between_right_and_wrong(make_trainer):
    trainer = make_trainer("dpo", credit="atrl", pairs=ONE, num_epochs=4)
    trainer.train()
    lines = trainer.lines
    assert lines[0]["loss"] == pytest.approx(0.6931, abs=1e-4), "log 2: policy and reference are one at the start"
    assert lines[-1]["rewards/margins"] > lines[1]["rewards/margins"]
    assert lines[-1]["loss"] < lines[0]["loss"]


@pytest.fixture
def run(run):
    return partial(run, name="dpo", pairs=TWO)


def test_a_run_killed_while_it_samples_keeps_the_answers_it_has(run, tmp_path, monkeypatch):
    original, sampled = pairs._sampled, []

    def sample_once(rows, *rest):
        if len(sampled) == 1:
            raise InterruptedError
        sampled.append(rows)
        return original(rows, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(pairs, "_sampled", sample_once)
        with pytest.raises(InterruptedError):
            run(tmp_path / "killed")
    (part,) = (tmp_path / "killed").glob("*/resume/answers/*")
    asked = []
    monkeypatch.setattr(pairs, "_sampled", lambda rows, *rest: asked.append(rows) or original(rows, *rest))
    resumed = run(tmp_path / "killed")
    assert part.name == "0.parquet"
    assert len(asked) == 1, "two rollouts' worth of problems, of which the first was there"
    whole = run(tmp_path / "whole")
    assert resumed.digest == whole.digest


def test_the_pairs_of_a_run_are_a_table_beside_its_checkpoint(run, tmp_path):
    result = run(tmp_path)
    rows = pyarrow.parquet.read_table(result.checkpoint / "pairs.parquet").to_pylist()
    assert rows
    assert {*rows[0]} == {"row", "chosen", "rejected", "chosen_is_cut", "rejected_is_cut"}
    assert all(row["chosen"] != row["rejected"] for row in rows)
    loaded = load_file(result.checkpoint / "model.safetensors")
    assert all(torch.isfinite(value).all() for value in loaded.values())
    assert {"last rewards/margins", "last rewards/accuracies"} <= result.summary.keys()


def test_a_base_that_gets_everything_wrong_says_what_to_change(run, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "atrl_bench.training.rewards.combined.AccuracyReward.__call__",
        lambda self, texts, *_, **__: [-1.0] * len(texts),
    )
    with pytest.raises(MissingDataError, match="gave no pair") as raised:
        run(tmp_path)
    assert "8 with all answers wrong" in str(raised.value)


def test_a_dry_run_under_the_paper_profile_counts_two_models():
    recipe, paper = load_recipe("dpo", credit="atrl"), load_profile("paper")
    needs = training_needs(recipe, paper).document()
    resolved = resolved_arguments(recipe, paper, num_devices=needs["gpus"])
    updates = resolved["updates"]
    # 75 rollouts of 512 problems, eight answers and at most four pairs each.
    assert (needs["responses"], needs["pairs"]) == (307_200, 153_600)
    # As many responses an update as under minibatch4: 512 * 8 / 4 = 1024, in pairs 512.
    assert updates["responses_at_once"] * updates["micro_batches"] * needs["gpus"] == 1024
    assert updates["number"] == 153_600 / 512
    # In an update 18 bytes a parameter, two of them of the frozen copy: 8.29e9 * 18 / 4 GPUs = 37.3 GB; activations
    # 10.0; 9 bytes for each of 1.8e9 weights outside of layers, 16.1; 4 reserved.
    assert (needs["gpus"], needs["gb_per_gpu"]) == (4, 67.5)
    assert resolved["credit"]["from"] == "start"
