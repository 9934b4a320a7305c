"""Hold a file against other processes; the lock of a killed one is gone."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from atrl_bench.errors import UnguardedMainError

# What network file systems say, the last of folders.
WITHOUT_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF})


@contextmanager
def alone(path: Path) -> Iterator[bool]:
    """Hold the file at `path`; yields whether it is held, as by `lock`."""
    with path.open("w") as file:
        yield lock(file)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold a folder, where the disk has locks for that; it need not be one to write to."""
    number = os.open(folder, os.O_RDONLY)
    try:
        lock(number)
        yield
    finally:
        os.close(number)


def lock(file: IO[Any] | int) -> bool:
    """Hold an open file until it is closed, and wait for whoever holds it; false on a disk that has no locks.

    A worker process that still imports its parent's script does not wait: that parent may wait for the worker.
    """
    imports_main = getattr(multiprocessing.current_process(), "_inheriting", False)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if imports_main else 0))
    except BlockingIOError as error:
        raise UnguardedMainError("A worker process has begun the work of its script anew.") from error
    except OSError as error:
        if error.errno in WITHOUT_LOCKS:
            return False
        raise
    return True
