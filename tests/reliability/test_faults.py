"""Whatever happens to a command at any moment, the same command ends with the same pages, answers and weights."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import needs
import pytest

pytestmark = [
    pytest.mark.slow,
    needs.linux,
]
TASK = "mathvision_testmini"
ROWS = ["--rows", "zero_shot,grpo", "--columns", TASK]
SECRET = "sk-a-key-that-nobody-may-see"
AT = ["--profile", "smoke", "--out", "FOLDER"]


def survive(root: Path, judge_url: str, counts: Sequence[int], processes: int = 1, **order: int) -> dict:
    """Return what happened to these commands, each given again after so many faults at most."""
    by = ["--processes", str(processes)]
    commands = [
        ["train", "grpo", *by, *AT],
        ["evaluate", "mini", "--tasks", TASK, *by, *AT],
        ["run-table", "main_7b", *ROWS, "--jobs", "1", *by, *AT],
        ["judge", judge_url, "--model", "qwen", *AT],
        ["evaluate", "mini", "--tasks", TASK, *by, *AT],
        ["run-table", "main_7b", *ROWS, "--jobs", "1", *by, *AT],
        ["report", "main_7b", "--rows", "zero_shot,grpo", "--columns", TASK, *AT],
    ]
    fields = {"root": str(root), "commands": list(zip(counts, commands, strict=True)), **order}
    (root / "order.json").write_text(json.dumps(fields))
    program = Path(__file__).with_name("faulty_runs.py")
    try:
        done = subprocess.run(
            [sys.executable, program, root / "order.json"],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"JUDGE_API_KEY": SECRET, "HF_TOKEN": SECRET},
        )
    finally:  # a disk that a failure has left
        subprocess.run(["umount", "-l", root / "folder"], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr[-4000:]
    assert SECRET not in done.stderr + done.stdout
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def judge(serve, fit):
    return serve(answer=fit(lambda messages: "Incorrect")).url


def test_faults_of_every_kind_at_random_moments_lose_nothing_and_change_no_byte(judge, tmp_path) -> None:
    counts = (5, 4, 1, 1, 3, 1, 3)
    report = survive(tmp_path, judge, counts, num_faults=10, seed=0)
    assert sum(report["faults"].values()) >= 10, report
    assert len(report["faults"]) >= 4, report


@pytest.mark.large
@pytest.mark.parametrize("processes", [1, 2])
def test_hundreds_of_faults_lose_nothing_and_change_no_byte(judge, tmp_path, processes) -> None:
    counts, num_faults = (12, 10, 2, 5, 8, 1, 12), int(os.environ.get("ATRL_BENCH_FAULTS", "300"))
    report = survive(tmp_path, judge, counts, processes, num_faults=num_faults, seed=3)
    print(json.dumps(report))
    assert sum(report["faults"].values()) >= num_faults, report
