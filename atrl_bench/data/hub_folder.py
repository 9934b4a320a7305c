"""A dataset of the hub that a user names, as a folder on this machine: `owner/name`, or one file of a revision,
`hf://datasets/owner/name@revision/train.jsonl`.

It is brought at the commit that is pinned, and then is what a folder of the user's own is: named by its contents.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from atrl_bench.data.archives import ENDINGS, unpack
from atrl_bench.data.dataset import COMPLETE
from atrl_bench.data.fetch import lay_out
from atrl_bench.data.repository import Repository, listing
from atrl_bench.data.tables import SUFFIXES, kind_of
from atrl_bench.errors import MissingDataError

_NAME = re.compile(r"(hf://datasets/)?(?P<id>[\w-][\w.-]*/[\w-][\w.-]*)(?:@(?P<revision>[^/]+))?(?:/(?P<file>.+))?")


class HubFolder(NamedTuple):
    """A repository, and the one file of it that is meant, if it is one."""

    repository: Repository
    file: str | None

    @classmethod
    def named(cls, name: str) -> HubFolder | None:
        """What a name means; None where it is a path of this machine."""
        found = _NAME.fullmatch(name)
        if found is None or (not found[1] and (found["file"] or kind_of(name) in SUFFIXES or Path(name).exists())):
            return None
        return cls(Repository("dataset", found["id"], found["revision"]), found["file"])

    @property
    def root(self) -> Path:
        from huggingface_hub import constants

        commit = listing(self.repository).commit
        return Path(constants.HF_HOME) / "atrl_bench" / "hub" / self.repository.hub_id.replace("/", "--") / commit

    def bring_tables(self, chosen: Callable[[Sequence[str]], list[str]]) -> list[Path]:
        """Those tables that are chosen of all its files, on this machine."""
        try:
            listed = listing(self.repository)
        except MissingDataError as error:
            raise MissingDataError(
                f"There is no training set {self.repository.hub_id}.",
                why=f"No file or folder of this name is here. On the hub: {error.why}",
                next_step=error.next_step.partition(", or ")[0],
            ) from error
        names = [self.file] if self.file else chosen(listed.names)
        lay_out(listed, names, self.root)
        return [self.root / name for name in names]

    def bring_media(self, shown: Callable[[], Iterable[str]]) -> None:
        """The files that its rows show, or the archives that they are in where the repository does not have them."""
        if (self.root / COMPLETE).is_file():
            return
        source = listing(self.repository)
        present = sorted(set(source.names).intersection(shown()))
        lay_out(source, present, self.root)
        archives = [] if present else [name for name in source.names if name.endswith(ENDINGS)]
        for path in source.paths(archives):
            unpack(path, self.root)
        (self.root / COMPLETE).touch()
