"""What is told of a machine: its hardware and its packages."""

import torch

from atrl_bench.analysis.gpu_check import machine

NVIDIA_SMI = """#!/bin/sh
case "$*" in
*"-i GPU-1234"*) echo "570.86.15, 1980, 1980, 2619, 700.00, 34" ;;
*) exit 6 ;;
esac
"""


def stub(tmp_path, monkeypatch, program):
    path = tmp_path / "nvidia-smi"
    path.write_text(program)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")


def test_the_driver_is_asked_about_the_gpu_that_torch_uses(tmp_path, monkeypatch):
    stub(tmp_path, monkeypatch, NVIDIA_SMI)
    told = machine.driver_facts("1234")
    assert (told["driver"], told["max_sm_clock_mhz"], told["power_limit_w"]) == ("570.86.15", "1980", "700.00")


def test_a_driver_that_does_not_answer_is_left_out(tmp_path, monkeypatch):
    stub(tmp_path, monkeypatch, NVIDIA_SMI)
    assert machine.driver_facts("of another gpu") == {}
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert machine.driver_facts("1234") == {}


def test_the_packages_that_decide_a_number_are_named():
    told = machine.facts()
    assert told["packages"]["torch"] == torch.__version__.partition("+")[0]
    assert told["hardware"]
