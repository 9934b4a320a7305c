"""`doctor --gpu`: the rehearsal of everything without a GPU, and what it says where there is none."""

import json
import os
import subprocess
import sys

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


def test_the_first_gpu_is_chosen_before_torch_can_look_for_any():
    program = (
        "import os, sys; from atrl_bench.analysis.gpu_check import one_gpu, sizes; assert 'torch' not in sys.modules; "
        "one_gpu.use_one_gpu(); print(os.environ[one_gpu.VISIBLE])"
    )
    for visible, first in (("3,5", "3"), ("", ""), (None, "0")):
        environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
        environment |= {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
        told = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
        )
        assert told.stdout.strip() == first, told.stderr


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # the rate of a CPU is that of one core
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@NEEDS_NO_GPU
def test_the_rehearsal_runs_every_check_and_gives_the_plan_its_constants(tmp_path, one_thread):
    result = run("--gpu", "--size", "tiny", "--out", str(tmp_path), "--json")
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "gpu_check.json").read_text())
    states = {check["name"]: check["state"] for check in record["checks"]}
    skipped = {name for name, state in states.items() if state == "skipped"}
    assert skipped == {name for name in states if "Flash" in name or "free memory" in name or "windows" in name}
    assert {check["reason"] for check in record["checks"] if check["state"] == "skipped"} == {"no GPU"}
    assert set(states.values()) == {"passed", "skipped"}
    step = next(check for check in record["checks"] if check["name"] == "GRPO + AT-RL step")
    assert sum(phase["seconds"] for phase in step["details"]["phases"]) == pytest.approx(step["value"])
    assert step["details"]["largest_change_of_an_adapter"] > 0
    assert {phase["phase"] for phase in step["details"]["phases"]} >= {"generation", "scoring", "graph", "optimiser"}
    rates = RunDir.at(tmp_path, load_profile("mini")).rates
    assert rates.model_fields_set == {"hardware", "cpu_flops"}  # the others are those of a GPU
    assert rates.basis.startswith("1 of 9 rates measured on ")
    passes = next(check for check in record["checks"] if check["name"] == "training forward and backward")
    assert rates.cpu_flops == passes["details"]["flops_per_second"]
    assert (tmp_path / "gpu_check.html").is_file()
