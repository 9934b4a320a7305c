"""Unpack an archive of a dataset: zip or tar.

Nothing in an archive is trusted. Only plain files are written, only below the folder, none over another; an archive
that would become too large is refused. (`tarfile.data_filter` lets links in, and a zip has no such filter: one rule
here holds for both.) Each file gets its name when it is whole, and a killed command goes on with the files that are
not there yet.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from typing import IO, Any
from uuid import uuid4

from atrl_bench.digests import recall, remember
from atrl_bench.errors import InvalidFileError, MissingDataError, StoreError
from atrl_bench.locks import alone

MAX_RATIO = 50  # of unpacked to packed bytes, also of a table; pictures and videos have about 1
SMALL_BYTES = 256 << 20  # what a file of any size may unpack to
MAX_FILES = 2_000_000
SPARE_BYTES = 1 << 30  # of the disk, for everything else
MAX_HEADER_BYTES = 1 << 20  # before a file of a tar: long names and the like; `tarfile` holds all of it
MAX_DIRECTORY_BYTES = 96 << 20  # of a zip, whose list of files `zipfile` holds in nine times as many
MAX_PATH, MAX_PART = 4000, 255  # letters of a name, and between two slashes of it
COMPLETE = ".complete"  # beside files that were laid out, once all of them are there
MARKERS = ".unpacked"  # below the folder: a file for each archive that is whole in it
ENDINGS = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.xz", ".tar.bz2")


def most_bytes(packed: Path) -> int:
    """How much may come out of a file that a stranger packed."""
    return max(SMALL_BYTES, MAX_RATIO * packed.stat().st_size)


@dataclass(frozen=True)
class _Entry:
    """A file or a folder in an archive."""

    name: str
    size: int
    is_folder: bool
    refused: str  # why no file of this kind is written, if so
    open: Callable[[], IO[bytes] | None]


def unpack(archive: Path, into: Path) -> list[Path]:
    """The files of an archive, unpacked below `into` unless they are there.

    An archive with a path outside `into`, a link, a device, or far more bytes than its own is an error.
    """
    if not archive.is_file():
        raise MissingDataError(f"There is no archive {archive}.", next_step="fetch the data set again")
    marker = into / MARKERS / f"{archive.name}.json"
    marker.parent.mkdir(parents=True, exist_ok=True)
    with alone(marker.with_suffix(".lock")) as is_alone:
        done, num_bytes = recall(marker), archive.stat().st_size
        files = [into / name for name in done.get("files", ())]
        if done.get("bytes") == num_bytes and all(path.is_file() for path in files):
            return files
        try:
            # Where there are no locks two processes may write a file of one name.
            part = marker.with_suffix(".part" if is_alone else f".{uuid4().hex}.part")
            names = _Folder(into, archive, num_bytes, part).fill()
        except (zipfile.BadZipFile, tarfile.TarError, zlib.error, LZMAError, EOFError, NotImplementedError) as error:
            raise InvalidFileError(
                f"{archive} cannot be unpacked.", why=f"{error}.", next_step=f"rm {archive}, and fetch it again"
            ) from error
        remember(marker, {"bytes": num_bytes, "files": names})
        return [into / name for name in names]


class _Folder:
    """Where one archive is unpacked to, and how much of it may be."""

    def __init__(self, into: Path, archive: Path, num_bytes: int, temporary: Path) -> None:
        self.into, self.archive, self.temporary = into, archive, temporary
        self.limit = most_bytes(archive)
        self.free = shutil.disk_usage(into).free - SPARE_BYTES
        self.require(num_bytes)

    def fill(self) -> list[str]:
        is_zip = self.archive.name.endswith(".zip")
        with _zip_entries(self.archive) if is_zip else _tar_entries(self.archive) as entries:
            # A zip's directory says everything: nothing is written of an archive with one wrong entry.
            accepted = list(self.accepted(entries)) if is_zip else self.accepted(entries)
            return [self.write(*entry) for entry in accepted]

    def require(self, num_bytes: int) -> None:
        """Raise where so many bytes do not fit the disk."""
        if num_bytes > self.free:
            raise StoreError(
                f"{self.archive.name} does not fit the disk.",
                why=f"It needs {num_bytes / 1e9:,.1f} GB, and {self.into} has {max(0, self.free) / 1e9:,.1f}.",
                next_step="free space, or move the hub's cache with HF_HOME, and run the same command again",
            )

    def accepted(self, entries: Iterable[_Entry]) -> Iterator[tuple[str, _Entry]]:
        """Yield the files with safe names, as long as kind, number and size of each may be written."""
        total = 0
        for number, entry in enumerate(entries, start=1):
            if entry.is_folder and PurePosixPath(entry.name) == PurePosixPath("."):
                continue
            name = self.safe_name(entry.name)
            if entry.refused:
                raise self.refusal(f"Its {name} is {entry.refused}.")
            total += entry.size
            if total > self.limit:
                raise self.refusal(f"Unpacked it has more than {self.limit / 1e9:,.1f} GB, far more than packed.")
            if number > MAX_FILES:
                raise self.refusal(f"It has more than {MAX_FILES:,} files.")
            self.require(total)
            if not entry.is_folder:
                yield name, entry

    def safe_name(self, name: str) -> str:
        """A name, which has to be a path below the folder."""
        parts = PurePosixPath(name.replace("\\", "/")).parts
        reserved = (MARKERS, COMPLETE)
        if not parts or name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0] or parts[0] in reserved:
            raise self.refusal(f"Its {name[:MAX_PART]!r} is no path below a folder.")
        if len(name) > MAX_PATH or "\0" in name or any(len(os.fsencode(part)) > MAX_PART for part in parts):
            raise self.refusal(f"Its {name[:MAX_PART]!r} is no name of a file.")
        return "/".join(parts)

    def write(self, name: str, entry: _Entry) -> str:
        """Write a file, unless a killed command already has, and return its name."""
        target = self.into / name
        if target.is_file() and not target.is_symlink() and target.stat().st_size == entry.size:
            return name
        with suppress(FileExistsError, NotADirectoryError):
            target.parent.mkdir(parents=True, exist_ok=True)
        if (
            target.exists()
            or not target.parent.is_dir()
            or not target.parent.resolve().is_relative_to(self.into.resolve())
        ):
            raise InvalidFileError(
                f"{self.archive} is not unpacked further.",
                why=f"Its {name} would be written over another file.",
                next_step=f"rm {target}, if it came from an older archive, and run the same command again",
            )
        content = entry.open()
        assert content is not None  # it is a plain file
        with content, self.temporary.open("wb") as file:
            shutil.copyfileobj(content, file, 1 << 20)
        os.replace(self.temporary, target)
        return name

    def refusal(self, why: str) -> InvalidFileError:
        return InvalidFileError(
            f"{self.archive} is not unpacked.", why=why, next_step="tell the owner of the data set, or leave it out"
        )


@contextmanager
def _zip_entries(path: Path) -> Iterator[Iterable[_Entry]]:
    with _Bounded(path.open("rb"), MAX_DIRECTORY_BYTES) as file, zipfile.ZipFile(file) as archive:
        file.allow(None)
        yield (
            _Entry(info.filename, info.file_size, info.is_dir(), _refused(info), partial(archive.open, info))
            for info in archive.infolist()
        )


def _refused(info: zipfile.ZipInfo) -> str:
    if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "a link or a device"
    return "encrypted" if info.flag_bits & 1 else ""


@contextmanager
def _tar_entries(path: Path) -> Iterator[Iterable[_Entry]]:
    def entries(archive: tarfile.TarFile) -> Iterator[_Entry]:
        while True:
            file.allow(MAX_HEADER_BYTES)
            if (info := archive.next()) is None:
                return
            file.allow(None)
            archive.members.clear()  # type: ignore[attr-defined]  # it remembers every one of a million
            archive.pax_headers = {}
            refused = "" if info.isfile() or info.isdir() else "a link or a device"
            yield _Entry(info.name, info.size, info.isdir(), refused, partial(archive.extractfile, info))

    with _unpacked(path) as stream, _Bounded(stream, None) as file:
        file.allow(MAX_HEADER_BYTES)
        with tarfile.open(fileobj=file, mode="r:") as archive:
            yield entries(archive)


def _unpacked(path: Path) -> Any:
    """The bytes of a tar, whatever it is packed with, as a stream that is read forwards."""
    with path.open("rb") as file:
        head = file.read(6)
    for start, opened in ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\x00", lzma.open)):
        if head.startswith(start):
            return opened(path)
    return path.open("rb")


class _Bounded(io.RawIOBase):
    """A file of which no more than what is allowed is read: a reader of archives may ask for all of it at once."""

    def __init__(self, file: Any, allowed: int | None) -> None:
        self._file, self._left, self._allowed = file, allowed, allowed

    def allow(self, num_bytes: int | None) -> None:
        self._left = self._allowed = num_bytes

    def read(self, size: int | None = -1) -> bytes:
        if self._left is None:
            return bytes(self._file.read(size))
        wanted = self._left + 1 if size is None or size < 0 else size
        content = self._file.read(wanted) if wanted <= self._left + 1 else b""
        if max(len(content), wanted if size != -1 else 0) > self._left:
            raise InvalidFileError(
                f"{self._file.name} is not unpacked.",
                why=f"What it says of its files has more than {self._allowed:,} bytes.",
                next_step="tell the owner of the data set, or leave it out",
            )
        self._left -= len(content)
        return bytes(content)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._file.tell())

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return int(self._file.seek(offset, whence))

    def close(self) -> None:
        self._file.close()
        super().close()
