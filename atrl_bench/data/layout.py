"""How a dataset's files are laid out: which of them hold a split, and which files a row may name.

The same rules hold for the hub's repositories and for folders on this machine, however they were filled.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from atrl_bench.digests import sha256_of

ALL_SUBSETS = "All"  # what a dataset's card may call the union of its subsets, without a folder of that name
OUTSIDE = "outside this folder: "  # how the name of a file begins that no row may show
MAX_NAME = 60  # letters of such a name that are shown
_SHARD = re.compile(r"-\d+-of-(\d+)")


@dataclass(frozen=True)
class Folder:
    """Files in a folder on this machine; a `Listing` of a repository answers the same, so that no key differs."""

    root: Path

    def match(self, pattern: str) -> list[str]:
        """The files whose path in the folder matches, sorted; `**/` stands for any folders, or none."""
        paths = (path.relative_to(self.root) for path in self.root.glob(pattern) if path.is_file())
        return sorted(path.as_posix() for path in paths if not any(part.startswith(".") for part in path.parts))

    def paths(self, names: Sequence[str]) -> list[Path]:
        return [self.root / name for name in names]

    def sha256(self, names: Sequence[str]) -> list[str]:
        return sha256_of(self.paths(names))

    def is_here(self, names: Sequence[str]) -> bool:
        return all(path.is_file() for path in self.paths(names))

    def __str__(self) -> str:
        return str(self.root)


def split_files(names: Sequence[str], split: str, config: str | None = None) -> list[str]:
    """The Parquet files that hold the split, of all files in a dataset's folder, in the order of its shards.

    Datasets are laid out in one of a few ways: `data/test-00000-of-00002.parquet`, the same in a folder named after the
    subset, in the folder itself, or `default/test/0000.parquet` where the hub converted them. `test` is neither
    `testmini` nor `test_text_only`. Without a subset, or for the subset `All`, folders of subsets count together.
    """
    of_split = re.compile(rf"{re.escape(split)}(?:[-.].*)?\.parquet")
    subset = config or "default"
    folders = (*((f"{config}/", f"{config}/data/", f"data/{config}/") if config else ()), "", "data/")
    for folder in folders:
        inside = [name for name in names if name.startswith(folder) and of_split.fullmatch(name.removeprefix(folder))]
        if inside:
            return sorted(inside)
    converted = [name for name in names if re.fullmatch(rf"{re.escape(f'{subset}/{split}')}/[^/]+\.parquet", name)]
    if not converted and config in (None, ALL_SUBSETS):
        return sorted(name for name in names if name.count("/") == 1 and of_split.fullmatch(name.split("/")[1]))
    return sorted(converted)


def is_whole(names: Sequence[str]) -> bool:
    """Whether there are files at all, and of those that count themselves (`-00000-of-00002`) every one."""
    promised: dict[str, list[int]] = {}  # of each series of shards, by what comes before the number
    for name in names:
        if match := _SHARD.search(name):
            promised.setdefault(name[: match.start()], []).append(int(match[1]))
    return bool(names) and all(count == len(counts) for counts in promised.values() for count in counts)


def path_inside(root: Path, name: str) -> Path:
    """The path of a file that a row names below `root`; raises `ValueError` where it would lie outside.

    A link is followed first: what it leads to has to lie inside as well.
    """
    path = root / name
    real_root = os.path.realpath(root)
    if os.path.commonpath([real_root, os.path.realpath(path)]) != real_root:
        raise ValueError(f"the row names a file outside its folder: {name}")
    return path


def own_file(root: Path, name: str) -> Path:
    """The path of a file that a row names; for one that it may not name that of a file which is not there."""
    try:
        path = path_inside(root, name)
        path.is_file()
    except ValueError:
        return root / f"{OUTSIDE}{quote(name[:MAX_NAME], safe='')}"
    except OSError:  # no file system takes such a name
        return root / f"{name[:MAX_NAME].replace('/', '_')}…"
    return path


def holding(data_dir: Path | None, folder: str) -> Path | None:
    """The data folder if it has this dataset, else None, which stands for the hub."""
    return data_dir if data_dir is not None and (data_dir / folder).is_dir() else None
