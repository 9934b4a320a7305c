"""Whether a process works on a store: each that does holds a lock on a file beside it, which ends with it."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import BinaryIO

SUFFIX = "-working"


def hold(store: Path) -> BinaryIO:
    """Return an open file that says, until it is closed or this process ends, that the store is worked on."""
    file = store.with_name(store.name + SUFFIX).open("ab")
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
        except BlockingIOError:
            return True
    return False
