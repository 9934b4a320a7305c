"""One of two processes that share a training, of which one or both are killed at a moment."""

import os
import pkgutil
import signal

from killed_run import trained  # the folder of a program is the first place where Python looks

from atrl_bench.training import saving


def killed_at(place: str, number: int, everyone: bool) -> None:
    """Kill this process, or both, when a function is called for the n-th time."""
    owner, _, name = place.rpartition(".")
    owner, left = pkgutil.resolve_name(owner), [number]
    original = getattr(owner, name)

    def call(*arguments, **options):
        left[0] -= 1
        if left[0] == 0:
            (os.killpg if everyone else os.kill)(os.getpgrp() if everyone else os.getpid(), signal.SIGKILL)
        return original(*arguments, **options)

    setattr(owner, name, call)


def process(moment, *training):
    os.environ["ACCELERATE_USE_FSDP"] = "true"
    saving.MOST_FILE_BYTES = 600_000  # several files
    if moment and moment.pop("process") == int(os.environ["RANK"]):
        killed_at(**moment)
    trained(*training)
