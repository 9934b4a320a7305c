"""The page of a GPU check: every check with its reason, phases, constants, and nothing from outside."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from atrl_bench.analysis.gpu_check.checks import CheckResult
from atrl_bench.analysis.gpu_check.record import GpuCheck, check_text
from atrl_bench.experiments.cost import load_rates
from atrl_bench.report.gpu_check_page import gpu_check_html, percent, write_gpu_check

PHASES = [
    {"phase": "generation", "seconds": 2.0, "share_percent": 80.0, "peak_gb": 21.5},
    {"phase": "graph", "seconds": 0.5, "share_percent": 20.0, "peak_gb": None},
]
STEP = {"phases": PHASES, "responses": 16, "updates": 2, "credit_share_percent": 20.0, "loss": [0.5, float("nan")]}
CHECKS = (
    CheckResult("training passes", "passed", 3.0, "", 300.0, "TFLOP/s", rates={"training_flops": 3e14}),
    CheckResult("rows", "failed", 1.0, "0.2 is above the limit of <0.1>", 0.2, "of the attention", 0.1),
    CheckResult("FlashAttention", "skipped", 0.0, "the package flash-attn is not installed"),
    CheckResult("GRPO + AT-RL step", "passed", 60.0, "", 2.5, "s", None, STEP),
)
RECORD = GpuCheck("3b", "Qwen2.5-VL-3B", {"hardware": "NVIDIA H100", "cuda": "12.8"}, CHECKS, 70.0, 600.0)


def test_the_page_has_every_check_its_phases_and_the_constants_it_measured():
    page = gpu_check_html(RECORD)
    for words in ("NVIDIA H100", "0.2 is above the limit of &lt;0.1&gt;", "token graph", "21.50", "3e+14 FLOP/s"):
        assert words in page
    assert "2 passed, 1 failed, 1 skipped, in 70 of at most 600 s." in page
    assert "rehearsal" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    assert "<script" not in page


def test_a_small_share_is_not_written_as_zero():
    assert [percent(value) for value in (74.84, 1.0, 0.0529, 0.0187, 0.0)] == ["74.8", "1.0", "0.053", "0.019", "0.0"]
    step = replace(CHECKS[3], details=STEP | {"credit_share_percent": 0.0529})
    assert "of which the credit took 0.053 %" in gpu_check_html(replace(RECORD, checks=(step,)))


def test_the_page_of_a_machine_without_a_gpu_says_so():
    assert "rehearsal without a GPU" in gpu_check_html(replace(RECORD, machine={"hardware": "a CPU"}))


def test_the_file_gives_cost_estimates_their_constants(tmp_path):
    path = write_gpu_check(RECORD, tmp_path)[0]
    rates = load_rates(path)
    assert (rates.training_flops, rates.hardware) == (3e14, "NVIDIA H100")
    checks = json.loads(path.read_text())["checks"]
    assert checks[3]["details"]["loss"] == [0.5, "nan"]  # JSON has no such number
    assert str(Path.home()) not in path.read_text()


@pytest.mark.parametrize(
    ("size", "machine", "names"),
    [
        ("3b", {"hardware": "NVIDIA H100", "cuda": "12.8"}, {"training_flops", "device_gb"}),
        ("tiny", {"hardware": "NVIDIA H100", "cuda": "12.8"}, {"device_gb"}),  # starting kernels is all it measures
        ("tiny", {"hardware": "a CPU"}, {"cpu_flops"}),
    ],
)
def test_only_what_says_something_about_real_runs_becomes_a_constant(size, machine, names):
    measured = {"device_gb": 80.0, "training_flops": 1e14} if "cuda" in machine else {"cpu_flops": 2e10}
    unfit = {} if "cuda" in machine else {"memory_bytes_per_second": 1e10, "decoding_seconds_per_layer": 1e-3}
    check = CheckResult("all", "passed", 1.0, rates=measured | unfit)
    rates = replace(RECORD, size=size, machine=machine, checks=(check,)).rates
    assert rates.keys() - {"hardware"} == names


def test_a_check_is_told_in_lines_of_a_terminal():
    text = check_text(CHECKS[1])
    assert text.splitlines()[0].startswith("failed   rows")
    assert "above the limit" in text
    assert max(map(len, text.splitlines())) <= 80
