"""Runs Python programs that nobody has read: without network, without this machine's files, within limits (D14).

A program gets a file system of its own: the system's and Python's libraries read-only, one small writable folder in
memory, no `/proc`, no device but the null device and the like. It cannot see or signal other processes, has no
privileges, no environment but the one given here, and the kernel refuses it the calls that would lead further. What
comes back is one stream of limited size, so nothing it does ever writes to this machine's disk. A backend counts as
available only after a probe has tried to get out of it and failed.

It holds against a program that a model wrote badly or with ill will. It shares the kernel with the machine, so a hole
in the kernel is a hole in it; on a machine that must not be lost, run the whole evaluation in a virtual machine.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from socket import create_server
from typing import Literal, NamedTuple

from atrl_bench.errors import AtrlBenchError
from atrl_bench.sandbox.backends import BACKENDS, JOB, Backend, bound_folders, sandbox_user
from atrl_bench.sandbox.supervise import supervise

CODE_ISOLATION = "code isolation"  # how a task file names what is here
PERMISSION = "ATRL_BENCH_ALLOW_CODE"  # set to 1 by `--allow-code`
NOT_PERMITTED = "Programs written by models are not allowed to run."
INSIDE = Path(__file__).with_name("inside.py")
PROBE = Path(__file__).with_name("probe.py")


@dataclass(frozen=True)
class Limits:
    """What a program may use; whichever it reaches first ends it."""

    wall_seconds: float = 60.0
    cpu_seconds: int = 30  # of each process
    memory_bytes: int = 2 << 30  # of each process, and of all of them together
    num_processes: int = 24  # threads count
    file_bytes: int = 16 << 20  # the largest file
    folder_bytes: int = 64 << 20  # all files; they are in memory
    output_bytes: int = 16 << 20  # what comes back


class Outcome(NamedTuple):
    """How a program ended, the last line of what it complained about, and those of the wanted files that it left."""

    state: Literal["finished", "failed", "timed out", "too big"]
    why: str
    files: Mapping[str, bytes]


def run_program(
    program: bytes,
    *,
    arguments: Sequence[str] = (),
    files: Mapping[str, bytes] | None = None,
    outputs: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    limits: Limits = Limits(),
) -> Outcome:
    """Return how a Python program ended and the `outputs` among the files that it left in its working folder.

    `files` are laid into that folder first. Raises when programs may not run here: no permission, or no isolation.
    """
    backend = require_isolation()
    return _run(backend, program, arguments, files or {}, outputs, environment=environment or {}, limits=limits)


def require_isolation() -> Backend:
    """Return what isolates programs here; raises when they may not run: no permission, or no isolation."""
    require_permission()
    return available_backend()


def is_permitted() -> bool:
    """Return whether the user has said that programs written by models may run on this machine."""
    return os.environ.get(PERMISSION) == "1"


def require_permission() -> None:
    """Raise unless the user has said that programs written by models may run on this machine."""
    if not is_permitted():
        raise AtrlBenchError(
            NOT_PERMITTED,
            why="This benchmark runs the code of every answer, in isolation, but on this machine.",
            next_step=f"give run-table, ablate or evaluate --allow-code, or set {PERMISSION}=1 in the environment",
        )


@cache
def available_backend() -> Backend:
    """Return the first backend that a probe could not break out of; it is tried once in a process."""
    reasons = []
    for backend in BACKENDS:
        missing = [tool for tool in backend.tools if shutil.which(tool) is None]
        leaks = [f"no {', '.join(missing)} here"] if missing else _leaks(backend)
        if not leaks:
            return backend
        reasons.append(f"{backend.name}: {'; '.join(leaks)}")
    raise AtrlBenchError(
        "This machine has no way to isolate a program, so no model-written code is run.",
        why=". ".join(reasons) + ".",
        next_step="install bubblewrap (as an ordinary user) or run as root with util-linux, on Linux",
    )


# One run ----------------------------------------------------------------------------------------------------------


def _run(
    backend: Backend,
    program: bytes,
    arguments: Sequence[str],
    files: Mapping[str, bytes],
    outputs: Sequence[str],
    *,
    environment: Mapping[str, str],
    limits: Limits,
) -> Outcome:
    job = {
        "python": sys.executable,
        "arguments": list(arguments),
        "outputs": list(outputs),
        "environment": dict(environment),
        "limits": asdict(limits),
    }
    contents = {
        "inside.py": INSIDE.read_bytes(),
        "program.py": program,
        "job.json": json.dumps(job).encode(),
        **{f"files/{name}": content for name, content in files.items()},
    }
    with _folder(contents) as folder, sandbox_user() as user:
        command = backend.command(folder, [sys.executable, "-I", "-S", f"{JOB}/inside.py"], limits.folder_bytes, user)
        ended = supervise(
            command,
            seconds=limits.wall_seconds + 5,  # the run ends itself before that, unless it is stopped from doing so
            memory_bytes=limits.memory_bytes + limits.folder_bytes,
            output_bytes=2 * limits.output_bytes,  # base64
        )
    if ended.broken is not None:
        return Outcome(ended.broken, ended.why, {})
    return _read_reply(ended.output, outputs, ended.why)


@contextmanager
def _folder(contents: Mapping[str, bytes]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="atrl-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # read from inside by a user without a name
        (folder / "job").mkdir()
        (folder / "root").mkdir()
        for path, content in contents.items():
            target = folder / "job" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        yield folder


def _read_reply(output: bytes, wanted: Sequence[str], complaint: str) -> Outcome:
    """Return the outcome that the inside reports. The program may have tampered with it: it is data, like its files."""
    try:
        reply = json.loads(output)
        state, why = reply["state"], str(reply["why"])[:500]
        files = {
            name: base64.b64decode(reply["files"][name], validate=True) for name in wanted if name in reply["files"]
        }
    except (ValueError, KeyError, TypeError, RecursionError, binascii.Error):
        return Outcome("failed", f"the sandbox gave no report: {complaint}".strip(": "), {})
    if state not in ("finished", "failed", "timed out", "too big"):
        return Outcome("failed", "the sandbox gave no report", {})
    return Outcome(state, why, files)


# The probe --------------------------------------------------------------------------------------------------------


def _leaks(backend: Backend) -> list[str]:
    """Return what a program could do that it must not, from a program of ours that tries all of it."""
    limits = Limits(wall_seconds=60, cpu_seconds=10, memory_bytes=256 << 20, num_processes=8, folder_bytes=4 << 20)
    home = Path.home()
    with create_server(("127.0.0.1", 0)) as listener:
        task = {"port": listener.getsockname()[1], "home": str(home), "process": os.getpid(), "prefix": sys.prefix}
        outcome = _run(
            backend,
            PROBE.read_bytes(),
            [json.dumps(task)],
            {},
            ["report.json"],
            environment={},
            limits=limits,
        )
    if outcome.state != "finished" or "report.json" not in outcome.files:
        return [f"does not start ({outcome.why or outcome.state})"]
    report = json.loads(outcome.files["report.json"])
    on_the_way = {
        path.relative_to(home).parts[0] for path in bound_folders() if path.is_relative_to(home) and path != home
    }
    checks = {
        "reaches this machine's network": report["connected"],
        "reaches the internet": report["sent"],
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
    return [leak for leak, found in checks.items() if found]
