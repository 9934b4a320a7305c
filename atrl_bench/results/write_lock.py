"""Which process writes a store: it holds a lock on a file beside it, which ends with it and says where it listens."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import NamedTuple

SUFFIX = "-writer"


class Address(NamedTuple):
    """Where a process carries out what others hand over, and the key that opens the way to it."""

    host: str
    port: int
    key: str

    @property
    def text(self) -> str:
        return f"{self.host} {self.port} {self.key}"

    @classmethod
    def parse(cls, text: str) -> Address:
        host, port, key = text.split()
        return cls(host, int(port), key)


def take(store: Path) -> int | None:
    """The number of an open file that holds the lock until it is closed, None where another process does."""
    flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
    file = os.open(store.with_name(store.name + SUFFIX), flags, 0o600)  # the key is nobody else's
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    except OSError:  # a disk without locks: SQLite's own decides from one answer to the next
        pass
    os.ftruncate(file, 0)  # who wrote before listens no more
    return file


def announce(lock: int, address: Address) -> None:
    """Write down where the process that holds the lock listens."""
    os.pwrite(lock, address.text.encode(), 0)


def announced(store: Path) -> Address:
    """Where the process that holds the lock listens; raises `EOFError` where it has not said so yet."""
    if not (text := store.with_name(store.name + SUFFIX).read_text()):
        raise EOFError
    return Address.parse(text)


def is_held(store: Path) -> bool:
    """Whether a process works on the store now."""
    path = store.with_name(store.name + SUFFIX)
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # held, another user's, or on a disk without locks: then only silence tells
        return True
    return False
