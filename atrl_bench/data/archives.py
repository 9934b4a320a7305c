"""Unpack an archive of a dataset: zip, tar, and either of them cut into parts.

Nothing in an archive is trusted. Only plain files are written, only below the folder, none over another; an archive
that would become too large is refused. Each file gets its name when it is whole, and a killed command goes on with
the files that are not there yet.
"""

from __future__ import annotations

import fcntl
import io
import os
import re
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

from atrl_bench.digests import recall, remember
from atrl_bench.errors import InvalidFileError, MissingDataError, StoreError

MAX_RATIO = 50  # of unpacked to packed bytes; pictures and videos have about 1
SMALL_BYTES = 256 << 20  # what an archive of any size may unpack to
MAX_FILES = 2_000_000
SPARE_BYTES = 1 << 30  # of the disk, for everything else
MARKERS = ".unpacked"  # below the folder: a file for each archive that is whole in it
_ARCHIVE = re.compile(r".+\.(?:zip|tar|tgz|tar\.(?:gz|xz|bz2))")
# `a.zip.001`, `a.tar.gz.aa`, `a.tar.gz.part-aa`, `a.tar.part00`: cut with `split`, put together as they are.
_PART = re.compile(r"\.(?:[a-z]{2}|part[-_.]?[a-z]{1,3}|(?:part[-_.]?)?\d{1,4})$")


class _Member(NamedTuple):
    """A plain file in an archive."""

    name: str
    size: int
    source: Any  # the entry in the archive's own terms


def archives_in(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the archives among these files of a repository: each with its parts, the whole file where it has none."""
    parts: dict[str, list[str]] = {}
    for name in sorted(names):
        if whole := _whole_name(name):
            parts.setdefault(whole, []).append(name)
    return parts


def is_unpacked(archive: Path, into: Path) -> bool:
    """Return whether `unpack` finished with this archive and its files are still there; it may be gone itself."""
    return _unpacked(archive, into) is not None


def unpack(archive: Path, into: Path) -> list[Path]:
    """Return the files of an archive, unpacked below `into`; the first part stands for an archive in parts.

    An archive with a path outside `into`, a link, a device, or far more bytes than its own is an error.
    """
    (into / MARKERS).mkdir(parents=True, exist_ok=True)
    with _alone(archive, into):
        if (files := _unpacked(archive, into)) is not None:
            return files
        parts = _parts(archive)
        num_bytes = sum(part.stat().st_size for part in parts)
        try:
            with _Joined(parts) as raw, io.BufferedReader(raw, 1 << 20) as stream:
                write = _unzip if (_whole_name(archive.name) or "").endswith(".zip") else _untar
                names = write(stream, _Folder(into, archive, num_bytes))
        except (zipfile.BadZipFile, tarfile.TarError, zlib.error, LZMAError, EOFError, NotImplementedError) as error:
            raise InvalidFileError(
                f"{archive} cannot be unpacked.", why=f"{error}.", next_step=f"rm {archive}, and fetch it again"
            ) from error
        remember(_marker(archive, into), {"bytes": num_bytes, "files": names})
        return [into / name for name in names]


class _Folder:
    """Where one archive is unpacked to, and how much of it may be."""

    def __init__(self, into: Path, archive: Path, num_bytes: int) -> None:
        self.into, self.archive = into, archive
        self.limit = max(SMALL_BYTES, MAX_RATIO * num_bytes)
        self.free = shutil.disk_usage(into).free - SPARE_BYTES
        self.require(num_bytes)

    def require(self, num_bytes: int) -> None:
        """Raise where so many bytes do not fit the disk."""
        if num_bytes > self.free:
            raise StoreError(
                f"{self.archive.name} does not fit the disk.",
                why=f"It needs {num_bytes / 1e9:,.1f} GB, and {self.into} has {max(0, self.free) / 1e9:,.1f}.",
                next_step="free space, or move the hub's cache with HF_HOME, and run the same command again",
            )

    def accepted(self, members: Iterable[_Member]) -> Iterator[_Member]:
        """Yield the members as long as name, number and size of each may be written."""
        total = 0
        for number, member in enumerate(members, start=1):
            total += member.size
            if total > self.limit:
                raise self.refusal(f"Unpacked it has more than {self.limit / 1e9:,.1f} GB, far more than packed.")
            if number > MAX_FILES:
                raise self.refusal(f"It has more than {MAX_FILES:,} files.")
            self.require(total)
            yield member

    def write(self, member: _Member, content: IO[bytes]) -> None:
        """Write a member, unless a killed command already has."""
        target = self.into / member.name
        if target.is_file() and not target.is_symlink() and target.stat().st_size == member.size:
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() or not target.parent.resolve().is_relative_to(self.into.resolve()):
            raise InvalidFileError(
                f"{self.archive} is not unpacked further.",
                why=f"Its {member.name} would be written over another file.",
                next_step=f"rm {target}, if it came from an older archive, and run the same command again",
            )
        temporary = _marker(self.archive, self.into).with_suffix(".part")
        with temporary.open("wb") as file:
            shutil.copyfileobj(content, file, 1 << 20)
        os.replace(temporary, target)

    def safe_name(self, name: str) -> str:
        """Return a member's name, which has to be a path below the folder."""
        parts = PurePosixPath(name.replace("\\", "/")).parts
        if not parts or name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0] or parts[0] == MARKERS:
            raise self.refusal(f"Its {name!r} is no path below a folder.")
        return "/".join(parts)

    def refusal(self, why: str) -> InvalidFileError:
        """Return the error for an archive that no honest data set has."""
        return InvalidFileError(
            f"{self.archive} is not unpacked.", why=why, next_step="tell the owner of the data set, or leave it out"
        )


def _unzip(stream: IO[bytes], folder: _Folder) -> list[str]:
    with zipfile.ZipFile(stream) as archive:
        # Its directory says everything: nothing is written of an archive with one wrong entry.
        members = list(folder.accepted(_zip_members(archive, folder)))
        for member in members:
            with archive.open(member.source) as content:
                folder.write(member, content)
        return [member.name for member in members]


def _zip_members(archive: zipfile.ZipFile, folder: _Folder) -> Iterator[_Member]:
    for info in archive.infolist():
        name, kind = folder.safe_name(info.filename), stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise folder.refusal(f"Its {name} is a link or a device.")
        if info.flag_bits & 1:
            raise folder.refusal(f"Its {name} is encrypted.")
        if not info.is_dir():
            yield _Member(name, info.file_size, info)


def _untar(stream: IO[bytes], folder: _Folder) -> list[str]:
    names = []
    with tarfile.open(fileobj=stream, mode="r|*") as archive:
        for member in folder.accepted(_tar_members(archive, folder)):
            content = archive.extractfile(member.source)
            assert content is not None  # it is a plain file
            folder.write(member, content)
            names.append(member.name)
    return names


def _tar_members(archive: tarfile.TarFile, folder: _Folder) -> Iterator[_Member]:
    for info in archive:
        archive.members.clear()  # type: ignore[attr-defined]  # it remembers every one of a million
        if info.isdir() and PurePosixPath(info.name) == PurePosixPath("."):
            continue
        name = folder.safe_name(info.name)
        if not (info.isfile() or info.isdir()):
            raise folder.refusal(f"Its {name} is a link or a device.")
        if info.isfile():
            yield _Member(name, info.size, info)


class _Joined(io.RawIOBase):
    """The bytes of several files, one after the other, as one that can be read anywhere."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._files = [path.open("rb") for path in paths]
        self._ends = list(accumulate(path.stat().st_size for path in paths))
        self._position = 0

    def readable(self) -> bool:
        """Whether bytes can be read: always."""
        return True

    def seekable(self) -> bool:
        """Whether any position can be read from: always."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a position and return it."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._ends[-1]}[whence]
        self._position = max(0, start + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Read what follows, up to the end of the current file, and return how many bytes that are."""
        for file, end in zip(self._files, self._ends, strict=True):
            if self._position < end:
                file.seek(self._position - end, io.SEEK_END)
                count = file.readinto(buffer)
                self._position += count
                return int(count)
        return 0

    def close(self) -> None:
        """Close all files."""
        for file in self._files:
            file.close()
        super().close()


def _whole_name(name: str) -> str | None:
    """Return what an archive is called in one piece, None for a file that is neither an archive nor a part of one."""
    if _ARCHIVE.fullmatch(name):
        return name
    whole = name[: match.start()] if (match := _PART.search(name)) else ""
    return whole if _ARCHIVE.fullmatch(whole) else None


def _parts(archive: Path) -> list[Path]:
    siblings = [path.name for path in archive.parent.iterdir()] if archive.parent.is_dir() else []
    parts = archives_in(siblings).get(_whole_name(archive.name) or "")
    if not parts or archive.name not in parts:
        raise MissingDataError(f"There is no archive {archive}.", next_step="fetch the data set again")
    return [archive.parent / name for name in parts]


def _marker(archive: Path, into: Path) -> Path:
    return into / MARKERS / f"{_whole_name(archive.name)}.json"


def _unpacked(archive: Path, into: Path) -> list[Path] | None:
    """Return the files of an archive that is unpacked; None where it is not, is another now, or lost a file."""
    content = recall(_marker(archive, into))
    files = [into / name for name in content.get("files", ())]
    changed = archive.is_file() and content.get("bytes") != sum(path.stat().st_size for path in _parts(archive))
    return files if content and not changed and all(path.is_file() for path in files) else None


@contextmanager
def _alone(archive: Path, into: Path) -> Iterator[None]:
    """Hold an archive: a second process that wants it waits here until it is unpacked."""
    with _marker(archive, into).with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
