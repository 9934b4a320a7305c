"""Whether a model's program may run on this machine: the user's permission, and a probe that tries to get out."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from socket import create_server

from atrl_bench.errors import AtrlBenchError
from atrl_bench.resources import users_home
from atrl_bench.sandbox.execution import Limits, SandboxResult, execute
from atrl_bench.sandbox.namespaces import TOOLS, bound_folders

CODE_ISOLATION = "code isolation"  # how a task file names what is here
PERMISSION = "ATRL_BENCH_ALLOW_CODE"  # set to 1 by `--allow-code`
NOT_PERMITTED = "Programs written by models are not allowed to run."
PROBE = Path(__file__).with_name("probe.py")


def run_program(
    program: bytes,
    *,
    files: Mapping[str, bytes] | None = None,
    outputs: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    limits: Limits | None = None,
) -> SandboxResult:
    """How a Python program ended and the `outputs` among the files that it left in its working folder.

    `files` are laid into that folder first. Raises when programs may not run here: no permission, or no isolation.
    """
    require_isolation()
    return execute(program, (), files or {}, outputs, environment=environment or {}, limits=limits or Limits())


def require_isolation() -> None:
    """Raise where programs may not run: no permission, or no isolation."""
    require_permission()
    if leaks := known_leaks():
        raise AtrlBenchError(
            "This machine has no way to isolate a program, so no model-written code is run.",
            why=f"{'; '.join(leaks)}.",
            next_step="on Linux with util-linux, run as root or where the kernel lets users make namespaces",
        )


def is_permitted() -> bool:
    return os.environ.get(PERMISSION) == "1"


def require_permission() -> None:
    if not is_permitted():
        raise AtrlBenchError(
            NOT_PERMITTED,
            why="This benchmark runs the code of every answer, in isolation, but on this machine.",
            next_step=f"give run-table, ablate or evaluate --allow-code, or set {PERMISSION}=1 in the environment",
        )


# The probe --------------------------------------------------------------------------------------------------------


@cache
def known_leaks() -> list[str]:
    """Why a program cannot be isolated here; nothing where it can. Tried once in a process."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    return [f"no {', '.join(missing)} here"] if missing else find_leaks()


def find_leaks() -> list[str]:
    """What a program could do that it must not, from a program of ours that tries all of it."""
    limits = Limits(wall_seconds=60, cpu_seconds=10, memory_bytes=256 << 20, num_processes=8, folder_bytes=4 << 20)
    home = users_home()
    with create_server(("127.0.0.1", 0)) as listener:
        task = {"port": listener.getsockname()[1], "home": str(home), "process": os.getpid(), "prefix": sys.prefix}
        result = execute(PROBE.read_bytes(), [json.dumps(task)], {}, ["report.json"], environment={}, limits=limits)
    if result.state != "finished" or "report.json" not in result.files:
        return [f"does not {'start' if result.state == 'failed' else 'end'} ({result.why or result.state})"]
    report = json.loads(result.files["report.json"])
    on_the_way = {
        path.relative_to(home).parts[0] for path in bound_folders() if path.is_relative_to(home) and path != home
    }
    checks = {
        "reaches this machine's network": report["connected"],
        "reaches the internet": report["sent"],
        f"opens sockets of {', '.join(report['families'])}": report["families"],
        "sees the home folder": not set(report["home"]) <= on_the_way,
        "reads /etc/shadow": report["shadow"],
        f"writes to {report['written']}": report["written"],
        "sees this machine's environment": set(report["environment"]) - set(report["expected_environment"]),
        "sees other processes": report["processes"],
        "signals other processes": report["signalled"],
        "starts processes without end": report["started"] >= limits.num_processes,
        "takes memory without end": report["allocated"],
        "fills the disk": report["filled"],
        "keeps privileges": report["mounted"],
        "makes namespaces": report["namespaces"],
        "has memory that is not counted": report["hidden"],
    }
    return [leak for leak, is_open in checks.items() if is_open]
