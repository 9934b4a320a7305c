"""Slurm through submitit, whose local executor has processes of this machine for jobs; and the script of --on print."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from worker_functions import call, die, die_once, name_nothing, write

from atrl_bench import cli
from atrl_bench.engines import slurm
from atrl_bench.engines.cluster import Resources, WorkPiece, over_cluster
from atrl_bench.engines.local import DeadWorkerError
from atrl_bench.errors import MissingDataError, UnknownNameError


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(slurm, "SECONDS_BETWEEN_LOOKS", 0.1)
    paths = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    return tmp_path


def piece(name, function, *then):
    return WorkPiece((function, name), name, Resources(), then)


@pytest.mark.slow
def test_jobs_that_fail_die_and_follow_end_as_on_any_cluster(folder):
    pytest.importorskip("submitit", reason="pip install 'atrl-bench[slurm]'")
    died, after = folder / "died", folder / "after"
    pieces = [
        piece("fails", partial(name_nothing, "atlr"), piece("never begins", partial(write, "never"))),
        piece("dies", partial(die, str(died))),
        piece("dies once", partial(die_once, str(folder / "once")), piece("follows", partial(write, str(after)))),
    ]
    cluster = slurm.SlurmCluster(executor="local")
    errors = {piece.name: error for piece, error in over_cluster(cluster, call, pieces, {"ATRL_BENCH_SAID": "x"})}
    assert errors.keys() == {"fails", "dies", "dies once", "follows"}
    assert isinstance(errors["fails"], UnknownNameError)
    assert isinstance(errors["dies"], DeadWorkerError)
    assert died.read_text() == "begun\n" * 3
    assert errors["dies once"] is errors["follows"] is None
    assert after.read_text() == f"{os.uname().nodename} x"
    assert stat.S_IMODE(slurm.FOLDER.stat().st_mode) == 0o700


def test_what_is_submitted_again_is_the_same_errand(folder, monkeypatch):
    submitit = pytest.importorskip("submitit", reason="pip install 'atrl-bench[slurm]'")
    monkeypatch.setenv("ATRL_BENCH_SAID", "y")
    cluster = slurm.SlurmCluster(executor="debug")
    [(_, error)] = over_cluster(cluster, call, [piece("writes", partial(write, "here"))], {})
    assert error is None
    assert Path("here").read_text().endswith(" y")
    errand = slurm.SlurmErrand.__new__(slurm.SlurmErrand)
    object.__setattr__(errand, "errand", "the errand")
    again = errand.checkpoint()
    assert isinstance(again, submitit.helpers.DelayedSubmission)
    assert again.function is errand


def test_without_sbatch_the_ways_that_are_left_are_named(monkeypatch, folder):
    pytest.importorskip("submitit", reason="pip install 'atrl-bench[slurm]'")
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(MissingDataError, match="sbatch, which is not on the PATH") as refused:
        slurm.SlurmCluster()
    assert "--on print" in refused.value.next_step


def test_the_printed_script_gives_the_command_on_the_first_node_once_ray_is_up(folder, monkeypatch, capsys):
    arguments = ["run-table", "main_7b", "--profile", "paper", "--on", "print", "--out", "a folder"]
    monkeypatch.setattr(sys, "argv", ["atrl-bench", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    assert "sbatch runs/slurm/run-table.sbatch" in " ".join(capsys.readouterr().out.split())
    tools = folder / "bin"
    tools.mkdir()
    for name, content in {
        "scontrol": "echo first; sleep 0.2; echo second",  # a pipe closed by then ended the script
        "srun": f'echo "$@" >> {folder}/srun; while [[ $1 == --* ]]; do shift; done; "$@"',
        "ray": "exit 0",
        "atrl-bench": f'printf "%s|" "$RAY_ADDRESS" "$@" > {folder}/given',
    }.items():
        (tools / name).write_text(f"#!/bin/bash\n{content}\n")
        (tools / name).chmod(0o755)
    variables = {"SLURM_SUBMIT_DIR": str(folder), "SLURM_JOB_NODELIST": "nodes", "SLURM_JOB_NUM_NODES": "2"}
    environment = {**os.environ, **variables, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["bash", "runs/slurm/run-table.sbatch"], check=True, env=environment, timeout=60)
    given = (folder / "given").read_text().split("|")[:-1]
    assert given == ["first:6379", *arguments[:4], "--out", "a folder", "--on", "ray", "--yes"]
    started = [line for line in (folder / "srun").read_text().splitlines() if "ray start" in line]
    assert any("--nodelist=first ray start --head" in line for line in started)
    assert any("--exclude=first ray start --address=first:6379" in line for line in started)
