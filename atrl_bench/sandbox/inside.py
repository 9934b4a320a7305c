"""The first process inside the sandbox: starts the program within its limits and sends back what it leaves.

Runs alone, with the standard library only. It is process 1 in there, so nothing inside can kill it, and its end ends
everything else.
"""

import base64
import contextlib
import ctypes
import errno
import json
import os
import platform
import resource
import shutil
import signal
import stat
import struct
import subprocess
import sys

JOB = "/sandbox/job"
WORK = "/sandbox/work"
LAST_BYTES = 2000
NUM_OPEN_FILES = 64  # files in memory that have no name count for no folder, only here


def main() -> None:
    with open(f"{JOB}/job.json", encoding="utf-8") as file:
        job = json.load(file)
    os.chdir(WORK)
    for folder, _, names in os.walk(f"{JOB}/files"):
        target = os.path.join(WORK, os.path.relpath(folder, f"{JOB}/files"))
        os.makedirs(target, exist_ok=True)
        for name in names:
            shutil.copyfile(os.path.join(folder, name), os.path.join(target, name))
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


# System calls -----------------------------------------------------------------------------------------------------

# New namespaces would give the program mounts, and so memory that no limit here counts; so would shared memory. The
# others are not needed to draw a chart and have let programs out before.
MACHINES = ("x86_64", "aarch64")
CALLS = {  # their numbers on each of the machines
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "add_key": (248, 217),
    "keyctl": (250, 219),
    "ptrace": (101, 117),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
}
ARCHITECTURE = (0xC000003E, 0xC00000B7)  # as the kernel names the machines to a filter
SOCKET = (41, 198)
INTERNET = (2, 10)  # families that the network namespace keeps in; others, such as AF_VSOCK, know no namespace
CLONE = (56, 220)
CLONE3 = 435  # takes its flags where no filter can look; the C library then falls back on `clone`
NAMESPACES = 0x7E020080  # the flags of `clone` that ask for a namespace of any kind
FOREIGN = 0x40000000  # numbers from here on are another calling convention of the same processor
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
LOAD, EQUAL, ANY_BIT, AT_LEAST, RETURN = 0x20, 0x15, 0x45, 0x35, 0x06  # of the filter's little language
ALLOW, KILL, FAIL = 0x7FFF0000, 0x80000000, 0x00050000
NUMBER_AT, ARCHITECTURE_AT, FIRST_ARGUMENT_AT = 0, 4, 16


def _forbid_calls() -> None:
    """Let the kernel refuse some system calls to this process and all that it starts; raises where it cannot."""
    if platform.machine() not in MACHINES:
        raise SystemExit(f"no list of system calls for {platform.machine()}")
    machine = MACHINES.index(platform.machine())
    refuse, missing = (RETURN, 0, 0, FAIL | errno.EPERM), (RETURN, 0, 0, FAIL | errno.ENOSYS)
    steps = [(LOAD, 0, 0, ARCHITECTURE_AT), (EQUAL, 1, 0, ARCHITECTURE[machine]), (RETURN, 0, 0, KILL)]
    steps += [(LOAD, 0, 0, NUMBER_AT), (AT_LEAST, 0, 1, FOREIGN), refuse, (EQUAL, 0, 1, CLONE3), missing]
    for numbers in CALLS.values():
        steps += [(EQUAL, 0, 1, numbers[machine]), refuse]
    steps += [(EQUAL, 0, 5, SOCKET[machine]), (LOAD, 0, 0, FIRST_ARGUMENT_AT), (EQUAL, 2, 0, INTERNET[0])]
    steps += [(EQUAL, 1, 0, INTERNET[1]), (RETURN, 0, 0, FAIL | errno.EAFNOSUPPORT), (RETURN, 0, 0, ALLOW)]
    steps += [(EQUAL, 0, 3, CLONE[machine]), (LOAD, 0, 0, FIRST_ARGUMENT_AT), (ANY_BIT, 0, 1, NAMESPACES), refuse]
    steps += [(RETURN, 0, 0, ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0) != 0:
        raise SystemExit(f"the kernel takes no filter of system calls: {os.strerror(ctypes.get_errno())}")


# The program ------------------------------------------------------------------------------------------------------


def _run(job: dict, limits: dict) -> tuple[str, str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": WORK, "TMPDIR": WORK, "LANG": "C.UTF-8", **job["environment"]}
    with os.fdopen(os.memfd_create("complaints"), "w+b") as complaints:  # outside the folder, which may be full
        _forbid_calls()
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
    """At most one byte more than the limit of an ordinary file; nothing of a link, a pipe or a device."""
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
