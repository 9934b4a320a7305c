"""Hold a file against other processes; the lock of a killed one is gone."""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

WITHOUT_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})  # what network file systems say


@contextmanager
def alone(path: Path) -> Iterator[bool]:
    """Hold the file at `path`; yields whether it is held, as by `lock`."""
    with path.open("w") as file:
        yield lock(file)


def lock(file: IO[Any]) -> bool:
    """Hold an open file until it is closed, and wait for whoever holds it; false on a disk that has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno in WITHOUT_LOCKS:
            return False
        raise
    return True
