"""`doctor --gpu`: what it measures, its file and page, and its rehearsal without a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import needs
import pytest
import torch
from typer.testing import CliRunner

from atrl_bench.analysis import gpu_check as module
from atrl_bench.analysis.gpu_check import Bench, GpuCheck, gpu_check
from atrl_bench.analysis.overhead import Overhead
from atrl_bench.analysis.random_model import SHAPES
from atrl_bench.cli import app
from atrl_bench.errors import MissingDataError, UnknownNameError
from atrl_bench.experiments.cost import load_rates
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import load_profile
from atrl_bench.report.analysis_pages import gpu_check_html, percent, write_gpu_check

STEP = Overhead(
    profile="smoke",
    model="random weights",
    shape={},
    recipe="grpo",
    credit="atrl",
    rollouts=1,
    threads=1,
    clock="wall",
    device="NVIDIA H100",
    peak_gb=11.5,
    seconds_plain=40.0,
    seconds_credited=41.0,
    ratio=1.025,
    shares={"generation": 75.0, "graph": 0.0529},
    as_published={"forward": 60.0, "backward": 39.5, "AT-RL": 0.5},
)
MACHINE = {"hardware": "NVIDIA H100", "cuda": "12.8"}
CHECK = GpuCheck("3b", MACHINE, {"training_flops": 3e14}, STEP, {"device_gb": "MemoryError: <1> of 80 GB are free"})
WITHOUT_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason=needs.A_GPU)


def run(*arguments):
    return CliRunner().invoke(app(), ["doctor", *arguments])


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # the rate of a CPU is that of one core
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def bench():
    return Bench(SHAPES["tiny"], "cpu")


def test_the_batch_is_padded_on_both_sides_and_shows_images(bench):
    inputs = bench.sequences(2)
    mask_BS = inputs["attention_mask"].bool()
    assert mask_BS[0].all()  # the longest question
    assert not mask_BS[1, 0]
    assert not mask_BS[1, -3:].any()
    assert (inputs["mm_token_type_ids"] == 1).sum(1).tolist() == [16, 16]  # the visual tokens of the tiny size


def test_a_step_of_decoding_and_a_pass_of_training_take_time_and_change_no_weight(bench):
    before = [parameter.clone() for parameter in bench.model.parameters()]
    assert 0 < bench.decoding() < 1
    assert 1e6 < bench.training() < 1e13
    assert all(torch.equal(old, new) for old, new in zip(before, bench.model.parameters(), strict=True))


def test_what_breaks_is_a_finding_and_the_rest_is_measured(monkeypatch):
    def broken():
        raise RuntimeError(f"CUDA error: no kernel image in {Path.home()}/code\nand more")

    monkeypatch.setattr(module, "rates_of", lambda shape: {"training_flops": broken, "device_gb": lambda: 80.0})
    monkeypatch.setattr(module, "overhead", lambda *_, **__: STEP)
    check = gpu_check("tiny")
    assert check.rates == {"device_gb": 80.0}
    assert check.failures == {"training_flops": "RuntimeError: CUDA error: no kernel image in ~/code"}
    assert check.step is STEP


@WITHOUT_GPU
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
    assert "--size belongs to --gpu." in result.output


@pytest.mark.parametrize(("visible", "first"), [("3,5", "3"), ("", ""), (None, "0")])
def test_the_first_gpu_is_chosen_before_torch_can_look_for_any(visible, first, tmp_path):
    (tmp_path / "torch.py").write_text("import os; raise SystemExit(os.environ['CUDA_VISIBLE_DEVICES'])")
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    environment |= {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), *sys.path])
    command = [sys.executable, "-m", "atrl_bench", "doctor", "--gpu", "--size", "tiny"]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert told.stderr.strip() == first


@pytest.mark.slow
@WITHOUT_GPU
def test_the_rehearsal_gives_the_plan_its_constant(tmp_path, one_thread):
    result = run("--gpu", "--size", "tiny", "--out", str(tmp_path), "--json")
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "gpu_check.json").read_text())
    assert record["step"]["shares"].keys() >= {"generation", "scoring", "graph", "optimiser"}
    rates = RunDir.at(tmp_path, load_profile("mini")).rates
    assert rates.basis.startswith("1 of 7 rates measured on ")  # the others are those of a GPU
    assert rates.cpu_flops == record["rates"]["cpu_flops"]
    assert (tmp_path / "gpu_check.html").is_file()


def test_the_file_gives_prices_their_constants(tmp_path):
    path = write_gpu_check(CHECK, tmp_path)[0]
    rates = load_rates(path)
    assert (rates.training_flops, rates.hardware) == (3e14, "NVIDIA H100")
    assert str(Path.home()) not in path.read_text()


def test_the_page_has_the_constants_the_shares_and_what_failed():
    page = gpu_check_html(CHECK)
    for words in ("NVIDIA H100", "MemoryError: &lt;1&gt; of 80 GB", "token graph", "0.053", "3e+14 FLOP/s", "1.025"):
        assert words in page
    assert "rehearsal" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    assert "<script" not in page
    assert "rehearsal without a GPU" in gpu_check_html(GpuCheck("tiny", {"hardware": "a CPU"}, {}, None, {}))


def test_a_small_share_is_not_written_as_zero():
    assert [percent(value) for value in (74.84, 1.0, 0.0529, 0.0187, 0.0)] == ["74.8", "1.0", "0.053", "0.019", "0.0"]
