"""What one of the processes of a launch does: `python -m atrl_bench.experiments.rank FILE`, with a job of `jobs.py`.

Of a training only the main process touches the run folder; of an evaluation each process stores what it answers.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from atrl_bench.engines.devices import HERE
from atrl_bench.engines.launch import rank
from atrl_bench.engines.processes import launched
from atrl_bench.experiments.jobs import LAUNCH_SPEC, TrainingJob, answer_and_shade, train


class RankPart:
    """This process's part of a job; `num_done` is how many evaluations are behind it."""

    def __init__(self, path: Path) -> None:
        self._job, self.num_done = LAUNCH_SPEC.validate_json(path.read_bytes()), 0

    def do(self) -> None:
        job = self._job
        if isinstance(job, TrainingJob):
            with job.run_dir.open_store() if launched().is_main else contextlib.nullcontext() as store:
                train(job, HERE, store)
            return
        with job.run_dir.open_store() as store:
            for task, options in job.evaluations:
                answer_and_shade(job, task, options, store)
                self.num_done += 1


if __name__ == "__main__":
    path = Path(sys.argv[1])
    part = RankPart(path)
    rank(part.do, path.with_suffix(".error"), lambda: part.num_done)
