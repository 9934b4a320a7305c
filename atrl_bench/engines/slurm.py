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
from atrl_bench.resources import folder

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
        content = (folder("recipes") / "launch" / "slurm.sh").read_text(encoding="utf-8")
        values = {"nodes": self.nodes, "gpus": self.gpus_per_node, "folder": FOLDER, "command": command}
        for name, value in values.items():
            content = content.replace(f"{{{name}}}", str(value))
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
