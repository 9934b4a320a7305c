"""Write a file so that a reader sees the old one or the new one, never a part of it."""

from __future__ import annotations

import errno
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from glob import escape
from pathlib import Path
from typing import BinaryIO

from atrl_bench.errors import StoreError

ROOM = {errno.ENOSPC: "free space", errno.EDQUOT: "free space", errno.EFBIG: "allow larger files (ulimit -f)"}
LEFT_SECONDS = 24 * 3600.0  # after which nobody is writing it any more


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` by `content`, flushed to disk under another name first."""
    with replaced(path) as file:
        file.write(content)


@contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """Yield a file to write; `path` is replaced by it at the end, or stays what it was if anything fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{escape(path.name)}.????????"):  # by a process that was killed
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > LEFT_SECONDS:
                left.unlink()
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)  # mkstemp makes files that only their owner can read
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def flush(folder: Path) -> None:
    """Wait until the disk has all that is below a folder, whoever wrote it, and the names of it."""
    for path in (*folder.rglob("*"), folder):
        handle = os.open(path, os.O_RDONLY)
        try:
            with suppress(OSError) if path.is_dir() else nullcontext():  # which some disks cannot
                os.fsync(handle)
        finally:
            os.close(handle)


def write_texts(out: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write these texts into `out` by their file names and return the paths."""
    for name, text in texts.items():
        write_atomically(out / name, text.encode("utf-8", "backslashreplace"))
    return [out / name for name in texts]


@contextmanager
def writing(what: Path | str, option: str = "--out") -> Iterator[None]:
    """Turn a failure of the disk into a `StoreError` that says what could not be written."""
    try:
        yield
    except OSError as error:
        then = room_for(error) or f"use a folder you can write to with {option}"
        raise StoreError(f"Cannot write {what}.", why=f"{error}.", next_step=then) from error


def room_for(error: OSError) -> str | None:
    """The next step where a disk or what a user may write is full; in another folder all would be done again."""
    mend = ROOM.get(error.errno or 0)
    return mend and f"{mend}, then the same command again: it resumes"
