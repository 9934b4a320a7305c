"""docs/adding_a_credit_rule.md, followed literally."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import atrl_bench
from atrl_bench.resources import folder

PAGE = Path(__file__).parents[1] / "docs" / "adding_a_credit_rule.md"
TESTS = Path(__file__).parent / "credit" / "test_rules.py"


@pytest.mark.slow
@pytest.mark.skipif(not PAGE.is_file(), reason="the page is in the checkout alone")
def test_the_page_s_function_is_tested_trained_and_a_row_of_a_table(tmp_path):
    text = PAGE.read_text(encoding="utf-8")
    function, by_hand = re.findall(r"```python\n(.*?)```", text, re.S)
    (change,), (table,) = re.findall(r"```diff\n(.*?)```", text, re.S), re.findall(r"```yaml\n(.*?)```", text, re.S)
    # A package of its own with one more rule, as in a checkout.
    checkout = tmp_path / "checkout"
    package = shutil.copytree(Path(atrl_bench.__file__).parent, checkout / "atrl_bench")
    shutil.rmtree(package / "_shipped", ignore_errors=True)
    for name in ("tasks", "recipes", "reports"):
        shutil.copytree(folder(name), checkout / name)
    (checkout / "pyproject.toml").touch()
    rules = package / "credit" / "rules.py"
    before = "".join(line[1:] for line in change.splitlines(keepends=True) if line[0] == " ")
    after = "".join(line[1:] for line in change.splitlines(keepends=True))
    content = rules.read_text(encoding="utf-8")
    assert before in content
    content = content.replace(before, after).replace("\nRULES:", f"\n{function}\n\nRULES:", 1)
    rules.write_text(content, encoding="utf-8")
    (checkout / "reports" / "tables" / "sharper.yaml").write_text(table, encoding="utf-8")
    tests = TESTS.read_text(encoding="utf-8") + f"\n\n{by_hand}"
    (tmp_path / "test_rules.py").write_text(tests, encoding="utf-8")

    def run(*arguments: str) -> str:
        environment = {
            "PYTHONPATH": str(checkout),
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        return done.stdout

    passed = run("pytest", "-q", "-p", "no:cacheprovider", "test_rules.py", "-k", "squared_attention")
    assert "squared_attention" in run("atrl_bench", "list", "credit")
    assert "passed" in passed
    assert "squared_attention" in run("atrl_bench", "train", "sapo", "--credit", "squared_attention", "--dry-run")
    made = run("atrl_bench", "run-table", "sharper", "--profile", "smoke", "--out", "out", "--rows", "squared")
    assert re.search(r"Squared attention", made), made
