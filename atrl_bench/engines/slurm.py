"""A Slurm cluster through submitit: each errand is a job of its own, or a script that starts Ray on several nodes."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atrl_bench.engines.cluster import Errand, address_towards
from atrl_bench.engines.devices import GPUS_PER_NODE, VISIBLE
from atrl_bench.engines.local import NUM_ATTEMPTS, DeadWorkerError
from atrl_bench.errors import MissingDataError

FOLDER = Path("runs") / "slurm"  # of what is sent and of what jobs print, below the folder that all machines share
MINUTES = 24 * 60  # of a job; one that takes longer is begun again and goes on from its snapshot
MAX_TIMEOUTS = 100
SECONDS_BETWEEN_LOOKS = 2.0


class SlurmCluster:
    """The cluster whose `sbatch` is here; submitit's `local` and `debug` executors stand for one in tests."""

    gpus_per_node, memory_gb = GPUS_PER_NODE, 0.0  # sbatch knows its nodes, and refuses what they have not got

    def __init__(self, partition: str | None = None, executor: str = "slurm") -> None:
        try:
            import submitit
        except ImportError:
            raise MissingDataError(
                "--on slurm needs submitit, which is not installed here.", next_step="pip install 'atrl-bench[slurm]'"
            ) from None
        if executor == "slurm" and shutil.which("sbatch") is None:
            raise MissingDataError(
                "--on slurm needs Slurm's sbatch, which is not on the PATH.",
                next_step="the same command on a machine that may submit jobs, or --on print, which writes a script",
            )
        self._submitit, self._executor, self._partition = submitit, executor, partition
        self.host = address_towards(None)
        FOLDER.mkdir(parents=True, exist_ok=True)
        FOLDER.chmod(0o700)  # what is sent names the token of the store

    def submit(self, errand: Errand) -> Any:
        """Return what stands for a job and the ones that follow it where it dies."""
        return _Submission(errand, self._begin(errand))

    def _begin(self, errand: Errand) -> Any:
        executor, resources = self._submitit.AutoExecutor(FOLDER, cluster=self._executor), errand.resources
        options: dict[str, Any] = {"cpus_per_task": resources.cpus, "gpus_per_node": resources.gpus}
        if resources.memory_gb:
            options["mem_gb"] = resources.memory_gb
        if self._executor == "slurm":
            options |= {"slurm_max_num_timeout": MAX_TIMEOUTS, "slurm_additional_parameters": {"requeue": True}}
        if self._partition is not None:
            options["slurm_partition"] = self._partition
        executor.update_parameters(name=errand.name, timeout_min=MINUTES, **options)
        return executor.submit(SlurmErrand(errand))

    def ended(self, sent: Collection[Any]) -> list[tuple[Any, BaseException | None]]:
        """Return the jobs of these that have ended, with their errors; one that died is submitted again."""
        while True:
            done = [(one, error) for one in sent if one.job.done() for error in self._errors(one)]
            if done:
                return done
            time.sleep(SECONDS_BETWEEN_LOOKS)

    def _errors(self, submission: _Submission) -> list[BaseException | None]:
        """Return the error of a job that has ended, or None, in a list; an empty one where it begins again."""
        errors = self._submitit.core.utils
        try:
            return [submission.job.result()]
        except (errors.UncompletedJobError, errors.FailedJobError) as death:
            submission.attempt += 1
            if submission.attempt < NUM_ATTEMPTS:
                submission.job = self._begin(submission.errand)
                return []
            log = submission.job.paths.stderr
            return [DeadWorkerError(f"or its node died ({type(death).__name__})", f"read the end of {log}")]

    def cancel(self, sent: Collection[Any]) -> None:
        """Stop these jobs."""
        for submission in sent:
            submission.job.cancel()


@dataclass(eq=False)
class _Submission:
    """An errand, the job that does it now, and how many did it before and died."""

    errand: Errand
    job: Any
    attempt: int = 0


@dataclass(frozen=True)
class SlurmErrand:
    """What a job does; where its time runs out, or Slurm takes its node back, it is submitted again as it was."""

    errand: Errand

    def __call__(self) -> Exception | None:
        """Do it on the GPUs that Slurm shows to the job."""
        gpus = os.environ.get(VISIBLE, "").split(",") if self.errand.resources.gpus else []
        return self.errand.do(gpus, socket.gethostname())

    def checkpoint(self) -> Any:
        """Return what submitit submits in place of a job that is being stopped."""
        import submitit

        return submitit.helpers.DelayedSubmission(self)


def write_script(arguments: Sequence[str], *, nodes: int = 2) -> Path:
    """Return the sbatch script that starts Ray on so many nodes and gives this command there."""
    command = shlex.join(["atrl-bench", *arguments, "--on", "ray", "--yes"])
    path = FOLDER / f"{arguments[0]}.sbatch"
    FOLDER.mkdir(parents=True, exist_ok=True)
    path.write_text(SCRIPT.format(nodes=nodes, gpus=GPUS_PER_NODE, folder=FOLDER, command=command), encoding="utf-8")
    return path


SCRIPT = """\
#!/bin/bash
# Ray on every node of one allocation, and the command on the first of them. Change nodes, GPUs and hours to yours.
#SBATCH --job-name=atrl-bench
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={gpus}
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --output={folder}/%j.out
set -euo pipefail
cd "$SLURM_SUBMIT_DIR"
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
export RAY_ADDRESS="$head:6379"
srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" ray start --head --port=6379 --block &
until ray status > /dev/null 2>&1; do sleep 2; done
if (( SLURM_JOB_NUM_NODES > 1 )); then
  others=$((SLURM_JOB_NUM_NODES - 1))
  srun --overlap --nodes=$others --ntasks=$others --exclude="$head" ray start --address="$RAY_ADDRESS" --block &
fi
# The same again goes on from what is stored, so a script that ran out of its time is submitted once more.
srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" {command}
"""
