"""The signal of credit rules at the mini base, measured as its user would."""

import json
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from atrl_bench.cli import app
from atrl_bench.credit import CreditConfig
from atrl_bench.errors import InvalidFileError
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.lab.signal.gradients import gradient_meter
from atrl_bench.lab.signal.measure import measured_signal
from atrl_bench.lab.signal.price import signal_price
from atrl_bench.lab.signal.request import RuleChoice, SignalRequest, signal_request
from atrl_bench.profiles import Rollouts, load_profile

ORACLE = "oracle_perception"


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    return RunDir.at(tmp_path_factory.mktemp("signal"), load_profile("smoke"), None)


def asked(*rules, parameters="all"):
    return SignalRequest("mini", "grpo", "virl39k", ("uniform", *rules), 9, 0, 0, parameters)


@pytest.fixture(scope="module")
def meter(run_dir):
    with gradient_meter(asked(ORACLE), run_dir, run_dir.root / "meter") as it:
        yield it


def test_the_gradient_of_uniform_credit_is_that_of_the_trainers_loss(meter):
    prompt = next(found for row in range(20) if (found := meter.of_prompt(row)).gradient_RD is not None)
    gradient_D = torch.cat([weight.grad.flatten() for weight in meter.weights])  # of the last rule asked
    assert torch.equal(prompt.gradient_RD[1], gradient_D)
    assert 0 < prompt.success < 1
    assert prompt.top_share_R[0] == pytest.approx(0.15, abs=0.06)  # whole tokens, rounded up


def test_a_folder_whose_trainings_vllm_samples_is_measured_with_the_model_itself(run_dir, tmp_path):
    by_vllm = run_dir.profile.model_copy(update={"rollouts": Rollouts(engine="vllm")})
    with gradient_meter(asked(), replace(run_dir, profile=by_vllm), tmp_path) as made:
        assert made.trainer.vllm is None


def test_a_step_up_the_gradient_is_undone_and_changes_what_is_sampled(meter):
    before = [weight.detach().clone() for weight in meter.weights]
    here = meter.success([1, 2, 3])
    assert meter.success([1, 2, 3]) == here
    generator = torch.Generator().manual_seed(0)
    assert meter.success([1, 2, 3], 1e4 * torch.randn(meter.num_parameters, generator=generator)) == 0.0
    assert all(torch.equal(one, other) for one, other in zip(before, meter.weights, strict=True))


def test_the_command_prints_a_row_a_rule_and_what_a_step_gains(tmp_path):
    arguments = ["signal", "--profile", "smoke", "--out", str(tmp_path), "--prompts", "9", "--held-out", "2"]
    result = CliRunner().invoke(app(), [*arguments, "--rules", f"random,{ORACLE}", "--json"])
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert [one["rule"] for one in record["rules"]] == ["uniform", "random", ORACLE]
    assert record["advice"]["sentence"].startswith(("Train", "This cannot tell"))
    uniform, random, _ = record["rules"]
    assert 0.1 < uniform["top_share"] < 0.25
    assert random["reliability"] < 0.5
    assert uniform["step"]["over_uniform"]["mean"] == 0.0
    assert record["responses"] == 9 * load_profile("smoke").training.group_size


@pytest.mark.parametrize(
    ("num_problems", "fits"), [(20, "--prompts 10 --held-out 5"), (10, "--prompts 9 --held-out 1"), (8, "at least 9")]
)
def test_of_a_small_set_no_more_is_advised_than_it_has(run_dir, tmp_path, num_problems, fits):
    rows = [json.dumps({"question": f"{n} + 1?", "answer": str(n + 1)}) for n in range(num_problems)]
    (tmp_path / "mine.jsonl").write_text("\n".join(rows))
    request = replace(asked("random"), data=str(tmp_path / "mine.jsonl"), prompts=96)
    with pytest.raises(InvalidFileError) as refused:
        measured_signal(request, run_dir, quiet=True)
    assert fits in refused.value.next_step


def test_a_label_names_a_rule_and_the_settings_in_which_it_differs():
    assert RuleChoice.of("random").config == CreditConfig()
    choice = RuleChoice.of("atrl:partitions=4:footprint=all")
    assert (choice.rule, choice.config) == ("atrl", CreditConfig(partitions=4, footprint="all"))
    for label, said in (
        ("atrl:partition=4", "partition"),
        ("atrl:reading=own", "all rules share"),
        ("visual_dependency:black_probability=1", "all rules share"),
        ("atrl:partitions=0", "at least 1"),
    ):
        with pytest.raises(InvalidFileError, match=said):
            RuleChoice.of(label)


def test_a_problem_is_measured_itself_where_a_training_would_draw_another():
    measured = replace(asked(), recipe="dapo").measured_recipe
    assert (measured.objective, measured.dynamic_sampling) == ("dapo", None)


def test_a_recipe_of_fewer_updates_a_rollout_is_measured_with_the_weights_that_it_gives(run_dir, tmp_path):
    with gradient_meter(replace(asked(), recipe="vppo"), run_dir, tmp_path) as made:
        prompt = next(found for row in range(20) if (found := made.of_prompt(row)).gradient_RD is not None)
        assert made.trainer.weighting is not None
    assert prompt.gradient_RD.any()


def test_a_critic_learns_nothing_while_it_is_measured_so_that_no_order_of_the_problems_matters(run_dir, tmp_path):
    with gradient_meter(replace(asked(), recipe="actor_critic"), run_dir, tmp_path) as made:
        first = made.of_prompt(0).gradient_RD
        made.of_prompt(1)
        assert torch.equal(made.of_prompt(0).gradient_RD, first)
    assert first.any()


def test_rules_that_read_entropies_and_look_twice_are_measured_too(run_dir, tmp_path):
    with gradient_meter(asked("token_reweighting", "high_entropy"), run_dir, tmp_path) as made:
        prompt = next(found for row in range(20) if (found := made.of_prompt(row)).gradient_RD is not None)
    assert prompt.top_share_R[1] > 0.2 < prompt.top_share_R[2]
    assert not torch.equal(prompt.gradient_RD[1], prompt.gradient_RD[2])


def test_only_the_weights_whose_name_has_the_pattern_are_measured(run_dir, tmp_path):
    with gradient_meter(asked(parameters=r"layers\.3\..*down_proj"), run_dir, tmp_path) as made:
        names = [name for name, weight in made.trainer.model.named_parameters() if weight.requires_grad]
        assert names
        assert all("layers.3." in name and "down_proj" in name for name in names)
        assert made.num_parameters == sum(weight.numel() for weight in made.weights) < 100_000
    for pattern, said in (("nowhere", "in its name"), ("(", "no pattern")):
        with (
            pytest.raises(InvalidFileError, match=said),
            gradient_meter(asked(parameters=pattern), run_dir, tmp_path / pattern),
        ):
            pass


def test_the_factors_of_fresh_adapters_are_measured(run_dir, tmp_path):
    with gradient_meter(asked(parameters="lora"), run_dir, tmp_path) as made:
        sizes = {name: weight.numel() for name, weight in made.trainer.model.named_parameters() if weight.requires_grad}
        assert all("lora_" in name for name in sizes)
        assert made.num_parameters == sum(sizes.values()) > 0


def test_the_price_of_a_7b_model_counts_what_is_sampled_and_passed(run_dir):
    paper = replace(run_dir, profile=load_profile("paper"))
    request = {"rules": ["atrl"], "prompts": 10, "parameters": "lora"}
    price = signal_price(signal_request(paper, held_out=2, **request), paper)
    group = paper.profile.training.group_size
    # Qwen2.5-VL-7B: 28 layers, rank 16; two maps of 3584 to 3584, two to 512, three between 3584 and 18944.
    measured = 16 * 28 * (2 * 7168 + 2 * (3584 + 512) + 3 * (3584 + 18944))
    needs = price.trainings[0].needs
    assert needs.counts == {
        "responses": 10 * group,
        "tried": 2 * group * (1 + 4 * 4 * 2),  # without a step, then 4 directions at 4 sizes for each rule
        "passes": 2 * 10 * group,  # uniform credit and one rule
        "parameters": measured,
    }
    # Beside the adapters' base in half precision and 4 GB of a process, seven vectors a rule.
    assert needs.host_gb_per_node == pytest.approx(2 * 8.29 + 4 + 4 * measured * 2 * (3 + 4) / 1e9)
    assert price.gpu_hours > 0
    fewer = signal_price(signal_request(paper, held_out=0, **request), paper)
    assert fewer.gpu_hours < price.gpu_hours
    assert fewer.trainings[0].needs.counts["tried"] == 0


def test_the_base_of_a_world_is_measured_on_its_own_problems_whose_tokens_are_known(tmp_path):
    arguments = ["signal", "mini-reasoning", "--profile", "smoke", "--out", str(tmp_path), "--prompts", "9"]
    rules = ["--rules", "raw_attention,oracle_perception,oracle_reasoning", "--held-out", "0", "--json"]
    result = CliRunner().invoke(app(), [*arguments, *rules])
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    areas = {one["rule"]: one["anchor_auc"] for one in record["rules"]}
    assert record["data"] == "code_words"
    assert areas["oracle_perception"] == 1.0
    assert areas["raw_attention"] > 0.9, "this base looks at the image where it reads"
    assert areas["oracle_reasoning"] < 0.5
