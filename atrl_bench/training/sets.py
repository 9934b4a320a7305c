"""The training sets: where each is published, or that it is generated, and what its columns are called."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from atrl_bench.errors import MissingDataError, UnknownNameError

VIDEO_R1 = "Video-R1/Video-R1-data"
PAIRS_SUFFIX = ".parquet"  # a training set whose name ends so is a file of preference pairs


@dataclass(frozen=True)
class TrainingSet:
    """Where a training set is and what its columns are called."""

    hub_id: str
    num_rows: int
    answer: str = "answer"
    problem_id: str | None = None
    tables: tuple[str, ...] = ("train",)  # how the names of its files begin; the first that is there is read
    folder: str = ""  # below the data folder, where that is not its own name
    rejected: str = ""  # the column of the worse response, in a file of pairs
    media: str = ""  # the column with the paths of images or videos, for a set that does not embed them
    archives: tuple[str, ...] = ()  # patterns of those that hold them
    unpack_beside: bool = False  # each archive into the folder that it lies in, where not into the set's own
    response_tokens: int = 0  # a response to its problems may have so many, whatever the profile says


TRAINING_SETS = {
    # Kun-Xiang/ViRL39K, a copy with embedded images in `data/train-*.parquet`, is read as well where the folder has it.
    "virl39k": TrainingSet(
        "TIGER-Lab/ViRL39K",
        38_870,
        problem_id="qid",
        tables=("39Krelease", "train"),
        media="image",
        archives=("images.zip",),
    ),
    "geometry3k": TrainingSet("hiyouga/geometry3k", 2_101),
    "geoqa_8k": TrainingSet("leonardPKU/GEOQA_R1V_Train_8K", 8_000, answer="solution"),
    # One repository, two tables over the same images and videos, which are in archives beside them.
    "video_r1": TrainingSet(
        VIDEO_R1,
        263_071,
        "solution",
        "problem_id",
        tables=("Video-R1-260k",),
        folder="video_r1",
        media="path",
        archives=("*/*.zip",),
        unpack_beside=True,
    ),
    "video_r1_cot": TrainingSet(
        VIDEO_R1,
        165_575,
        "solution",
        "problem_id",
        tables=("Video-R1-COT-165k",),
        folder="video_r1",
        media="path",
        archives=("*/*.zip",),
        unpack_beside=True,
    ),
    # A JSON file of chains and their key steps; its images are beside it.
    "r1_vl": TrainingSet(
        "jingyiZ00/R1-VL-10K",
        10_000,
        "solution",
        tables=("train", "*"),
        media="image_path",
        archives=("*.zip", "*.tar", "*.tar.gz"),
    ),
}

# Those that are nowhere but here: `recipes/worlds` says which bases are trained on them.
GENERATED_SETS = {"code_words": TrainingSet("", 0, problem_id="id", response_tokens=112)}
ALL_SETS = TRAINING_SETS | GENERATED_SETS


def describe(name: str) -> TrainingSet:
    """Return where training set `name` is and what its columns are called."""
    if name.endswith(PAIRS_SUFFIX):
        return _describe_pairs(Path(name))
    if name not in ALL_SETS:
        raise UnknownNameError("training set", name, ALL_SETS)
    return ALL_SETS[name]


def folder_of(name: str) -> str:
    """Return the folder of training set `name` in a data folder."""
    return describe(name).folder or name


def _describe_pairs(path: Path) -> TrainingSet:
    import pyarrow.parquet

    if not path.is_file():
        raise MissingDataError(
            f"There is no file {path}.",
            why="`data` that ends in .parquet is a file of pairs: prompt, images, chosen, rejected.",
            next_step="name a file on this machine",
        )
    num_rows = pyarrow.parquet.read_metadata(path).num_rows
    return TrainingSet(str(path), num_rows, answer="chosen", rejected="rejected")
