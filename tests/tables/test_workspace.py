"""A command that is printed beside a run folder goes on in that folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from atrl_bench.profiles import load_profile
from atrl_bench.tables.workspace import Workspace


@pytest.mark.parametrize(
    ("root", "data", "options"),
    [
        (None, None, "--profile smoke"),
        (Path("runs/smoke"), None, "--profile smoke"),
        (Path("elsewhere"), None, "--profile smoke --out elsewhere"),
        (Path("runs/mini"), "mine", "--profile smoke --out runs/mini --data-dir mine"),
    ],
)
def test_the_options_name_what_is_not_the_default(tmp_path, monkeypatch, root, data, options):
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    assert Workspace.at(root, load_profile("smoke"), data and Path(data)).options == options
