"""The command that gives a program a file system and kernel namespaces of its own, by `unshare` of util-linux.

The file system is a root in memory that holds read-only views of the system's and Python's libraries, the job under
`/sandbox/job`, and one writable folder `/sandbox/work` of limited size.
"""

from __future__ import annotations

import itertools
import os
import pwd
import shlex
import sys
import threading
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

JOB = "/sandbox/job"
WORK = "/sandbox/work"
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/libx32", "/lib64")
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/alternatives")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
HIDDEN = ("/usr/share/fonts", "/usr/local/share/fonts")  # a drawing must not depend on which fonts a machine has
NUM_FILES = 4096  # that a program may leave at a time
SAFE_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
TOOLS = ("unshare", "mount", "umount", "pivot_root", "setpriv")


@cache
def bound_folders() -> tuple[Path, ...]:
    """The folders and files of this machine that a program sees, read-only; links are not among them."""
    pythons = {Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve(), Path(sys.prefix), Path(sys.base_prefix)}
    paths = [Path(name) for name in SYSTEM + SYSTEM_FILES] + sorted(pythons)
    real = [path for path in dict.fromkeys(paths) if path.exists() and not path.is_symlink()]
    return tuple(path for path in real if not any(path != other and path.is_relative_to(other) for other in real))


def _links() -> dict[Path, str]:
    """The links in the root of a modern system (`/lib` is `usr/lib`), with where they point."""
    return {path: os.readlink(path) for path in map(Path, SYSTEM) if path.is_symlink()}


def isolated(program: Sequence[str], folder: Path, folder_bytes: int, user: int | None) -> list[str]:
    """The command that runs a program; `folder` has the job in `job` and an empty `root` to build in."""
    namespaces = ["--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child"]
    if user is None:  # not for root, whose processes the kernel would not count in a user namespace
        namespaces += ["--user", "--map-root-user"]
    return ["unshare", *namespaces, "sh", "-c", _building_script(folder, program, folder_bytes, user)]


def _building_script(folder: Path, program: Sequence[str], folder_bytes: int, user: int | None) -> str:
    root = folder / "root"
    lines: list[Sequence[str | Path]] = [
        ("set", "-eu"),
        ("mount", "-t", "tmpfs", "-o", "mode=755,size=1m,nosuid,nodev", "sandbox", root),
    ]
    views = [*((path, path) for path in bound_folders()), *((Path(path), Path(path)) for path in DEVICES)]
    for source, view in [*views, (folder / "job", Path(JOB))]:
        inside = root / view.relative_to("/")
        lines.append(("mkdir", "-p", inside if source.is_dir() else inside.parent))
        if not source.is_dir():
            lines.append(("touch", inside))
        # A read-only view of a device would be no device any more.
        options = "bind" if str(view) in DEVICES else "bind,ro,nosuid,nodev"
        lines.append(("mount", "-o", options, source, inside))
    lines += [("ln", "-s", target, root / path.relative_to("/")) for path, target in _links().items()]
    hidden = [root / path.relative_to("/") for path in map(Path, HIDDEN) if path.is_dir()]
    lines += [("mount", "-t", "tmpfs", "-o", "ro,size=4k", "sandbox", path) for path in hidden]
    work, old = root / WORK[1:], root / "old"
    options = f"mode=1777,size={folder_bytes},nr_inodes={NUM_FILES},nosuid,nodev"
    identity = [] if user is None else [f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    lines += [
        ("mkdir", "-p", work, old),
        ("mount", "-t", "tmpfs", "-o", options, "sandbox", work),
        ("ln", "-s", "old/proc", root / "proc"),  # `umount` needs it; it points nowhere afterwards
        ("mount", "-o", "remount,bind,ro,nosuid,nodev", root),
        ("cd", root),
        ("pivot_root", ".", "old"),
        ("cd", WORK),
        ("umount", "-l", "/old"),
        ("exec", "setpriv", *identity, "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", *program),
    ]
    return "\n".join(shlex.join(map(str, line)) for line in lines)


_runs = itertools.count()
_lock = threading.Lock()


def sandbox_user() -> int | None:
    """When this process is root, the number of a user that nobody has; another one to each run.

    Limits on processes and the right to signal go by user. An ordinary user keeps the own number, in a namespace.
    """
    if os.geteuid() != 0:
        return None
    with _lock:
        return next(number for number in _numbers() if not _is_taken(number))


def _numbers() -> Iterator[int]:
    """User numbers that a container has too, beginning elsewhere in each process."""
    while True:
        yield 30000 + (os.getpid() * 64 + next(_runs)) % 30000


def _is_taken(number: int) -> bool:
    try:
        pwd.getpwuid(number)
    except KeyError:
        return False
    return True
