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


def imports_main() -> bool:
    """Whether this is a worker process that still imports its parent's script."""
    return getattr(multiprocessing.current_process(), "_inheriting", False)


def lock(file: IO[Any] | int) -> bool:
    """Hold an open file until it is closed, and wait for whoever holds it; false on a disk that has no locks.

    A worker process that still imports its parent's script does not wait: that parent may wait for the worker.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if imports_main() else 0))
    except BlockingIOError:
        raise SystemExit(1) from None  # this process's parent says what the script lacks
    except OSError as error:
        if error.errno in WITHOUT_LOCKS:
            return False
        raise
    return True
