"""What schedule.py has its nodes do in place of work; they import no more than this."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from atrl_bench.engines.devices import Devices

PLACE = "ATRL_BENCH_PLACE"  # the variable with the name of this node
NUM_SNAPSHOTS = 75  # of a training: the rollouts of GRPO under profile paper


@dataclass(frozen=True)
class Sleep:
    """A job that takes so many hours, of which its file says how much is done."""

    name: str
    hours: float
    gpus: int
    is_training: bool
    file: str


def do(sleep: Sleep, devices: Devices, *, seconds_per_hour: float) -> None:
    """Sleep what is left of a job, and keep what is done as often as it keeps a snapshot."""
    path, begun = Path(sleep.file), time.time()
    lines = path.read_text().splitlines() if path.exists() else []
    num_done, steps = len(lines), NUM_SNAPSHOTS if sleep.is_training else 1
    for number in range(num_done, steps):
        time.sleep(max(0.0, begun + (number + 1 - num_done) * sleep.hours / steps * seconds_per_hour - time.time()))
        with path.open("a") as file:
            file.write(f"{begun} {time.time()} {os.environ[PLACE]}\n")
