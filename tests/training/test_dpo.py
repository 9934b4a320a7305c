"""DPO: plain TRL where the credit is uniform, the equation by hand where it is not, and runs that were killed."""

from __future__ import annotations

from functools import partial

import pyarrow.parquet
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from trainer_parts import assert_equal_weights, logged, loss_of
from trl import DPOTrainer

from atrl_bench.errors import InvalidFileError, MissingDataError
from atrl_bench.experiments.cost import training_needs
from atrl_bench.models.local import model_ref
from atrl_bench.profiles import load_profile
from atrl_bench.training.describe import resolved_arguments
from atrl_bench.training.recipe import CreditChoice, load_recipe
from atrl_bench.training.weights.credit import credit_weights

# Pairs a problem: two are enough for four updates of four, one for two.
TWO, ONE = {"max_pairs_per_problem": 2}, {"max_pairs_per_problem": 1}


def plain_trl(ours):
    """Return TRL's own trainer on the same examples, with the same arguments and a fresh model."""
    from transformers import AutoModelForImageTextToText

    return DPOTrainer(
        model=AutoModelForImageTextToText.from_pretrained(ours.model.config._name_or_path, dtype=torch.float32),
        args=ours.args,
        train_dataset=Dataset.from_list([dict(ours.train_dataset[place]) for place in range(len(ours.train_dataset))]),
        processing_class=ours.processing_class,
    )


def test_with_uniform_credit_training_is_plain_trl_bit_for_bit(make_trainer):
    ours = make_trainer("dpo", pairs=ONE)
    assert ours.credit is None
    plain = plain_trl(ours)
    ours.train()
    plain.train()
    assert len(logged(ours, "loss")) > 1
    assert logged(ours, "loss") == logged(plain, "loss")
    assert_equal_weights(ours, plain)


def test_a_credit_of_one_for_every_token_equals_plain_trl_bit_for_bit(make_trainer):
    ours = make_trainer("dpo", pairs=ONE)
    plain = plain_trl(ours)
    ours.credit = credit_weights(CreditChoice(rule="uniform"), ours.ref_model, ours.processing_class.tokenizer, 0)
    ours.train()
    plain.train()
    assert logged(ours, "loss") == logged(plain, "loss")
    assert_equal_weights(ours, plain)


def first_batch(trainer):
    trainer.model.train()
    return trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))


def credit_of(trainer, batch):
    return trainer._credit(batch, trainer.credit)


def drift(trainer):
    """Move the policy away from the reference, or every log-ratio is zero."""
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.mul_(1.05)


def token_logprobs(model, batch):
    """Return logprobs_BS of each position but the first by the plain forward pass, on responses alone."""
    fields = {name: value for name, value in batch.items() if name != "completion_mask"}
    logits = model(**fields).logits[:, :-1].log_softmax(-1)
    logprobs_BS = logits.gather(2, batch["input_ids"][:, 1:, None]).squeeze(2)
    return logprobs_BS * batch["completion_mask"][:, 1:]


def test_the_loss_is_the_equation_of_both_responses_with_their_own_credits(make_trainer):
    trainer = make_trainer("dpo", credit="atrl")
    batch = first_batch(trainer)
    drift(trainer)
    weights_BT = credit_of(trainer, batch)
    assert trainer.recipe.beta == 0.1
    loss = loss_of(trainer, batch)

    with torch.no_grad():
        ratios_BS = token_logprobs(trainer.model, batch) - token_logprobs(trainer.ref_model, batch)
    weighted_B = (ratios_BS[:, -weights_BT.shape[1] :] * weights_BT).sum(1)
    better, worse = weighted_B.chunk(2)
    expected = -torch.nn.functional.logsigmoid(0.1 * (better - worse)).mean()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
    unweighted = ratios_BS.sum(1)
    assert (weighted_B - unweighted).abs().max() > 1e-3
    assert trainer._metrics["train"]["rewards/chosen"][0] == pytest.approx(0.1 * better.mean().item(), rel=1e-3)


def test_credits_have_mean_one_over_each_response_and_are_one_elsewhere(make_trainer):
    trainer = make_trainer("dpo", credit="atrl")
    batch = first_batch(trainer)
    weights_BT = credit_of(trainer, batch)
    mask_BT = batch["completion_mask"][:, -weights_BT.shape[1] :].bool()
    assert not mask_BT.all(), "the responses have different lengths or prompts"
    for weights_T, mask_T in zip(weights_BT, mask_BT, strict=True):
        assert weights_T[mask_T].mean().item() == pytest.approx(1.0, abs=1e-5)
        assert weights_T[mask_T].std() > 0
        assert (weights_T[~mask_T] == 1).all()


@pytest.mark.parametrize(("credit_from", "moves"), [("start", False), ("policy", True)])
def test_the_credit_follows_the_policy_only_where_the_recipe_says_so(make_trainer, credit_from, moves):
    trainer = make_trainer("dpo", credit="raw_attention", credit_from=credit_from)
    batch = first_batch(trainer)
    before = credit_of(trainer, batch)
    drift(trainer)
    assert torch.equal(before, credit_of(trainer, batch)) != moves


def test_without_the_kinds_of_token_from_the_processor_the_credit_is_the_same(make_trainer):
    class ForTheModel(dict):  # which needs them here; LLaVA's and InternVL's do not get any
        def get(self, name, default=None):
            return default if name == "mm_token_type_ids" else super().get(name, default)

    trainer = make_trainer("dpo", credit="atrl", pairs=ONE)
    batch = first_batch(trainer)
    found, expected = (credit_of(trainer, fields) for fields in (ForTheModel(batch), batch))
    assert torch.equal(found, expected)
    assert not (expected == 1).all()


def test_adapters_leave_the_credit_of_the_start_alone(make_trainer):
    trainer = make_trainer("dpo", credit="raw_attention", pairs=ONE, finetuning="lora")
    batch = first_batch(trainer)
    before = credit_of(trainer, batch)
    trainer.train()
    assert trainer.ref_model is None, "one model: without its adapters it is the reference"
    assert torch.equal(before, credit_of(trainer, batch))


def test_by_the_entropy_only_the_policys_own_pass_can_give_a_credit(make_trainer):
    with pytest.raises(InvalidFileError, match="credit_from 'policy'"):
        load_recipe("dpo", credit="high_entropy")
    make_trainer("dpo", credit="high_entropy", credit_from="policy", pairs=ONE).train()


def test_training_widens_the_margin_between_right_and_wrong(make_trainer):
    trainer = make_trainer("dpo", credit="atrl", pairs=ONE, num_epochs=3)
    trainer.train()
    lines = [line for line in trainer.state.log_history if "loss" in line]
    assert lines[0]["loss"] == pytest.approx(0.6931, abs=1e-4), "log 2: policy and reference are one at the start"
    assert lines[-1]["rewards/margins"] > lines[1]["rewards/margins"]
    assert lines[-1]["loss"] < lines[0]["loss"]


@pytest.fixture
def run(run):
    return partial(run, name="dpo", pairs=TWO)


@pytest.mark.parametrize("fields", [{"credit": "atrl"}, {"finetuning": "lora"}], ids=["credit", "adapters"])
def test_a_run_that_was_killed_and_called_again_equals_an_uninterrupted_one(run, pull_the_plug, tmp_path, fields):
    whole = run(tmp_path / "whole", **fields)
    pull_the_plug(partial(run, tmp_path / "killed", **fields), 3)
    assert [path.name for path in (tmp_path / "killed").glob("*/resume/checkpoint-*")] == ["checkpoint-2"]
    assert run(tmp_path / "killed", **fields).digest == whole.digest


def test_a_run_killed_while_it_samples_keeps_the_answers_it_has(run, tmp_path, monkeypatch):
    from atrl_bench.training import pairs

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
    assert {*rows[0]} == {"row", "chosen", "rejected"}
    assert all(row["chosen"] != row["rejected"] for row in rows)
    loaded = load_file(result.checkpoint / "model.safetensors")
    assert all(torch.isfinite(value).all() for value in loaded.values())
    assert {"last rewards/margins", "last rewards/accuracies"} <= result.summary.keys()


def test_a_base_that_gets_everything_wrong_says_what_to_change(run, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "atrl_bench.training.rewards.accuracy.AccuracyReward.__call__",
        lambda self, texts, *_, **__: [-1.0] * len(texts),
    )
    with pytest.raises(MissingDataError, match="gave no pair") as raised:
        run(tmp_path)
    assert "8 with all answers wrong" in str(raised.value)


@pytest.mark.slow
def test_kill_9_while_sampling_and_while_training_and_the_same_call_again_give_the_same_bytes(
    run, kill_9, has_lines, tmp_path, data_dir
):
    whole = run(tmp_path / "whole", credit="atrl")
    folder = tmp_path / "killed" / whole.checkpoint.name
    moments = (
        lambda: any((folder / "resume" / "answers").glob("*.parquet")),
        has_lines(folder / "metrics.jsonl", 3),
    )
    kill_9(moments, data_dir, folder.parent, name="dpo", data="geometry3k", credit="atrl", pairs=TWO)
    assert model_ref(folder).digest == whole.digest


def test_a_dry_run_under_the_paper_profile_counts_two_models():
    recipe, paper = load_recipe("dpo", credit="atrl"), load_profile("paper")
    needs = training_needs(recipe, paper).document()
    resolved = resolved_arguments(recipe, paper, num_devices=needs["gpus"])
    trl = resolved["trl"]
    # 75 rollouts of 512 problems, eight answers and at most four pairs each.
    assert (needs["responses"], needs["pairs"]) == (307_200, 153_600)
    # As many responses an update as under minibatch4: 512 * 8 / 4 = 1024, in pairs 512.
    assert trl["per_device_train_batch_size"] * trl["gradient_accumulation_steps"] * needs["gpus"] == 512
    assert trl["max_steps"] == 153_600 / 512
    # 16 bytes a parameter and four for the frozen copy: 8.29e9 * 20 / 8 GPUs = 20.7 GB; 15 for sampling, 9 reserved;
    # activations of 4 * 6144 tokens: 28 layers * 3584 * 2 bytes = 4.9 GB kept, (8 * 3584 + 4 * 18944) * 2 bytes, 5.1 GB
    # of a layer. On four GPUs it would be 76 GB of 80, of which a tenth has to stay free.
    assert (needs["gpus"], needs["gb_per_gpu"]) == (8, 54.8)
    assert resolved["credit"]["from"] == "start"
