"""`--on`: what cannot be had is said before anything starts, with the command that mends it."""

from __future__ import annotations

import sys

import pytest

from atrl_bench import cli

COMMAND = ["run-table", "main_7b", "--profile", "smoke"]


def refused(arguments, monkeypatch, capsys) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["atrl-bench", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code, " ".join(capsys.readouterr().err.split())


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not list(tmp_path.rglob("checkpoints")), "nothing has begun"


def test_an_unknown_cluster_has_its_near_names(monkeypatch, capsys):
    code, said = refused([*COMMAND, "--on", "rya"], monkeypatch, capsys)
    assert code == 2
    assert "Unknown cluster 'rya'. Did you mean ray?" in said


def test_ray_that_is_not_installed_is_named_with_its_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    code, said = refused([*COMMAND, "--on", "ray"], monkeypatch, capsys)
    assert code == 1
    assert "Ray, which is not installed here. Next: pip install 'atrl-bench[ray]'" in said


@pytest.mark.parametrize("option", ["--jobs", "--gpus", "--processes"])
def test_what_a_clusters_scheduler_decides_is_not_said_beside_it(option, monkeypatch, capsys):
    code, said = refused([*COMMAND, "--on", "ray", option, "2"], monkeypatch, capsys)
    assert code == 2
    assert "leave out --jobs, --gpus and --processes" in said


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_cluster_that_is_not_there_is_named_with_the_command_that_starts_one(monkeypatch, capsys):
    pytest.importorskip("ray", reason="pip install 'atrl-bench[ray]'")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("ray._private.services.find_gcs_addresses", lambda *_: set())
    code, said = refused([*COMMAND, "--on", "ray"], monkeypatch, capsys)
    assert code == 1
    assert "There is no Ray cluster: this machine is part of none." in said
    assert "ray start --head" in said
