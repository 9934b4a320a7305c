"""Whose turn it is to write to a store: processes that want to are let in one by one, none is passed over for long.

SQLite has one writer at a time, and whoever finds it at work asks again after a pause that grows: a process that writes
all the time gets back in before one that has waited for seconds. Here two bytes of a file beside the store are locked.
The one who waits next holds the first, who writes holds the second; who has just written is behind the one who waits.
The locks end with their process. Where a disk has none, SQLite's own lock decides alone.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SUFFIX = "-turn"
NEXT, WRITING = 0, 1  # bytes of the file
PAUSES = (1e-5, 2e-4)  # seconds between the first two looks, and at most: a small batch is written in 8e-5


@contextmanager
def turn(store: Path, patience: float) -> Iterator[None]:
    """Wait until it is this process's turn to write, or for so many seconds: then SQLite's lock decides."""
    try:
        file = os.open(store.with_name(store.name + SUFFIX), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    except OSError:  # SQLite will say what is wrong with the folder
        yield
        return
    try:
        with suppress(OSError):
            _wait_for(file, NEXT, time.monotonic() + patience)
            _wait_for(file, WRITING, time.monotonic() + patience)
            fcntl.lockf(file, fcntl.LOCK_UN, 1, NEXT)
        yield
    finally:
        os.close(file)  # gives up what is held


def _wait_for(file: int, byte: int, deadline: float) -> None:
    pause, longest = PAUSES
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
            return
        except (BlockingIOError, PermissionError):
            if time.monotonic() > deadline:
                raise
            time.sleep(pause)
            pause = min(2 * pause, longest)
