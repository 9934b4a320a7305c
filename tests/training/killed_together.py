"""A training that two processes share, killed at one moment after another: for a test, which reads what is printed.

Everything is imported once and each process is a fork, so that a start takes seconds.
"""

import json
import os
import pkgutil
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

import accelerate  # noqa: F401
import torch
import transformers.models.qwen2_5_vl.modeling_qwen2_5_vl  # noqa: F401
import trl  # noqa: F401
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


def process(rank: int, port: int, out: Path, moment: dict | None) -> None:
    world = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in world.items()}
    os.environ |= {"ACCELERATE_USE_CPU": "true", "ACCELERATE_USE_FSDP": "true"}
    if moment and moment.pop("process") == rank:
        killed_at(**moment)
    trained(recipe, base, data, str(out), profile)


def launch(out: Path, moment: dict | None = None) -> list[int]:
    """How both ended, as a launcher has them: once one is gone the other is told to end. Nothing of them is left."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    children: list[int] = []
    for rank in range(2):
        child = os.fork()
        group = children[0] if children else child
        with suppress(OSError):  # whichever of parent and child is first
            os.setpgid(child, group)
        if child == 0:
            code = 1
            try:
                process(rank, port, out, moment)
                code = 0
            finally:
                sys.stderr.flush()
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.wait()[1])]
    if codes[0]:
        with suppress(ProcessLookupError):
            os.killpg(children[0], signal.SIGTERM)
    codes.append(os.waitstatus_to_exitcode(os.wait()[1]))
    for _ in range(600):  # those that computed the credit end by themselves
        with suppress(ProcessLookupError):
            os.killpg(children[0], 0)
            time.sleep(0.1)
            continue
        return codes
    raise AssertionError("something outlives its training")


if __name__ == "__main__":
    recipe, base, data, out, profile, moments = sys.argv[1:]
    torch.set_num_threads(1)
    saving.MOST_FILE_BYTES = 600_000  # several files
    report = {"whole": launch(Path(out) / "whole"), "steps": {}, "codes": {}}
    for phase, moment in json.loads(moments).items():
        report["codes"][phase] = launch(Path(out) / "killed", moment)
        saved = (Path(out) / "killed").glob("*/resume/checkpoint-*")
        report["steps"][phase] = sorted(int(path.name.removeprefix("checkpoint-")) for path in saved)
    report["last"] = launch(Path(out) / "killed")
    print(json.dumps(report))
