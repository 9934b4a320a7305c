"""The first process inside the sandbox: starts the program within its limits and sends back what it leaves.

Runs alone, with the standard library only. It is process 1 in there, so nothing inside can kill it, and its end ends
everything else.
"""

import base64
import contextlib
import json
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys

JOB = "/sandbox/job"
WORK = "/sandbox/work"
LAST_BYTES = 2000
NUM_OPEN_FILES = 64  # files in memory that have no name count for no folder, only here


def main() -> None:
    """Do the job and write the report to standard output."""
    with open(f"{JOB}/job.json", encoding="utf-8") as file:
        job = json.load(file)
    os.chdir(WORK)
    for folder, _, names in os.walk(f"{JOB}/files"):
        place = os.path.join(WORK, os.path.relpath(folder, f"{JOB}/files"))
        os.makedirs(place, exist_ok=True)
        for name in names:
            shutil.copyfile(os.path.join(folder, name), os.path.join(place, name))
    limits = job["limits"]
    _limit(limits)
    state, why = _run(job, limits)
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)  # whatever the program has started and left
    files: dict[str, str] = {}
    left = limits["output_bytes"]
    for name in job["outputs"]:
        content = _read(name, left)
        if content is None:
            continue
        if len(content) > left:
            state, why = "too big", f"what it leaves has more than {limits['output_bytes']} bytes"
            files.clear()
            break
        left -= len(content)
        files[name] = base64.b64encode(content).decode()
    json.dump({"state": state, "why": why, "files": files}, sys.stdout)


def _limit(limits: dict) -> None:
    bounds = {
        resource.RLIMIT_CPU: limits["cpu_seconds"],
        resource.RLIMIT_AS: limits["memory_bytes"],
        resource.RLIMIT_NPROC: limits["num_processes"],
        resource.RLIMIT_FSIZE: limits["file_bytes"],
        resource.RLIMIT_NOFILE: NUM_OPEN_FILES,
        resource.RLIMIT_CORE: 0,
    }
    for kind, bound in bounds.items():
        resource.setrlimit(kind, (bound, bound))


def _run(job: dict, limits: dict) -> tuple[str, str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": WORK, "TMPDIR": WORK, "LANG": "C.UTF-8", **job["environment"]}
    with os.fdopen(os.memfd_create("complaints"), "w+b") as complaints:  # outside the folder, which may be full
        # -I: no variables, no folder of the user; the program's own libraries come from Python's own folder alone.
        process = subprocess.Popen(
            [job["python"], "-I", "-B", f"{JOB}/program.py", *job["arguments"]],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=complaints,
            start_new_session=True,
        )
        try:
            code = process.wait(limits["wall_seconds"])
        except subprocess.TimeoutExpired:
            return "timed out", f"still running after {limits['wall_seconds']:g} s"
        end = complaints.seek(0, os.SEEK_END)
        complaints.seek(max(0, end - LAST_BYTES))
        lines = complaints.read(LAST_BYTES).decode("utf-8", "replace").split("\n")
    if code == 0:
        return "finished", ""
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return "timed out", f"more than {limits['cpu_seconds']} s of computing"
    if code < 0:
        return "failed", f"ended by signal {-code}"
    return "failed", next((line.strip() for line in reversed(lines) if line.strip()), f"exit status {code}")[:300]


def _read(name: str, limit: int) -> "bytes | None":
    """Return at most one byte more than the limit of an ordinary file; nothing of a link, a pipe or a device."""
    try:
        number = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            return None
        with os.fdopen(number, "rb", closefd=False) as file:
            return file.read(limit + 1)
    finally:
        os.close(number)


if __name__ == "__main__":
    main()
