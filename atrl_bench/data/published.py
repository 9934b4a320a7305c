"""Where a dataset is published, beyond one repository with tables in it: `tasks/_published.yaml` and `recipes/data/`.

Nothing in there enters a key, which names the contents of files and not where they came from.
"""

from __future__ import annotations

from collections.abc import Iterable

from atrl_bench.data.repository import Repository, listing
from atrl_bench.settings import Settings


class RepositoryPart(Settings):
    """Files of one repository, by patterns of their paths."""

    hub_id: str
    revision: str | None = None
    files: tuple[str, ...] = ()  # as they are
    archives: tuple[str, ...] = ()  # to be unpacked

    @property
    def repository(self) -> Repository:
        return Repository("dataset", self.hub_id, self.revision)

    def names(self, patterns: Iterable[str] | None = None) -> list[str]:
        """The files that match, by default all of the part; asks the hub once where the repository is new here."""
        source = listing(self.repository)
        patterns = (*self.files, *self.archives) if patterns is None else patterns
        return list(dict.fromkeys(name for pattern in patterns for name in source.match(pattern)))


class Ingredient(Settings):
    """What a dataset is made from: a file at an address, or an archive in a repository."""

    url: str | None = None
    sha256: str | None = None  # of what is at the address
    hub_id: str | None = None
    archive: str | None = None
    folder: str | None = None  # inside the archive

    @property
    def part(self) -> RepositoryPart:
        assert self.hub_id is not None
        assert self.archive is not None
        return RepositoryPart(hub_id=self.hub_id, archives=(self.archive,))


class Made(Settings):
    """A dataset that has no home of its own: which function of its task's file writes it, and from what."""

    function: str  # takes the ingredients in this order, and then where to write
    sources: tuple[Ingredient, ...]
    writes: str


class Publication(Settings):
    """Where tables, images and videos are, as far as the dataset's hub id does not say it."""

    tables: tuple[str, ...] = ()  # patterns of the files with the rows, where their names do not follow from the split
    media: str | None = None  # the repository of images and videos, where it is another than that of the rows
    files: tuple[str, ...] = ()  # patterns of images and videos
    archives: tuple[str, ...] = ()  # patterns of archives of them
    unpack_beside: bool = False  # each archive into the folder that it lies in, where not into the dataset's own
    gated: bool = False  # the owner of the rows' repository asks for an agreement on its page
    made: Made | None = None
