"""A dataset's files, wherever they are: in a folder on this machine or in a repository of the hub.

Both answer the same questions, so that what is read and what names it cannot differ between them. Images and videos
that are published beside a table, in archives or as files, are laid out by `lay_out` as the rows name them, in a
folder of their own below the hub's cache.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from atrl_bench.data.archives import unpack
from atrl_bench.data.repository import Listing, Repository, download, hashes, is_downloaded, listing
from atrl_bench.digests import sha256_of

_COMPLETE = ".complete"  # beside files that were laid out, once all of them are there


@dataclass(frozen=True)
class Folder:
    """A dataset in a folder on this machine."""

    root: Path

    def match(self, pattern: str) -> list[str]:
        """Return the files whose path in the folder matches, sorted; `**/` stands for any folders, or none."""
        paths = (path.relative_to(self.root) for path in self.root.glob(pattern) if path.is_file())
        return sorted(path.as_posix() for path in paths if not any(part.startswith(".") for part in path.parts))

    def paths(self, names: Sequence[str]) -> list[Path]:
        """Return where these files are."""
        return [self.root / name for name in names]

    def sha256(self, names: Sequence[str]) -> list[str]:
        """Return the SHA-256 of each file."""
        return sha256_of(self.paths(names))

    def is_here(self, names: Sequence[str]) -> bool:
        """Return whether these files are on this machine."""
        return all(path.is_file() for path in self.paths(names))

    def __str__(self) -> str:
        return str(self.root)


@dataclass(frozen=True)
class OnHub:
    """A dataset in one commit of a repository; its files come to this machine when they are read."""

    listing: Listing

    def match(self, pattern: str) -> list[str]:
        """Return the files whose path in the repository matches, sorted; `**/` stands for any folders, or none."""
        matches = re.compile(re.escape(pattern).replace(r"\*\*/", "(?:.+/)?").replace(r"\*", "[^/]*")).fullmatch
        return sorted(name for name in self.listing.names if matches(name))

    def paths(self, names: Sequence[str]) -> list[Path]:
        """Return where these files are on this machine, downloaded if they are not."""
        folder = download(self.listing, names)
        return [folder / name for name in names]

    def sha256(self, names: Sequence[str]) -> list[str]:
        """Return the SHA-256 of each file as the hub announces it; only small files are fetched for it."""
        return hashes(self.listing, names)

    def is_here(self, names: Sequence[str]) -> bool:
        """Return whether these files are on this machine."""
        return is_downloaded(self.listing, names)

    def __str__(self) -> str:
        return self.listing.repository.hub_id


Source = Folder | OnHub


@dataclass(frozen=True)
class DatasetPart:
    """Files of one repository that a dataset needs, by patterns of their paths."""

    hub_id: str
    tables: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # images and videos as they are
    archives: tuple[str, ...] = ()  # of images and videos
    unpack_beside: bool = False  # each archive into the folder that it lies in, where not into the dataset's own
    revision: str | None = None

    @property
    def repository(self) -> Repository:
        """The repository that they are in."""
        return Repository("dataset", self.hub_id, self.revision)

    def names(self) -> list[str]:
        """Return the files themselves; asks the hub once where the repository is new here."""
        return self._matching(*self.tables, *self.files, *self.archives)

    def _matching(self, *patterns: str) -> list[str]:
        source = OnHub(listing(self.repository))
        return list(dict.fromkeys(name for pattern in patterns for name in source.match(pattern)))

    def lay_out(self, folder: Path) -> None:
        """Put its files, and what its archives hold, below `folder` as the rows name them; goes on where it was."""
        source = OnHub(listing(self.repository))
        names = self._matching(*self.tables, *self.files)
        for name, path in zip(names, source.paths(names), strict=True):
            _link(path, folder / name)
        archives = self._matching(*self.archives)
        for name, path in zip(archives, source.paths(archives), strict=True):
            unpack(path, folder / PurePosixPath(name).parent if self.unpack_beside else folder)


def laid_out_folder(folder: str) -> Path:
    """Return where `lay_out` puts the dataset that is called `folder` in a data folder."""
    from huggingface_hub import constants

    return Path(constants.HF_HOME) / "atrl_bench" / folder


def lay_out(folder: str, parts: Sequence[DatasetPart]) -> Path:
    """Return the folder of a dataset with the files of all its parts in it, fetched and unpacked where they are not."""
    root = laid_out_folder(folder)
    root.mkdir(parents=True, exist_ok=True)
    for part in parts:
        part.lay_out(root)
    (root / _COMPLETE).touch()
    return root


def is_laid_out(folder: str) -> bool:
    """Return whether `lay_out` finished with this dataset."""
    return (laid_out_folder(folder) / _COMPLETE).is_file()


def forget_layout(folder: str) -> None:
    """Let the next `lay_out` of this dataset look at all of its files again."""
    (laid_out_folder(folder) / _COMPLETE).unlink(missing_ok=True)


def _link(path: Path, target: Path) -> None:
    """Put a file of the hub's cache at `target`, without a second copy where the disk is the same."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_file() and target.samefile(path):
        return
    target.unlink(missing_ok=True)
    try:
        os.link(path.resolve(), target)
    except OSError:  # another disk
        shutil.copyfile(path, target)
