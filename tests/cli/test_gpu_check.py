"""`doctor --gpu`: the rehearsal of everything without a GPU, and what it says where there is none."""

import json

import pytest
import torch
from typer.testing import CliRunner

from atrl_bench.cli import app
from atrl_bench.errors import MissingDataError, UnknownNameError
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import load_profile

NEEDS_NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="tells what happens without a GPU")


def run(*arguments):
    return CliRunner().invoke(app, ["doctor", *arguments])


@NEEDS_NO_GPU
def test_without_a_gpu_the_rehearsal_is_named(tmp_path):
    result = run("--gpu", "--out", str(tmp_path))
    assert isinstance(result.exception, MissingDataError)
    assert "Next: atrl-bench doctor --gpu --size tiny" in str(result.exception)
    assert not list(tmp_path.iterdir())


def test_an_unknown_size_names_the_known_ones():
    result = run("--gpu", "--size", "70b")
    assert isinstance(result.exception, UnknownNameError)
    assert "3b" in str(result.exception)


def test_a_size_is_of_no_use_without_a_gpu_check():
    result = run("--size", "tiny")
    assert result.exit_code == 2
    assert "--size and --budget belong to --gpu." in result.output


@pytest.mark.slow
@NEEDS_NO_GPU
def test_the_rehearsal_runs_every_check_and_gives_the_plan_its_constants(tmp_path):
    result = run("--gpu", "--size", "tiny", "--out", str(tmp_path), "--json")
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "gpu_check.json").read_text())
    states = {check["name"]: check["state"] for check in record["checks"]}
    skipped = {name for name, state in states.items() if state == "skipped"}
    assert skipped == {name for name in states if "Flash" in name or "free memory" in name}
    assert {check["reason"] for check in record["checks"] if check["state"] == "skipped"} == {"no GPU"}
    assert set(states.values()) == {"passed", "skipped"}
    step = next(check for check in record["checks"] if check["name"] == "GRPO + AT-RL step")
    assert sum(phase["seconds"] for phase in step["details"]["phases"]) == pytest.approx(step["value"])
    assert step["details"]["largest_change_of_an_adapter"] > 0
    assert {phase["phase"] for phase in step["details"]["phases"]} >= {"generation", "scoring", "graph", "optimiser"}
    rates = RunDir.at(tmp_path, load_profile("paper")).rates
    assert rates.source("training_flops") == "assumed"  # of a GPU, which is not here
    assert (tmp_path / "gpu_check.html").is_file()
