"""The training sets as rows of TRL: a conversational prompt, its images and videos, the gold answer.

Real sets and the generated twins have the same columns. A row that cannot be trained on is left out and counted by its
reason; more than 1 % of them is an error. Images and videos are decoded when a rollout asks for them. Those that are
files beside the table are decoded then for the first time: where one cannot be, the next row takes its place.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atrl_bench.errors import MissingDataError, UnknownNameError
from atrl_bench.models.templates import TEMPLATES, choose_template, render, with_choices
from atrl_bench.models.video import SIDE, TEMPORAL_PATCH, Video, read_video
from atrl_bench.training.media_marks import content_with_media, num_marks, without_opening_marks
from atrl_bench.training.rewards.steps import (
    OFFICIAL,
    KeyStep,
    SectionMarks,
    final_answer,
    key_step_file,
    read_key_step_file,
    read_key_steps,
    read_marks,
)

if TYPE_CHECKING:
    import pyarrow
    from PIL.Image import Image

    from atrl_bench.profiles import TrainingSizes

MAX_BAD_FRACTION = 0.01
STREAM_ROWS = 64
MAX_HASHED_BYTES = 1 << 30  # of the files beside a table
VIDEO_R1 = "Video-R1/Video-R1-data"
PAIRS_SUFFIX = ".parquet"  # a training set whose name ends so is a file of preference pairs


@dataclass(frozen=True)
class TrainingSet:
    """Where a training set is and what its columns are called."""

    hub_id: str
    num_rows: int
    answer: str = "answer"
    problem_id: str | None = None
    table: str = "train"  # how the names of its Parquet files begin, or the name of its JSON file
    folder: str = ""  # below the data folder, where that is not its own name
    rejected: str = ""  # the column of the worse response, in a file of pairs
    media: str = ""  # the column with the path of an image or video, for a set that does not embed them


TRAINING_SETS = {
    # The copy with embedded images; TIGER-Lab/ViRL39K keeps them in an archive beside the table.
    "virl39k": TrainingSet("Kun-Xiang/ViRL39K", 38_870, problem_id="qid"),
    "geometry3k": TrainingSet("hiyouga/geometry3k", 2_101),
    "geoqa_8k": TrainingSet("leonardPKU/GEOQA_R1V_Train_8K", 8_000, answer="solution"),
    # One repository, two tables over the same images and videos, which are in archives beside them.
    "video_r1": TrainingSet(
        VIDEO_R1, 263_071, "solution", "problem_id", table="Video-R1-260k", folder="video_r1", media="path"
    ),
    "video_r1_cot": TrainingSet(
        VIDEO_R1, 165_575, "solution", "problem_id", table="Video-R1-COT-165k", folder="video_r1", media="path"
    ),
    # A JSON file of chains and their key steps; its images are beside it.
    "r1_vl": TrainingSet("jingyiZ00/R1-VL-10K", 10_000, "solution", media="image_path"),
}
# The same set is published with the one or the other name.
QUESTION_COLUMNS = ("problem", "question", "prompt")
IMAGE_COLUMNS = ("images", "image")
# What a reward may ask of a problem, or a weighting be checked by.
REWARD_COLUMNS = ("answer", "transcription", "kind", "process", "key_steps", "section_marks")


@dataclass(frozen=True)
class TrainingProblem:
    """One row: what is asked, what is shown, what is right."""

    problem_id: str
    question: str  # with `<image>` and `<video>` where some stand within it
    answer: str
    images: tuple[bytes | Path, ...]
    transcription: str | None = None
    videos: tuple[Path, ...] = ()
    kind: str = ""  # what sort of answer it has, where the set says so
    choices: tuple[str, ...] = ()
    process: str = ""  # the reasoning to imitate, where the set has one
    key_steps: tuple[KeyStep, ...] = ()  # what a chain has to mention, where the set says so
    section_marks: SectionMarks = OFFICIAL  # what opens the sections of such a chain
    chosen: str | None = None  # the better response and the worse one, in a file of pairs
    rejected: str | None = None

    @property
    def num_media(self) -> dict[str, int]:
        """How many images and how many videos it shows."""
        return {"image": len(self.images), "video": len(self.videos)}

    def decoded(self) -> list[Image]:
        """Return the images as RGB pictures."""
        return [_decode(image) for image in self.images]

    def cells(self) -> list[dict[str, Any]]:
        """Return the images as the cells of a `datasets` Image column."""
        return [{"path": str(image)} if isinstance(image, Path) else {"bytes": image} for image in self.images]

    def content(self, template: int) -> list[dict[str, Any]]:
        """Return the user's turn: the question in this template, images and videos where it marks them or before it.

        The prompt of a pair is as it stands: its responses were given to that.
        """
        text = render(self.question, template, "video" if self.videos else "image")
        text = text if self.rejected is None else self.question
        return content_with_media(text, self.num_media)


@dataclass(frozen=True)
class TrainingData:
    """The usable rows of a training set, and how many were left out for which reason."""

    name: str
    problems: list[TrainingProblem]
    left_out: dict[str, int] = field(default_factory=dict)
    num_frames: int = 16  # of a video, evenly spaced
    video_max_pixels: int | None = None
    unreadable: set[int] = field(default_factory=set)  # rows whose file turned out to be damaged

    @property
    def has_videos(self) -> bool:
        """Whether some problem is about a video."""
        return any(problem.videos for problem in self.problems)

    def seen_at(self, sizes: TrainingSizes) -> TrainingData:
        """Return the data with its videos read at these sizes."""
        return replace(self, num_frames=sizes.num_frames, video_max_pixels=sizes.video_max_pixels)

    def example(self, index: int, run_seed: int) -> dict[str, Any]:
        """Return row `index` as TRL wants it; the template is drawn from the run seed and the problem.

        Where the row's file cannot be decoded it is the next row: the same one in a run that is resumed.
        """
        for row in (*range(index, len(self.problems)), *range(index)):
            problem = self.problems[row]
            try:
                images, videos = problem.decoded(), self._read(problem)
            except OSError:
                self._note_unreadable(row)
                continue
            template = choose_template(run_seed, problem.problem_id)
            return {
                "prompt": [{"role": "user", "content": problem.content(template)}],
                "images": images,
                "videos": videos,
                "choices": list(problem.choices),
                **{name: getattr(problem, name) for name in REWARD_COLUMNS},
            }
        raise MissingDataError(f"No row of {self.name} can be decoded.", next_step="fetch the data set again")

    def _read(self, problem: TrainingProblem) -> list[Video]:
        return [read_video(path, self.num_frames, max_pixels=self.video_max_pixels) for path in problem.videos]

    def _note_unreadable(self, row: int) -> None:
        self.unreadable.add(row)
        if len(self.unreadable) > max(1, MAX_BAD_FRACTION * len(self.problems)):
            raise MissingDataError(
                f"{len(self.unreadable)} rows of {self.name} have an image or a video that cannot be decoded.",
                why=f"More than {MAX_BAD_FRACTION:.0%} of its {len(self.problems)} rows is too many.",
                next_step="fetch the data set again",
            )

    def without_long_prompts(self, processor: Any, max_prompt_tokens: int) -> TrainingData:
        """Return the data without problems whose prompt has more than `max_prompt_tokens` tokens in any template.

        A video is counted at its largest, `video_max_pixels` in each frame: its file is not opened.
        """
        longest = max(range(len(TEMPLATES)), key=lambda template: len(TEMPLATES[template]))
        texts = []
        for problem in self.problems:
            message = [{"role": "user", "content": problem.content(longest)}]
            texts.append(processor.apply_chat_template(message, tokenize=False, add_generation_prompt=True))
        kept = []
        token_ids = processor.tokenizer(texts)["input_ids"]
        for problem, ids in zip(self.problems, token_ids, strict=True):
            sizes = [_size(image) for image in problem.images]
            # Each placeholder in the text becomes as many tokens as its image or video has.
            num_visual = sum(processor._get_num_multimodal_tokens(image_sizes=sizes)["num_image_tokens"])
            num_visual += len(problem.videos) * self._most_video_tokens()
            if len(ids) - len(sizes) - len(problem.videos) + num_visual <= max_prompt_tokens:
                kept.append(problem)
        num_long = len(self.problems) - len(kept)
        if not kept:
            raise MissingDataError(
                f"Every prompt of {self.name} is longer than {max_prompt_tokens} tokens.",
                next_step="raise max_prompt_tokens or lower max_pixels",
            )
        left_out = self.left_out | ({"prompt too long": num_long} if num_long else {})
        return replace(self, problems=kept, left_out=left_out)

    def _most_video_tokens(self) -> int:
        per_frame = (self.video_max_pixels or 0) // SIDE**2
        return self.num_frames // TEMPORAL_PATCH * per_frame


def stream_problems(name: str, data_dir: Path | None) -> Iterator[TrainingProblem]:
    """Yield every row of training set `name`, usable or not, with a few dozen of them in memory at a time."""
    import pyarrow.parquet

    described = describe(name)
    batches: Iterable[pyarrow.RecordBatch]
    if data_dir is None or described.media:
        batches = _read(name, data_dir).to_batches(max_chunksize=STREAM_ROWS)
    else:
        files = (pyarrow.parquet.ParquetFile(path) for path in _files(name, data_dir))
        # Group by group: asked for the whole file, pyarrow reads ahead until all of it is in memory.
        parts = ((file, group) for file in files for group in range(file.num_row_groups))
        batches = (batch for file, group in parts for batch in file.iter_batches(STREAM_ROWS, row_groups=[group]))
    index = 0
    for batch in batches:
        _check_columns(name, described, batch.schema.names)
        for row in batch.to_pylist():
            yield _problem(described, index, row, _root(name, data_dir))
            index += 1


def load_training_data(name: str, data_dir: Path | None) -> TrainingData:
    """Return the rows of training set `name`, from `<data_dir>/<name>/train*.parquet` or, without one, from the hub.

    A name that ends in `.parquet` is a file of preference pairs: prompt, images, chosen, rejected.
    """
    described, root = describe(name), _root(name, data_dir)
    table = _read(name, data_dir)
    _check_columns(name, described, table.column_names)
    problems, left_out = [], Counter[str]()
    rows = (row for batch in table.to_batches(max_chunksize=256) for row in batch.to_pylist())
    with warnings.catch_warnings(), ThreadPoolExecutor() as pool:
        from PIL import Image

        # A picture that claims to be enormous is refused, not decoded.
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        made = (_problem(described, index, row, root) for index, row in enumerate(rows))
        for problem, reason in pool.map(_checked, made):
            if reason:
                left_out[reason] += 1
            else:
                problems.append(problem)
    if extracted := read_key_step_file(root / key_step_file(name)):
        problems = [replace(problem, key_steps=extracted.get(problem.problem_id, ())) for problem in problems]
    num_bad = left_out["undecodable image"] + left_out["no such file"]
    if not problems or num_bad > MAX_BAD_FRACTION * table.num_rows:
        raise MissingDataError(
            f"{table.num_rows - len(problems)} of {table.num_rows} rows of {name} cannot be used.",
            why=", ".join(f"{count} {reason}" for reason, count in left_out.items()),
            next_step="fetch the data set again",
        )
    return TrainingData(name, problems, dict(left_out))


def data_digest(name: str, data_dir: Path | None) -> str:
    """Return what identifies the data in a run's key: a hash of the tables, or the hub id.

    Images and videos beside the table are hashed too, up to a gigabyte by content. Video-R1's are hundreds: of those
    the names and sizes are.
    """
    described = describe(name)
    if data_dir is None and not described.rejected:
        return f"hub:{described.hub_id}"
    digest = hashlib.sha256()
    for path in _files(name, data_dir):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    if (path := _root(name, data_dir) / key_step_file(name)).is_file():
        digest.update(path.read_bytes())
    if described.media:
        root = _root(name, data_dir)
        names = sorted({path for path in _read(name, data_dir)[described.media].to_pylist() if path})
        sizes = {name: (root / name).stat().st_size for name in names if (root / name).is_file()}
        by_content = sum(sizes.values()) <= MAX_HASHED_BYTES
        for name, size in sizes.items():
            content = (root / name).read_bytes() if by_content else str(size).encode()
            digest.update(name.encode() + hashlib.sha256(content).digest())
    return digest.hexdigest()[:16]


def describe(name: str) -> TrainingSet:
    """Return where training set `name` is and what its columns are called."""
    if name.endswith(PAIRS_SUFFIX):
        return _describe_pairs(Path(name))
    if name not in TRAINING_SETS:
        raise UnknownNameError("training set", name, TRAINING_SETS)
    return TRAINING_SETS[name]


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


def _root(name: str, data_dir: Path | None) -> Path:
    return (data_dir or Path()) / (describe(name).folder or name)


def _files(name: str, data_dir: Path | None) -> list[Path]:
    root, described = _root(name, data_dir), describe(name)
    if described.rejected:
        return [Path(name)]
    files = sorted(root.glob(f"{described.table}*.parquet")) or sorted(root.glob(f"{described.table}.json"))
    if not files:
        raise MissingDataError(
            f"No {root}/{described.table}*.parquet.",
            why=f"Training set {name} was asked for from a folder.",
            next_step=f"hf download {described.hub_id} --repo-type dataset --local-dir {root}, and unpack its archives"
            if described.media
            else "put the parquet files there, or leave --data-dir out to read from the hub",
        )
    return files


def _read(name: str, data_dir: Path | None) -> pyarrow.Table:
    import pyarrow.parquet

    described = describe(name)
    if data_dir is None and not described.rejected:
        if described.media:
            raise MissingDataError(
                f"{name} can only be read from a folder.",
                why="On the hub its images and videos are in archives.",
                next_step=f"hf download {described.hub_id} --repo-type dataset --local-dir DATA/{described.folder}, "
                "unpack the archives there, and give --data-dir DATA",
            )
        return _read_hub(described.hub_id)
    files = _files(name, data_dir)
    if files[0].suffix == ".json":
        return pyarrow.Table.from_pylist(json.loads(files[0].read_text(encoding="utf-8")))
    return pyarrow.concat_tables([pyarrow.parquet.read_table(path) for path in files])


def _read_hub(hub_id: str) -> pyarrow.Table:
    from datasets import load_dataset

    try:
        return load_dataset(hub_id, split="train").data.table
    except (OSError, ValueError) as error:
        raise MissingDataError(
            f"Training set {hub_id} could not be read.",
            why=str(error).splitlines()[0],
            next_step="connect to the hub, or give --data-dir with local parquet files",
        ) from None


def _check_columns(name: str, described: TrainingSet, column_names: Sequence[str]) -> None:
    media = (described.media,) if described.media else IMAGE_COLUMNS
    for columns in (QUESTION_COLUMNS, media, (described.answer,), (described.rejected or described.answer,)):
        if not set(columns) & set(column_names):
            raise MissingDataError(
                f"Training set {name} has no column {' or '.join(columns)}.",
                why=f"Its columns are {', '.join(column_names)}.",
            )


def _problem(described: TrainingSet, index: int, row: dict[str, Any], root: Path) -> TrainingProblem:
    question = next(row[column] for column in QUESTION_COLUMNS if column in row)
    question = without_opening_marks(str(question or ""))
    choices = tuple(re.sub(r"^[A-P]\.\s*", "", option) for option in row.get("options") or ())
    images, videos = _media(described, row, root)
    solution, marks = str(row[described.answer] or ""), read_marks(row.get("section_marks"))
    return TrainingProblem(
        problem_id=str(row.get(str(described.problem_id), index)),
        question=with_choices(question, choices) if choices else question,
        answer=gold_answer(final_answer(solution, marks)),
        images=images,
        transcription=row.get("transcription"),
        videos=videos,
        kind=row.get("problem_type") or "",
        choices=choices,
        process=row.get("process") or (solution if marks.answer in solution else ""),
        key_steps=read_key_steps(row.get("key_steps")),
        section_marks=marks,
        chosen=str(row[described.answer]) if described.rejected else None,
        rejected=str(row[described.rejected]) if described.rejected else None,
    )


def _media(
    described: TrainingSet, row: dict[str, Any], root: Path
) -> tuple[tuple[bytes | Path, ...], tuple[Path, ...]]:
    """Return what the row shows: images, embedded or as files, and videos."""
    if described.media:
        files = (root / row[described.media],) if row[described.media] else ()
        return ((), files) if row.get("data_type") == "video" else (files, ())
    value = next(row[column] for column in IMAGE_COLUMNS if column in row)
    values: Iterable[Any] = value if isinstance(value, list) else [] if value is None else [value]
    return tuple(image["bytes"] if isinstance(image, dict) else image for image in values), ()


def _checked(problem: TrainingProblem) -> tuple[TrainingProblem, str]:
    """Return the problem, and why it cannot be used if it cannot."""
    if not problem.images and not problem.videos:
        # Mixed batches of text and images are refused by some processors, and text has no visual credit.
        return problem, "no image"
    if any(num_marks(problem.question, kind) > count for kind, count in problem.num_media.items()):
        return problem, "more marks than images"
    if not problem.answer:
        return problem, "no answer"
    files = [medium for medium in (*problem.images, *problem.videos) if isinstance(medium, Path)]
    if files:  # opened when they are asked for
        return problem, "" if all(path.is_file() for path in files) else "no such file"
    try:
        problem.decoded()
    except Exception:  # whatever a decoder raises on damaged bytes, the row is not usable
        return problem, "undecodable image"
    return problem, ""


def gold_answer(text: str) -> str:
    r"""Return the answer itself: `\boxed{7}`, `<answer> 7 </answer>` and `7` all give `7`."""
    if match := re.search(r"<answer>(.*?)</answer>", text, flags=re.DOTALL):
        text = match[1]
    text = text.strip().strip("$").strip()
    if match := re.fullmatch(r"\\boxed\{(.*)\}", text, flags=re.DOTALL):
        text = match[1].strip()
    return text


def _decode(image: bytes | Path) -> Image:
    from PIL import Image

    with Image.open(image if isinstance(image, Path) else io.BytesIO(image)) as picture:
        return picture.convert("RGB")


def _size(image: bytes | Path) -> tuple[int, int]:
    from PIL import Image

    with Image.open(image if isinstance(image, Path) else io.BytesIO(image)) as picture:
        return picture.height, picture.width
