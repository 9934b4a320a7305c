"""One piece of work over several processes, started by accelerate; all die with the process that waits for them.

`run` starts `python -m atrl_bench.engines.launch`, which becomes accelerate's launcher, which starts `python -m MODULE`
once for each device. MODULE does its part inside `rank`: the first that fails writes down why, which `run` raises.
"""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any, Literal

from atrl_bench.digests import recall, remember
from atrl_bench.engines import stop
from atrl_bench.engines.devices import Devices, environment
from atrl_bench.engines.local import NUM_ATTEMPTS, exit_reason, start_worker
from atrl_bench.engines.processes import TEMPORARY
from atrl_bench.errors import AtrlBenchError, reason_of
from atrl_bench.resources import folder

PARENT = "ATRL_BENCH_PARENT"  # the process id of the launcher, with which its processes die
Configuration = Literal["fsdp2", "ddp", "cpu"]  # of recipes/launch


class LaunchError(AtrlBenchError):
    """What one of several processes ended with; `progress` is how far they were."""

    def __init__(self, what: str, *, why: str = "", next_step: str = "", progress: int = 0) -> None:
        super().__init__(what, why=why, next_step=next_step)
        self.progress = progress


def launch_command(module: str, arguments: Sequence[str], configuration: Configuration, devices: Devices) -> list[str]:
    start = ["-m", module, *arguments]
    if devices.count == 1:
        return start
    file = folder("recipes") / "launch" / f"{configuration}.yaml"
    over = ["--config_file", str(file), "--num_processes", str(devices.count)]
    if (these := devices.machines) is not None:
        over += ["--num_machines", str(these.count), "--machine_rank", str(these.index)]
        over += ["--main_process_ip", these.host, "--main_process_port", str(these.port)]
    return [*over, *start]


def run(
    module: str, argument: Path, configuration: Configuration, devices: Devices, log: Path, *, saves: bool = False
) -> None:
    """Run a module on a file in a process for each device; raises the first error, begins anew if one just dies.

    What `saves` when it is asked to stop is waited for. Of several machines each does this for its own processes;
    whoever placed the work on them begins it anew.
    """
    error_file, stop_file = argument.with_suffix(".error"), argument.with_suffix(".stop")
    if devices.speak:
        error_file.unlink(missing_ok=True)
        stop_file.unlink(missing_ok=True)
    command = launch_command(module, [str(argument)], configuration, devices)
    starter = [sys.executable, *([] if devices.count == 1 else ["-m", "atrl_bench.engines.launch"])]
    variables = environment(devices) | {PARENT: str(os.getpid()), stop.FILE: str(stop_file)}
    if not devices.gpus:
        variables |= {"ACCELERATE_USE_CPU": "true"}
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("ab") as output,
        stop.heard(stop_file.touch) if saves else nullcontext() as request,
        TemporaryDirectory(prefix="atrl-bench-", ignore_cleanup_errors=True) as variables[TEMPORARY],
    ):
        for _ in range(NUM_ATTEMPTS if devices.machines is None else 1):
            code = subprocess.call(
                [*starter, *command],
                env=os.environ | variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            if not code:
                return
            if error_file.is_file():
                break
            if request is not None and request.is_made:
                raise stop.Stopped
            with NamedTemporaryFile(dir=argument.parent) as file:  # raises where the disk had no room for a last word
                file.write(bytes(4096))
    raise _error(error_file, code, log)


def rank(work: Callable[[], None], error_file: Path, progress: Callable[[], int] = lambda: 0) -> None:
    start_worker(int(os.environ[PARENT]))
    try:
        work()
    except Exception as error:
        content: dict[str, Any] = {"what": reason_of(error), "progress": progress()}
        if isinstance(error, AtrlBenchError):
            content |= {"why": error.why, "next_step": error.next_step}
        if not error_file.exists():  # whoever was first is the cause, the others are its consequence
            remember(error_file, content)
        with suppress(OSError):  # the log is on the disk that is full
            traceback.print_exc()
            sys.stderr.flush()
        # Not by the usual way out: it would wait for processes that wait for this one.
        os._exit(1)


def _error(error_file: Path, code: int, log: Path) -> LaunchError:
    if content := recall(error_file):
        error_file.unlink()
        return LaunchError(**{**content, "what": f"{content['what']} Log: {log}"})
    return LaunchError(
        f"A process {exit_reason(code)}, {NUM_ATTEMPTS} times, and could not say why. Log: {log}",
        next_step=f"read the end of {log}; a process that was killed has often used too much memory",
    )


if __name__ == "__main__":
    start_worker(int(os.environ[PARENT]))
    os.environ[PARENT] = str(os.getpid())
    from accelerate.commands.launch import main

    main()
