"""Slurm gives the machines, Ray does the rest: one script starts Ray over an allocation, and the command on it."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from atrl_bench.engines.devices import GPUS_PER_NODE, Cluster
from atrl_bench.errors import EndpointError

FOLDER = Path("runs") / "slurm"  # of scripts and of what they print, below the folder that all machines share
SECONDS_TO_SUBMIT = 120


@dataclass(frozen=True)
class SlurmAllocation(Cluster):
    """So many nodes that Slurm is asked for; `sbatch` knows what they have, here they are taken to have eight GPUs."""

    gpus_per_node: int = GPUS_PER_NODE
    memory_gb: float = 0.0

    def write_script(self, arguments: Sequence[str]) -> Path:
        command = shlex.join(["atrl-bench", *arguments, "--on", "ray", "--yes"])
        path = FOLDER / f"{arguments[0]}.sbatch"
        FOLDER.mkdir(parents=True, exist_ok=True)
        content = SCRIPT.format(nodes=self.nodes, gpus=self.gpus_per_node, folder=FOLDER, command=command)
        path.write_text(content, encoding="utf-8")
        return path


def submit(script: Path) -> str | None:
    if shutil.which("sbatch") is None:
        return None
    command = ["sbatch", "--parsable", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_TO_SUBMIT)
    if done.returncode:
        raise EndpointError(
            f"Slurm did not take {script}.",
            why=done.stderr.strip(),
            next_step=f"change it, or set what is missing as SBATCH_PARTITION or SBATCH_ACCOUNT, then: sbatch {script}",
        )
    return done.stdout.strip().partition(";")[0]


SCRIPT = """\
#!/bin/bash
# Ray on every node of one allocation, and the command on the first of them.
# SBATCH_PARTITION, SBATCH_ACCOUNT, SBATCH_TIMELIMIT and SBATCH_GPUS_PER_NODE go before what stands here.
#SBATCH --job-name=atrl-bench
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={gpus}
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output={folder}/%j.out
set -euo pipefail
cd "$SLURM_SUBMIT_DIR"
# Out of time: the same job waits for its turn again, and goes on from what is stored.
trap 'scontrol requeue "$SLURM_JOB_ID"' USR1
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
port=${{RAY_PORT:-6379}}
export RAY_ADDRESS="$head:$port"
srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" ray start --head --port="$port" --block &
until ray status > /dev/null 2>&1; do kill -0 $!; sleep 2; done  # a head that has ended ends the script
if (( SLURM_JOB_NUM_NODES > 1 )); then
  others=$((SLURM_JOB_NUM_NODES - 1))
  srun --overlap --nodes=$others --ntasks=$others --exclude="$head" ray start --address="$RAY_ADDRESS" --block &
fi
srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" {command} &
wait $!  # in the background, so that the signal is heard
"""
