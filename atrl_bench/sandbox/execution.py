"""One run of a program in isolation: what goes in, within which limits, and what comes back."""

from __future__ import annotations

import base64
import binascii
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from atrl_bench.sandbox.namespaces import JOB, isolated, sandbox_user
from atrl_bench.sandbox.supervise import supervise

INSIDE = Path(__file__).with_name("inside.py")


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
    with _folder(contents) as folder, sandbox_user() as user:
        command = isolated([sys.executable, "-I", "-S", f"{JOB}/inside.py"], folder, limits.folder_bytes, user)
        ended = supervise(
            command,
            seconds=limits.wall_seconds + 5,  # the run ends itself before that, unless it is stopped from doing so
            memory_bytes=limits.memory_bytes + limits.folder_bytes,
            output_bytes=2 * limits.output_bytes,  # base64
        )
    if ended.broken is not None:
        return SandboxResult(ended.broken, ended.why, {})
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
