"""Where the datasets of the tasks are published, beyond what the task files say: `tasks/_published.yaml`.

Nothing in there enters a task's version or a cell's key, which name the contents of files and not where they came from.
"""

from __future__ import annotations

from functools import cache

from pydantic import BaseModel, ConfigDict, TypeAdapter

from atrl_bench.data.source import DatasetPart
from atrl_bench.resources import folder
from atrl_bench.yaml_text import read_yaml


class _Publication(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Ingredient(_Publication):
    """A file that a dataset is made from: at an address, or in a repository, perhaps in an archive there."""

    url: str | None = None
    sha256: str | None = None  # of what is at the address
    hub_id: str | None = None
    file: str | None = None
    archive: str | None = None
    folder: str | None = None  # inside the archive

    @property
    def part(self) -> DatasetPart:
        """What of a repository it is."""
        assert self.hub_id is not None
        return DatasetPart(
            self.hub_id, files=tuple(filter(None, [self.file])), archives=tuple(filter(None, [self.archive]))
        )


class Made(_Publication):
    """A dataset that has no home of its own: which function of its task's file writes it, and from what."""

    function: str  # takes the ingredients in this order, and then where to write
    sources: tuple[Ingredient, ...]
    writes: str


class Published(_Publication):
    """Where a benchmark's tables, images and videos are, as far as its task file does not say it."""

    tables: tuple[str, ...] = ()  # the files of the split, where their names do not follow from it
    media: str | None = None  # the repository of images and videos, where it is another than that of the rows
    files: tuple[str, ...] = ()  # patterns of images and videos
    archives: tuple[str, ...] = ()  # patterns of archives of them
    gated: bool = False  # the owner of the rows' repository asks for an agreement on its page
    made: Made | None = None


def published(dataset: str) -> Published:
    """Return where the dataset of this folder is published; all defaults where the task file says everything."""
    return _publications().get(dataset, Published())


@cache
def _publications() -> dict[str, Published]:
    content = read_yaml((folder("tasks") / "_published.yaml").read_text(encoding="utf-8"))
    return TypeAdapter(dict[str, Published]).validate_python(content)
