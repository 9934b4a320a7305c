"""Whatever happens to a command at any moment, the same command ends with the same pages, answers and weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="forks with torch loaded, mounts disks and reads /proc"),
]
TASK = "mathvision_testmini"
ROWS = ["--rows", "zero_shot,grpo", "--columns", TASK, "--jobs", "1"]
AT = ["--profile", "smoke", "--out", "FOLDER"]


def survive(root: Path, judge_url: str, **order: int) -> dict:
    """Return what happened to these commands, each given again after as many faults as stand before it."""
    commands = [
        (6, ["train", "grpo", *AT]),
        (5, ["evaluate", "mini", "--tasks", TASK, *AT]),
        (3, ["run-table", "main_7b", *ROWS, *AT]),
        (2, ["judge", judge_url, "--model", "qwen", *AT]),
        (4, ["evaluate", "mini", "--tasks", TASK, *AT]),
        (2, ["run-table", "main_7b", *ROWS, *AT]),
        (3, ["report", "main_7b", "--rows", "zero_shot,grpo", "--columns", TASK, *AT]),
    ]
    root.mkdir(exist_ok=True)
    old = Path(__file__).parents[1] / "results" / "stores" / "version_2.sqlite"
    fields = {"root": str(root), "commands": commands, "old_store": str(old), **order}
    (root / "order.json").write_text(json.dumps(fields))
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("faulty_runs.py"), root / "order.json"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"JUDGE_API_KEY": "no-secret"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def judge(serve, fit):
    return serve(answer=fit(lambda messages: "Incorrect")).url


def test_faults_of_every_kind_at_random_moments_lose_nothing_and_change_no_byte(judge, tmp_path) -> None:
    report = survive(tmp_path, judge, num_faults=16, num_migrations=20, seed=0)
    assert sum(report["faults"].values()) >= 16, report
    assert len(report["faults"]) >= 5, report


@pytest.mark.large
def test_two_hundred_faults_lose_nothing_and_change_no_byte(judge, tmp_path) -> None:
    report = survive(tmp_path, judge, num_faults=200, num_migrations=100, seed=1)
    print(json.dumps(report))
    assert sum(report["faults"].values()) >= 200, report
