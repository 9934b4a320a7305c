"""Watches a sandbox from outside: reads what it sends, and kills it when it takes too long or too much memory."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from atrl_bench.sandbox.namespaces import SAFE_PATH

LOOK_SECONDS = 0.1
COMPLAINT_BYTES = 500


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
    children: defaultdict[int, list[int]] = defaultdict(list)
    pages: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):  # it may end while it is looked at
                # The name, in brackets, may hold blanks and brackets.
                children[int((entry / "stat").read_text().rpartition(")")[2].split()[1])].append(int(entry.name))
                pages[int(entry.name)] = int((entry / "statm").read_text().split()[1])
    total, waiting = 0, [process]
    while waiting:
        number = waiting.pop()
        total += pages.get(number, 0)
        waiting += children[number]
    return total * os.sysconf("SC_PAGE_SIZE")
