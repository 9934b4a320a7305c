"""A test that is skipped for a reason that nobody foresaw fails."""

import os
import subprocess
import sys

import needs

TESTS = """
import pytest

def test_foreseen(): pytest.skip("no Chromium")
def test_unforeseen(): pytest.skip("the folder is one too high")
@pytest.mark.xfail(reason="known")
def test_known(): assert False
"""


def test_a_skip_for_an_unforeseen_reason_fails(tmp_path):
    (tmp_path / "test_skips.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "needs", "-p", "no:cacheprovider", "test_skips.py"]
    environment = os.environ | {"PYTHONPATH": os.path.dirname(needs.__file__)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "1 failed, 1 skipped, 1 xfailed" in done.stdout
    assert "a reason that tests/needs.py has not: the folder is one too high" in done.stdout
