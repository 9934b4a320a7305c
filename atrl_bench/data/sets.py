"""The training sets: where each is published, or that it is generated, and what its columns are called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atrl_bench.data.dataset import IN_TABLES, Dataset, table_files
from atrl_bench.data.hub_folder import HubFolder
from atrl_bench.data.own import is_own, own_fields
from atrl_bench.data.published import Publication
from atrl_bench.data.tables import read_light_rows
from atrl_bench.errors import UnknownNameError


@dataclass(frozen=True, kw_only=True)
class TrainingSet(Dataset):
    """A dataset to learn from, and what its columns are called."""

    question: tuple[str, ...] = ("problem", "question", "prompt")  # the same set is published with any of them
    answer: str = "answer"
    images: tuple[str, ...] = ("images", "image")
    videos: str = ""
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
        return [name for column in self.media_columns for name in file_names(row.get(column))]

    @property
    def key_step_file(self) -> str:
        """The file in its folder with the key steps that a model extracted for it."""
        return f"{self.name}.key_steps.jsonl"

    @property
    def extras(self) -> tuple[str, ...]:
        return (self.key_step_file,)


def file_names(cell: Any) -> list[str]:
    """The files that a cell of a training set names, one or several; none for embedded images."""
    return [name for name in as_list(cell) if isinstance(name, str) and name]


def as_list(cell: Any) -> list[Any]:
    return cell if isinstance(cell, list) else [] if cell in (None, "") else [cell]


def _on_hub(name: str, hub_id: str, num_rows: int, where: Publication = IN_TABLES, **said: Any) -> TrainingSet:
    return TrainingSet(
        **{"name": name, "title": f"training set {name}", "folder": name} | said,
        hub_id=hub_id,
        num_rows=num_rows,
        publication=where,
    )


def _video_r1(name: str, table: str, num_rows: int) -> TrainingSet:
    """One of the two tables of a repository, over the same images and videos: archives beside them."""
    return _on_hub(
        name,
        "Video-R1/Video-R1-data",
        num_rows,
        Publication(tables=(f"{table}.json",), archives=("*/*.zip",), unpack_beside=True),
        folder="video_r1",
        splits=(table,),
        answer="solution",
        problem_id="problem_id",
        media_columns=("path",),
    )


_ON_HUB = (
    # Kun-Xiang/ViRL39K, a copy with embedded images in `data/train-*.parquet`, is read as well where a folder has it.
    _on_hub(
        "virl39k",
        "TIGER-Lab/ViRL39K",
        38_870,
        Publication(archives=("images.zip",)),
        splits=("39Krelease", "train"),
        problem_id="qid",
        media_columns=("image",),
    ),
    _on_hub("geometry3k", "hiyouga/geometry3k", 2_101),
    _on_hub("geoqa_8k", "leonardPKU/GEOQA_R1V_Train_8K", 8_000, answer="solution"),
    _video_r1("video_r1", "Video-R1-260k", 263_071),
    _video_r1("video_r1_cot", "Video-R1-COT-165k", 165_575),
    # A JSON file of chains and their key steps; its images are beside it.
    _on_hub(
        "r1_vl",
        "jingyiZ00/R1-VL-10K",
        10_000,
        Publication(tables=("*.json*",), archives=("*.zip", "*.tar", "*.tar.gz")),
        answer="solution",
        media_columns=("image_path",),
    ),
)
TRAINING_SETS = {described.name: described for described in _ON_HUB}
# Those that are nowhere but here: `recipes/worlds` says which bases are trained on them.
GENERATED_SETS = {
    "code_words": TrainingSet(
        name="code_words",
        title="training set code_words",
        folder="code_words",
        hub_id=None,
        num_rows=0,
        problem_id="id",
        response_tokens=112,
    )
}
ALL_SETS = TRAINING_SETS | GENERATED_SETS


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
