"""docs/adding_a_task.md, followed literally."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import atrl_bench
from atrl_bench.resources import folder

PAGE = Path(__file__).parents[1] / "docs" / "adding_a_task.md"


@pytest.mark.skipif(not PAGE.is_file(), reason="the page is in the checkout alone")
def test_the_page_s_files_make_a_task_that_is_listed_and_evaluated(tmp_path):
    dataset, module, task = re.findall(r"```(?:python|yaml)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    # A package of its own with one more task, as in a checkout.
    package = shutil.copytree(Path(atrl_bench.__file__).parent, tmp_path / "checkout" / "atrl_bench")
    shutil.rmtree(package / "_shipped", ignore_errors=True)
    for name in ("tasks", "recipes", "reports"):
        shutil.copytree(folder(name), tmp_path / "checkout" / name)
    (tmp_path / "checkout" / "pyproject.toml").touch()
    (tmp_path / "checkout" / "tasks" / "plates_test.py").write_text(module, encoding="utf-8")
    (tmp_path / "checkout" / "tasks" / "plates_test.yaml").write_text(task, encoding="utf-8")

    def run(*arguments: str) -> str:
        environment = {"PYTHONPATH": str(tmp_path / "checkout"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        command = [sys.executable, *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    (tmp_path / "DATA" / "plates").mkdir(parents=True)
    run("-c", dataset)
    listed = run("-m", "atrl_bench", "list", "tasks", "--data-dir", "DATA")
    assert re.search(r"plates_test +test +2 +yes", listed)
    scores = run(
        "-m", "atrl_bench", "evaluate", "mini", "--tasks", "plates_test", "--data-dir", "DATA", "--profile", "smoke"
    )
    assert "2 problems x 2" in scores
