"""Whether a process works on a store: each that does holds a lock on a file beside it, which ends with it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

SUFFIX = "-working"


def hold(store: Path) -> int:
    """Return the number of an open file that says, until it is closed or this process ends, that work goes on."""
    file = os.open(store.with_name(store.name + SUFFIX), os.O_CREAT | os.O_RDONLY | os.O_CLOEXEC, 0o644)
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


def is_worked_on(store: Path) -> bool:
    """Return whether a process on this machine works on the store now."""
    path = store.with_name(store.name + SUFFIX)
    if not path.is_file():
        return False
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # held by another process, or a disk without locks: then only silence tells
            return True
    return False
