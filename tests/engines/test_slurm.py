"""`--on slurm`: the script that is submitted starts Ray on every node and gives the command on the first of them."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from programs import ended

ROOT = Path(__file__).parents[2]
SRUN = """
echo "$@" >> srun
while [[ $1 == --* ]]; do shift; done
exec "$@"
"""
SBATCH = """
[[ $1 == --parsable ]] || exit 1
export SLURM_SUBMIT_DIR="$PWD" SLURM_JOB_ID=7 SLURM_JOB_NODELIST=nodes SLURM_JOB_NUM_NODES=2
bash "$2" > runs/slurm/7.out 2>&1 &
echo $! > script
wait $!
echo "7;cluster"
"""


class StandIns:
    """Programs of a cluster that do their work in this folder, found before those of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        self.environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}
        for name in ("RAY_ADDRESS", "RAY_PORT"):
            self.environment.pop(name, None)

    def add(self, **programs: str) -> None:
        for name, content in programs.items():
            path = self.folder / "bin" / name.replace("_", "-")
            path.write_text(f"#!/bin/bash\n{content}\n")
            path.chmod(0o755)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return ended("-m", "atrl_bench", *arguments, cwd=self.folder, env=self.environment, timeout=600)


@pytest.fixture
def cluster(tmp_path) -> StandIns:
    """A Slurm of two nodes, on which Ray is up at once and commands only write down what they were given."""
    stand_ins = StandIns(tmp_path)
    stand_ins.add(
        scontrol='if [[ $1 == requeue ]]; then echo "$2" > requeued; else echo first; sleep 0.2; echo second; fi',
        sbatch=SBATCH,
        srun=SRUN,
        ray="[[ $1 == status ]] || sleep 2",
        atrl_bench='printf "%s|" "$RAY_ADDRESS" "$@" > given',
    )
    return stand_ins


ARGUMENTS = ["run-table", "main_7b", "--profile", "smoke", "--out", "a folder"]


def test_the_submitted_script_starts_ray_on_every_node_and_gives_the_command_on_the_first(cluster):
    done = cluster.run(*ARGUMENTS, "--on", "slurm:2")
    assert done.returncode == 0, done.stderr
    assert "Submitted runs/slurm/run-table.sbatch, job 7. It prints to runs/slurm/7.out" in " ".join(
        done.stdout.split()
    )
    given = (cluster.folder / "given").read_text().split("|")[:-1]
    assert given == ["first:6379", *ARGUMENTS, "--on", "ray", "--yes"]
    started = [line for line in (cluster.folder / "srun").read_text().splitlines() if "ray start" in line]
    assert any("--nodelist=first ray start --head --port=6379" in line for line in started)
    assert any("--exclude=first ray start --address=first:6379" in line for line in started)
    assert "#SBATCH --nodes=2\n" in (cluster.folder / "runs" / "slurm" / "run-table.sbatch").read_text()


def test_a_job_that_runs_out_of_time_waits_for_its_turn_again(cluster):
    cluster.add(atrl_bench='kill -USR1 "$(cat script)"; sleep 5')
    cluster.run(*ARGUMENTS, "--on=slurm")
    assert (cluster.folder / "requeued").read_text() == "7\n"


def test_a_ray_that_cannot_start_ends_the_script(cluster):
    cluster.add(ray="exit 1")
    cluster.run(*ARGUMENTS, "--on", "slurm")
    assert not (cluster.folder / "given").exists()


def test_what_slurm_refuses_is_told_in_its_words(cluster):
    cluster.add(sbatch="echo 'sbatch: error: invalid account' >&2; exit 1")
    done = cluster.run(*ARGUMENTS, "--on", "slurm")
    assert done.returncode == 1
    assert "sbatch: error: invalid account" in done.stderr
    assert "SBATCH_ACCOUNT" in done.stderr


def test_where_slurm_is_not_the_script_is_written_to_be_submitted_where_it_is(tmp_path):
    done = StandIns(tmp_path).run("evaluate", "mini", "--tasks", "geoqa_test", "--on", "slurm", "--json")
    assert json.loads(done.stdout) == {"script": "runs/slurm/evaluate.sbatch", "job": None}
    script = (tmp_path / "runs" / "slurm" / "evaluate.sbatch").read_text()
    assert "atrl-bench evaluate mini --tasks geoqa_test --on ray --yes" in script


@pytest.mark.slow
def test_a_command_answers_over_the_ray_that_its_script_has_started_as_it_does_alone(tmp_path):
    stand_ins = StandIns(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        stand_ins.environment["RAY_PORT"] = str(server.getsockname()[1])
    stand_ins.add(
        scontrol="echo 127.0.0.1",
        srun=SRUN,
        ray=f'[[ $1 != start ]] || set -- "$@" --num-cpus=1 --object-store-memory=80000000; exec {ray_program()} "$@"',
        atrl_bench=f'exec {sys.executable} -m atrl_bench "$@"',
    )
    evaluation = ["evaluate", "mini", "--tasks", "geoqa_test", "--profile", "smoke", "--limit", "3", "--json"]
    script = json.loads(stand_ins.run(*evaluation, "--out", "together", "--on", "slurm:2").stdout)["script"]
    variables = {"SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_JOB_NODELIST": "nodes", "SLURM_JOB_NUM_NODES": "2"}
    with (tmp_path / "output").open("w") as output:
        process = subprocess.Popen(
            ["bash", script],
            cwd=tmp_path,
            env=stand_ins.environment | variables,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=600)
        finally:
            os.killpg(process.pid, signal.SIGTERM)  # as Slurm ends what a job has started
    assert code == 0, (tmp_path / "output").read_text()
    [ours] = json.loads(stand_ins.run(*evaluation, "--out", "together").stdout)
    [theirs] = json.loads(stand_ins.run(*evaluation, "--out", "alone").stdout)
    assert ours == theirs
    assert "geoqa_test" in (tmp_path / "output").read_text()


def ray_program() -> Path:
    return Path(sys.executable).with_name("ray")
