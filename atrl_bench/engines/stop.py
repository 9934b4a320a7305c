"""A request to stop: SIGTERM, or the SIGUSR1 that a cluster sends some minutes before it takes the machine away.

A training saves after the running update and ends with code 75, which means "try again": the same command goes on from
there. Who waits for other processes tells them.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
EXIT_CODE = os.EX_TEMPFAIL
FILE = "ATRL_BENCH_STOP"  # names a file: once it is there, the processes of a launch are to stop


class Stopped(SystemExit):
    """What was begun is saved, and whoever calls ends, too."""

    def __init__(self) -> None:
        super().__init__(EXIT_CODE)


class StopRequest:
    """Whether somebody has asked this process to stop."""

    def __init__(self) -> None:
        self.signalled = False

    @property
    def is_made(self) -> bool:
        file = os.environ.get(FILE)
        return self.signalled or (file is not None and Path(file).exists())


def end_when_asked() -> None:
    """From now on a signal that no block has `heard` ends this process as Ctrl-C does, and with the code."""

    def end(*_: object) -> NoReturn:
        raise Stopped

    for number in SIGNALS:
        signal.signal(number, end)


@contextmanager
def heard(tell: Callable[[], None] = lambda: None) -> Iterator[StopRequest]:
    """Take the signals as a request inside the block, and tell others; a thread beside the main one hears none."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def hear(*_: object) -> None:
        request.signalled = True
        tell()

    before = {number: signal.signal(number, hear) for number in SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
