"""The training sets: where each is published, or that it is generated, and what its columns are called.

`recipes/data/training_sets.yaml` says it of those that have a name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from atrl_bench.data.dataset import Dataset, table_files
from atrl_bench.data.hub_folder import HubFolder
from atrl_bench.data.own import file_names, is_own, media_within, own_fields
from atrl_bench.data.tables import read_light_rows
from atrl_bench.errors import UnknownNameError
from atrl_bench.resources import folder
from atrl_bench.settings import read_yaml


@dataclass(frozen=True, kw_only=True)
class TrainingSet(Dataset):
    """A dataset to learn from, and what its columns are called."""

    question: tuple[str, ...] = ("problem", "question", "prompt")  # the same set is published with any of them
    answer: str = "answer"
    images: tuple[str, ...] = ("images", "image")
    videos: str = ""
    options: str = "options"
    problem_id: str | None = None
    rejected: str = ""  # the column of the worse response, in a file of pairs
    media_columns: tuple[str, ...] = ()  # with the paths of images or videos, for a set that does not embed them
    takes_text: bool = False  # rows without an image or a video are trained on
    response_tokens: int = 0  # a response to its problems may have so many, whatever the profile says
    max_hashed_bytes: float = 1 << 30  # Video-R1 has hundreds of gigabytes

    @property
    def names_files(self) -> bool:
        return bool(self.media_columns)

    def files_of(self, row: Mapping[str, Any]) -> Sequence[str]:
        cells = {name: media_within(row.get(name), "image") for name in self.question if name in row}
        return [name for column in self.media_columns for name in file_names(cells.get(column, row.get(column)))]

    @property
    def key_step_file(self) -> str:
        """The file in its folder with the key steps that a model extracted for it."""
        return f"{self.name}.key_steps.jsonl"

    @property
    def extras(self) -> tuple[str, ...]:
        return (self.key_step_file,)


def _known_sets() -> dict[str, TrainingSet]:
    content = read_yaml((folder("recipes") / "data" / "training_sets.yaml").read_text(encoding="utf-8"))
    usual = {name: {"name": name, "title": f"training set {name}", "folder": name} for name in content}
    kind = TypeAdapter(dict[str, TrainingSet], config=ConfigDict(extra="forbid"))
    return kind.validate_python({name: usual[name] | said for name, said in content.items()})


ALL_SETS = _known_sets()
TRAINING_SETS = {name: described for name, described in ALL_SETS.items() if described.hub_id}
GENERATED_SETS = {name: described for name, described in ALL_SETS.items() if not described.hub_id}


def is_set(name: str) -> bool:
    """Whether this names a training set: one that is known here, or the user's own by its path."""
    return name in ALL_SETS or is_own(name)


def _shown(own: TrainingSet) -> Iterator[str]:
    return (name for path in table_files(own, None) for row in read_light_rows(path) for name in own.files_of(row))


def find_set(name: str) -> TrainingSet:
    """The training set called `name`, or the user's own at this path or on the hub."""
    if name not in ALL_SETS and is_own(name):
        own = TrainingSet(**own_fields(name))
        of_hub = HubFolder.named(name.partition("?")[0])
        if of_hub is not None and own.names_files:
            of_hub.bring_media(lambda: _shown(own))
        return own
    if name not in ALL_SETS:
        raise UnknownNameError("training set", name, ALL_SETS)
    return ALL_SETS[name]
