"""Looking at the policy on the way: what is noted, and that the weights are those of a run that nobody looked at."""

import json

import pytest
import torch

from atrl_bench.credit.truth import TokenTruth
from atrl_bench.experiments.rates import NUM_CHECKS, with_checks
from atrl_bench.profiles import load_profile
from atrl_bench.training.metrics import summarise
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.run import run_spec, train
from atrl_bench.training.stability import unrewarded

SMOKE = load_profile("smoke")
RECIPE = load_recipe("grpo", overrides={"num_rollouts": 2, "prompts_per_rollout": 2, "learning_rate": 3e-4})


def trained(recipe, mini_world, out):
    return train(recipe, profile=SMOKE, base_model="mini", data_dir=mini_world, out=out, seed=0)


@pytest.fixture(scope="module")
def both(mini_world, tmp_path_factory):
    looked_at = trained(with_checks(RECIPE, SMOKE), mini_world, tmp_path_factory.mktemp("looked"))
    return trained(RECIPE, mini_world, tmp_path_factory.mktemp("plain")), looked_at


def test_a_run_that_was_looked_at_has_the_weights_and_the_key_of_one_that_was_not(both):
    plain, looked_at = both
    assert looked_at.digest == plain.digest
    assert looked_at.checkpoint.name == plain.checkpoint.name
    specs = [run_spec(recipe, SMOKE, "b", "d", 0) for recipe in (RECIPE, with_checks(RECIPE, SMOKE))]
    assert specs[0] == specs[1]


def test_greedy_answers_and_drift_are_noted_at_each_quarter_of_the_run(both):
    plain, looked_at = both
    lines = [json.loads(line) for line in (looked_at.checkpoint / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "check/greedy" in line] == [2, 4, 6, 8]  # of 8 updates
    assert all(0 <= line["check/greedy"] <= 1 for line in lines if "check/greedy" in line)
    assert all(0 <= line["check/readable"] <= 1 for line in lines if "check/readable" in line)
    assert looked_at.summary["worst readable"] == min(line.get("check/readable", 1.0) for line in lines)
    drifts = [line["check/drift"] for line in lines if "check/drift" in line]
    assert len(drifts) == NUM_CHECKS
    assert 0 < drifts[0] < drifts[-1]
    assert looked_at.summary["last drift"] == drifts[-1]
    assert "last drift" not in plain.summary


def test_the_summary_has_the_worst_and_the_last_greedy_accuracy(tmp_path):
    lines = [{"step": step, "check/greedy": value} for step, value in enumerate((0.5, 0.1, 0.9), start=1)]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    summary = summarise(tmp_path / "metrics.jsonl", 1)
    assert (summary["worst greedy"], summary["last greedy"]) == (0.1, 0.9)


def test_tokens_that_are_neither_read_nor_reasoned_are_rewarded_by_nobody():
    truth = TokenTruth(patterns={"perception": r"see (\d)", "reasoning": r"so (\d)", "format": "(box)"})
    texts = ["see ", "3", " well ", "so ", "6", " box"]
    assert unrewarded(truth, texts).tolist() == [True, False, True, True, False, True]
    assert torch.equal(unrewarded(None, texts), torch.ones(6, dtype=torch.bool))
