"""One run of a program in isolation: what goes in, within which limits, and what comes back.

It is watched from outside: what it sends is read, and it is killed when it takes too long or too much memory.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from atrl_bench.sandbox.namespaces import JOB, SAFE_PATH, isolated, sandbox_user

INSIDE = Path(__file__).with_name("inside.py")
LOOK_SECONDS = 0.1
COMPLAINT_BYTES = 500


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


class SandboxResult(NamedTuple):
    """How a program ended, the last line of what it complained about, and those of the wanted files that it left."""

    state: Literal["finished", "failed", "timed out", "too big"]
    why: str
    files: Mapping[str, bytes]


def execute(
    program: bytes,
    arguments: Sequence[str],
    files: Mapping[str, bytes],
    outputs: Sequence[str],
    *,
    environment: Mapping[str, str],
    limits: Limits,
) -> SandboxResult:
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
    with _folder(contents) as folder:
        program_inside = [sys.executable, "-I", "-S", f"{JOB}/inside.py"]
        command = isolated(program_inside, folder, limits.folder_bytes, sandbox_user())
        ended = supervise(
            command,
            seconds=limits.wall_seconds + 5,  # the run ends itself before that, unless it is stopped from doing so
            memory_bytes=limits.memory_bytes + limits.folder_bytes,
            output_bytes=2 * limits.output_bytes,  # base64
        )
    if ended.broken is not None:
        return SandboxResult(ended.broken, ended.why, {})
    return _read_reply(ended.output, outputs, ended.why)


@contextlib.contextmanager
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


def _read_reply(output: bytes, outputs: Sequence[str], complaint: str) -> SandboxResult:
    """The result that the inside reports. The program may have tampered with it: it is data, like its files."""
    try:
        reply = json.loads(output)
        state, why = reply["state"], str(reply["why"])[:500]
        files = {
            name: base64.b64decode(reply["files"][name], validate=True) for name in outputs if name in reply["files"]
        }
    except (ValueError, KeyError, TypeError, RecursionError, binascii.Error):
        return SandboxResult("failed", f"the sandbox gave no report: {complaint}".strip(": "), {})
    if state not in ("finished", "failed", "timed out", "too big"):
        return SandboxResult("failed", "the sandbox gave no report", {})
    return SandboxResult(state, why, files)


# Watching --------------------------------------------------------------------------------------------------------


class Ended(NamedTuple):
    """What a sandbox has sent; `broken` says which limit it was killed for, if it was."""

    output: bytes
    broken: Literal["timed out", "too big"] | None
    why: str


def supervise(command: Sequence[str], *, seconds: float, memory_bytes: int, output_bytes: int) -> Ended:
    """What the command writes to its standard output. No process of it is left afterwards."""
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            start_new_session=True,
            cwd="/",
            env={"PATH": SAFE_PATH},
        )
        with contextlib.suppress(OSError):  # should memory end all the same, the kernel is to take this first
            Path(f"/proc/{process.pid}/oom_score_adj").write_text("1000")
        try:
            output, broken, why = _listen(process, seconds, memory_bytes, output_bytes)
        finally:
            _kill(process)
        if broken is None:
            complaints.seek(0)
            why = complaints.read(COMPLAINT_BYTES).decode("utf-8", "replace").strip()
    return Ended(output, broken, why)


def _listen(process: subprocess.Popen[bytes], seconds: float, memory_bytes: int, output_bytes: int) -> Ended:
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    poll = select.poll()
    poll.register(pipe, select.POLLIN | select.POLLHUP)
    deadline, output, next_look = time.monotonic() + seconds, bytearray(), 0.0
    while True:
        if poll.poll(1000 * LOOK_SECONDS):
            chunk = os.read(pipe, 1 << 16)
            if not chunk:
                return Ended(bytes(output), None, "")
            output += chunk
        now = time.monotonic()
        if len(output) > output_bytes:
            return Ended(b"", "too big", f"sent more than {output_bytes} bytes")
        if now > deadline:
            return Ended(b"", "timed out", f"not ended after {seconds:g} s")
        if now > next_look:
            next_look = now + LOOK_SECONDS
            if memory_below(process.pid) > memory_bytes:
                return Ended(b"", "too big", f"its processes have more than {memory_bytes >> 20} MiB together")


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        # The first process inside is in this group; the kernel ends a process namespace with its first process.
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def memory_below(process: int) -> int:
    """The bytes of memory that a process and all it has started hold; shared pages count for each of them."""
    import psutil  # what only asks whether programs may run does without

    total = 0
    with contextlib.suppress(psutil.Error):  # any of them may end while it is looked at
        top = psutil.Process(process)
        for one in [top, *top.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                total += one.memory_info().rss
    return total
