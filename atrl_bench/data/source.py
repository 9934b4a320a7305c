"""Files of a dataset, wherever they are: in a folder on this machine or in a repository of the hub.

Both answer the same questions, so that what is read and what names it cannot differ between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from atrl_bench.data.repository import Listing
from atrl_bench.digests import sha256_of


@dataclass(frozen=True)
class Folder:
    """Files in a folder on this machine."""

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


Source = Folder | Listing
