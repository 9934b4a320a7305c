"""The signal of credit rules at the mini base, measured as its user would."""

from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

from atrl_bench.analysis.signal.gradients import gradient_meter
from atrl_bench.cli import app
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import Rollouts, load_profile

ORACLE = "oracle_perception"


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    return RunDir.at(tmp_path_factory.mktemp("signal"), load_profile("smoke"), None)


@pytest.fixture(scope="module")
def meter(run_dir):
    data_dir = run_dir.data_dir("virl39k")
    with gradient_meter(
        run_dir.root / "meter", "mini", data_dir, run_dir.profile, "grpo", ["uniform", ORACLE], 0
    ) as it:
        yield it


def test_the_gradient_of_uniform_credit_is_that_of_the_trainers_loss(meter):
    prompt = next(found for row in range(20) if (found := meter.of_prompt(row)).gradient_RD is not None)
    gradient_D = torch.cat([weight.grad.flatten() for weight in meter._parameters])  # of the last rule asked
    assert torch.equal(prompt.gradient_RD[1], gradient_D)
    assert 0 < prompt.success < 1
    assert prompt.top_share_R[0] == pytest.approx(0.15, abs=0.06)  # whole tokens, rounded up


def test_a_folder_whose_trainings_vllm_samples_is_measured_with_the_model_itself(run_dir, tmp_path):
    by_vllm = run_dir.profile.model_copy(update={"rollouts": Rollouts(engine="vllm")})
    with gradient_meter(tmp_path, "mini", run_dir.data_dir("virl39k"), by_vllm, "grpo", ["uniform"], 0) as made:
        assert made.trainer.vllm is None


def test_a_step_up_the_gradient_is_undone_and_changes_what_is_sampled(meter):
    before = [weight.detach().clone() for weight in meter._parameters]
    here = meter.success([1, 2, 3])
    assert meter.success([1, 2, 3]) == here
    generator = torch.Generator().manual_seed(0)
    assert meter.success([1, 2, 3], 1e4 * torch.randn(meter.num_parameters, generator=generator)) == 0.0
    assert all(torch.equal(one, other) for one, other in zip(before, meter._parameters, strict=True))


def test_the_command_prints_a_row_a_rule_and_what_a_step_gains(tmp_path):
    arguments = ["signal", "--profile", "smoke", "--out", str(tmp_path), "--prompts", "9", "--held-out", "2"]
    result = CliRunner().invoke(app, [*arguments, "--rules", f"random,{ORACLE}", "--json"])
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert [one["rule"] for one in record["rules"]] == ["uniform", "random", ORACLE]
    uniform, random, _ = record["rules"]
    assert 0.1 < uniform["top_share"] < 0.25
    assert random["repeated"] < 0.5
    assert uniform["step"]["over_uniform"]["mean"] == 0.0
    assert record["responses"] == 9 * load_profile("smoke").training.group_size


def test_a_rule_that_needs_entropies_and_an_unknown_one_are_refused(tmp_path):
    for rule, said in (("high_entropy", "entropies"), ("atlr", "atrl")):
        result = CliRunner().invoke(app, ["signal", "--profile", "smoke", "--out", str(tmp_path), "--rules", rule])
        assert result.exit_code != 0
        assert said in result.output + str(result.exception)


def test_the_base_of_a_world_is_measured_on_its_own_problems_whose_tokens_are_known(tmp_path):
    arguments = ["signal", "mini-reasoning", "--profile", "smoke", "--out", str(tmp_path), "--prompts", "9"]
    rules = ["--rules", "raw_attention,oracle_perception,oracle_reasoning", "--held-out", "0", "--json"]
    result = CliRunner().invoke(app, [*arguments, *rules])
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    areas = {one["rule"]: one["anchor_auc"] for one in record["rules"]}
    assert record["data"] == "code_words"
    assert areas["oracle_perception"] == 1.0
    assert areas["raw_attention"] > 0.9, "this base looks at the image where it reads"
    assert areas["oracle_reasoning"] < 0.5
