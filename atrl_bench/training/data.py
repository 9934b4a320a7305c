"""The problems of a training set, and each as a row of TRL: a conversational prompt, its images and videos, the answer.

Real sets and the generated twins have the same columns. A row that cannot be trained on is left out and counted by its
reason; more than 1 % of them is an error. Images and videos are decoded when a rollout asks for them. Those that are
files beside the table are decoded then for the first time: where one cannot be, the next row takes its place.
"""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from atrl_bench.credit.truth import TokenTruth
from atrl_bench.data.dataset import how_to_unpack, root_of, table_files
from atrl_bench.data.layout import OUTSIDE, own_file
from atrl_bench.data.own import answers_of, gold_answer, image_of, media_of, options_of, question_of, system_of
from atrl_bench.data.pictures import open_picture, picture_size
from atrl_bench.data.sets import TrainingSet, find_set
from atrl_bench.data.tables import read_tables, stream_batches
from atrl_bench.errors import MissingDataError, reason_of
from atrl_bench.grading.gold import own_gold
from atrl_bench.models.templates import (
    TEMPLATES,
    choose_template,
    content_with_media,
    num_marks,
    render,
    system_turn,
    with_choices,
    without_opening_marks,
)
from atrl_bench.models.video import SIDE, TEMPORAL_PATCH, Video, read_video
from atrl_bench.results.records import Gold
from atrl_bench.training.rewards.steps import (
    OFFICIAL,
    KeyStep,
    SectionMarks,
    final_answer,
    read_key_step_file,
    read_key_steps,
    read_marks,
)

if TYPE_CHECKING:
    from PIL.Image import Image

    from atrl_bench.profiles import TrainingSizes

PLAIN = (str, int, float, bool, list)  # what a reward may be handed of a row
MAX_BAD_FRACTION = 0.01
NOT_BAD = ("no image", "no answer", "more marks than images")  # why a sound set may have rows that are not trained on
MAX_REASONS = 6  # that an error lists
# What a reward may ask of a problem, or a weighting be checked by; a set's own columns of these names are what is read.
REWARD_COLUMNS = ("answer", "graded_as", "token_truth", "problem_type", "process", "key_steps", "section_marks")


@dataclass(frozen=True)
class TrainingProblem:
    """One row: what is asked, what is shown, what is right."""

    problem_id: str
    question: str  # with `<image>` and `<video>` where some stand within it
    answer: str
    graded_as: Gold  # of a user's own set as its evaluation grades it
    images: tuple[bytes | Path, ...]
    token_truth: TokenTruth | None = None  # of generated data
    videos: tuple[Path, ...] = ()
    problem_type: str = ""  # what sort of answer it has, where the set says so
    choices: tuple[str, ...] = ()
    process: str = ""  # the reasoning to imitate, where the set has one
    key_steps: tuple[KeyStep, ...] = ()  # what a chain has to mention, where the set says so
    section_marks: SectionMarks = OFFICIAL  # what opens the sections of such a chain
    system: str = ""  # what the conversation begins with
    template: str | None = None  # the text of the one it is asked in; None: one of ours, which is drawn
    columns: Mapping[str, Any] = field(default_factory=dict)  # of a user's own set, for a user's own reward
    chosen: str | None = None  # the better response and the worse one, in a file of pairs
    rejected: str | None = None

    @property
    def num_media(self) -> dict[str, int]:
        return {"image": len(self.images), "video": len(self.videos)}

    def decoded(self) -> list[Image]:
        return [open_picture(image) for image in self.images]

    def messages(self, template: int) -> list[dict[str, Any]]:
        """The prompt: what the set's own conversation begins with, then the user's turn."""
        return [*system_turn(self.system), {"role": "user", "content": self.content(template)}]

    def content(self, template: int) -> list[dict[str, Any]]:
        """The user's turn: the question in this template, images and videos where it marks them or before it.

        The prompt of a pair is as it stands: its responses were given to that.
        """
        text = render(self.question, self.template or template, "video" if self.videos else "image")
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
        return any(problem.videos for problem in self.problems)

    @property
    def most_media(self) -> dict[str, int]:
        return {kind: max(problem.num_media[kind] for problem in self.problems) for kind in ("image", "video")}

    def seen_at(self, sizes: TrainingSizes) -> TrainingData:
        return replace(self, num_frames=sizes.num_frames, video_max_pixels=sizes.video_max_pixels)

    def asked_in(self, template: str | None, system: str | None) -> TrainingData:
        """The data with every problem in this template, under this system prompt; None leaves its own."""
        changes: dict[str, Any] = {
            name: text for name, text in (("template", template), ("system", system)) if text is not None
        }
        return replace(self, problems=[replace(problem, **changes) for problem in self.problems])

    def example(self, index: int, run_seed: int) -> dict[str, Any]:
        """Row `index` as TRL wants it; the template is drawn from the run seed and the problem.

        Where the row's file cannot be decoded it is the next row: the same one in a run that is resumed.
        """
        for row in (*range(index, len(self.problems)), *range(index)):
            problem = self.problems[row]
            try:
                images, videos = problem.decoded(), self._read(problem)
            except MemoryError:
                raise
            except Exception:  # whatever a decoder raises, a warning of Pillow's too
                self._note_unreadable(row)
                continue
            template = choose_template(run_seed, problem.problem_id)
            return {
                **problem.columns,
                "prompt": problem.messages(template),
                "images": images,
                "videos": videos,
                "choices": list(problem.choices),
                **{name: getattr(problem, name) for name in REWARD_COLUMNS},
                **({} if problem.rejected is None else {"chosen": problem.chosen, "rejected": problem.rejected}),
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
        """The data without problems that cannot be asked: the prompt has too many tokens in any template, or marks.

        A video is counted at its largest, `video_max_pixels` in each frame: its file is not opened.
        """
        longest = max(range(len(TEMPLATES)), key=lambda template: len(TEMPLATES[template]))
        prompts = [problem.messages(longest) for problem in self.problems]
        texts = [processor.apply_chat_template(one, tokenize=False, add_generation_prompt=True) for one in prompts]
        kept, left_out = [], Counter(self.left_out)
        token_ids = processor.tokenizer(texts)["input_ids"]
        for problem, prompt, text, ids in zip(self.problems, prompts, texts, token_ids, strict=True):
            if mark := _marks_in_words(processor, prompt):
                left_out[f"{mark} in its words, which the processor takes for one"] += 1
                continue
            # Each placeholder in the text becomes as many tokens as its image or video has.
            num_tokens = len(ids) + len(problem.videos) * (self._most_video_tokens() - 1)
            try:
                sizes = [picture_size(image) for image in problem.images]
            except OSError:  # a file that is none: `example` takes the next row
                kept.append(problem)
                continue
            if sizes and hasattr(processor, "_get_num_multimodal_tokens"):
                counted = processor._get_num_multimodal_tokens(image_sizes=sizes)
                num_tokens += sum(counted["num_image_tokens"]) - len(sizes)
            elif sizes:  # SmolVLM's does not tell
                num_tokens += len(processor(text=[text], images=[problem.decoded()])["input_ids"][0]) - len(ids)
            if num_tokens <= max_prompt_tokens:
                kept.append(problem)
            else:
                left_out["prompt too long"] += 1
        if not kept:
            raise MissingDataError(
                f"No prompt of {self.name} can be asked within {max_prompt_tokens} tokens.",
                why=", ".join(f"{count} {reason}" for reason, count in left_out.items()),
                next_step="raise max_prompt_tokens or lower max_pixels",
            )
        return replace(self, problems=kept, left_out=dict(left_out))

    def _most_video_tokens(self) -> int:
        per_frame = (self.video_max_pixels or 0) // SIDE**2
        return self.num_frames // TEMPORAL_PATCH * per_frame


def _marks_in_words(processor: Any, prompt: Sequence[Mapping[str, Any]]) -> str | None:
    """What the words of a prompt have that its processor takes for the place of an image or a video, if anything."""
    words = "\n".join(part["text"] for turn in prompt for part in turn["content"] if part["type"] == "text")
    marks = [getattr(processor, f"{kind}_token", None) for kind in ("image", "video")]
    return next((mark for mark in marks if mark and mark in words), None)


def stream_problems(name: str, data_dir: Path | None) -> Iterator[TrainingProblem]:
    """Yield every row of training set `name` that is one, with a few dozen of them in memory at a time.

    Raises `MissingDataError` at the end if more than a few are none.
    """
    described, index, left_out = find_set(name), 0, defaultdict[str, list[int]](list)
    root = root_of(described, data_dir)
    for batch in stream_batches(table_files(described, data_dir)):
        _check_columns(described, batch.schema.names)
        for row in batch.to_pylist():
            problem, reason = _read(described, root, index, row)
            index += 1
            if problem is None:
                left_out[reason].append(index)
            else:
                yield problem
    _require_usable(described, root, index, left_out)


def load_training_data(name: str, data_dir: Path | None) -> TrainingData:
    """The rows of training set `name`, from `<data_dir>/<name>/train*.parquet` or, without one, from the hub.

    A path is the user's own set, or a file of preference pairs: prompt, images, chosen, rejected.
    """
    described = find_set(name)
    data_dir = None if described.file is not None else data_dir
    root, table = root_of(described, data_dir), read_tables(table_files(described, data_dir))
    _check_columns(described, table.column_names)
    problems, left_out = [], defaultdict[str, list[int]](list)
    rows = (row for batch in table.to_batches(max_chunksize=256) for row in batch.to_pylist())
    with warnings.catch_warnings(), ThreadPoolExecutor() as pool:
        from PIL import Image as Pillow

        # A picture that claims to be enormous is refused, not decoded.
        warnings.simplefilter("error", Pillow.DecompressionBombWarning)
        found = pool.map(partial(_usable, described, root), range(table.num_rows), rows)
        for number, (problem, reason) in enumerate(found, start=1):
            if problem is None:
                left_out[reason].append(number)
            else:
                problems.append(problem)
    if extracted := read_key_step_file(root / described.key_step_file):
        problems = [replace(one, key_steps=extracted.get(one.problem_id, one.key_steps)) for one in problems]
    _require_usable(described, root, table.num_rows, left_out)
    return TrainingData(name, problems, {reason: len(rows) for reason, rows in left_out.items()})


def _require_usable(described: TrainingSet, root: Path, num_rows: int, left_out: Mapping[str, list[int]]) -> None:
    """Raise if too many rows cannot be used, given the numbers of those for each reason."""
    total = sum(map(len, left_out.values()))
    num_bad = sum(len(rows) for reason, rows in left_out.items() if reason not in NOT_BAD)
    if total == num_rows or num_bad > MAX_BAD_FRACTION * num_rows:
        unpack = how_to_unpack(described, root) if "no such file" in left_out else None
        most = sorted(left_out.items(), key=lambda reason: -len(reason[1]))[:MAX_REASONS]
        raise MissingDataError(
            f"{total} of {num_rows} rows of {described.name} cannot be used.",
            why=", ".join(f"{len(rows)} {reason} (the first is row {rows[0]})" for reason, rows in most),
            next_step=unpack
            or ("mend these rows, or leave them out" if described.file else "fetch the data set again"),
        )


def _check_columns(described: TrainingSet, column_names: Sequence[str]) -> None:
    answers = ((described.answer,), (described.rejected or described.answer,))
    shown = () if described.takes_text else (image_columns(described),)
    for columns in (described.question, *shown, *answers):
        if not set(columns) & set(column_names):
            raise MissingDataError(
                f"Training set {described.name} has no column {' or '.join(columns)}.",
                why=f"Its columns are {', '.join(column_names)}.",
            )


def read_problem(described: TrainingSet, index: int, row: dict[str, Any], root: Path) -> TrainingProblem:
    """Row `index` of a training set whose images and videos, where they are files, lie below `root`."""
    asked = next(row[column] for column in described.question if column in row)
    question = without_opening_marks(question_of(asked))
    choices = options_of(row, described.options)
    images, videos = _media(described, row, asked, root)
    [solution, *others], marks = answers_of(row[described.answer]), read_marks(row.get("section_marks"))
    answer = gold_answer(final_answer(solution, marks))
    return TrainingProblem(
        problem_id=str(row.get(str(described.problem_id), index)),
        question=with_choices(question, choices) if choices else question,
        answer=answer,
        graded_as=_own_gold([answer, *map(gold_answer, others)], choices) if described.takes_text else Gold(answer),
        images=images,
        token_truth=_truth(row),
        videos=videos,
        problem_type=row.get("problem_type") or "",
        choices=choices,
        process=row.get("process") or (solution if marks.answer in solution else ""),
        key_steps=read_key_steps(row.get("key_steps")),
        section_marks=marks,
        system=system_of(asked),
        columns=_columns(described, row) if described.takes_text else {},
        chosen=str(row[described.answer]) if described.rejected else None,
        rejected=str(row[described.rejected]) if described.rejected else None,
    )


def _own_gold(answers: Sequence[str], choices: tuple[str, ...]) -> Gold:
    """The first answer alone where it is none of the row's options, as a text to imitate may be."""
    with suppress(ValueError):
        return own_gold(answers, choices)
    return Gold(answers[0])


def _columns(described: TrainingSet, row: dict[str, Any]) -> dict[str, Any]:
    """What a user's own reward is handed of a row by its name: all but what the problem shows."""
    shown = {*described.images, described.videos}
    return {name: value for name, value in row.items() if isinstance(value, PLAIN) and name not in shown}


def _truth(row: dict[str, Any]) -> TokenTruth | None:
    truth = TokenTruth(row.get("transcription") or "", row.get("token_patterns") or {})
    return truth if truth.parts else None


def _media(
    described: TrainingSet, row: dict[str, Any], asked: Any, root: Path
) -> tuple[tuple[bytes | Path, ...], tuple[Path, ...]]:
    if row.get("data_type") == "video" and described.names_files and not described.takes_text:
        return (), tuple(own_file(root, name) for name in described.files_of(row))
    value = next((row[column] for column in image_columns(described) if column in row), None)
    images, videos = media_of(asked, value, "image"), media_of(asked, row.get(described.videos), "video")
    return tuple(image_of(image, root) for image in images), tuple(own_file(root, name) for name in videos)


def image_columns(described: TrainingSet) -> tuple[str, ...]:
    named = [column for column in described.media_columns if column not in (described.videos, *described.question)]
    return (*named, *described.images)


def _usable(described: TrainingSet, root: Path, index: int, row: dict[str, Any]) -> tuple[TrainingProblem | None, str]:
    """The problem of a row, or None and why there is none that can be used."""
    problem, reason = _read(described, root, index, row)
    reason = reason if problem is None else _why_unusable(problem, takes_text=described.takes_text)
    return (None, reason) if reason else (problem, "")


def _read(described: TrainingSet, root: Path, index: int, row: dict[str, Any]) -> tuple[TrainingProblem | None, str]:
    try:
        return read_problem(described, index, row, root), ""
    except MemoryError:
        raise
    except Exception as error:  # a row that is not as its publisher describes, in whatever way
        return None, f"no row of this set ({reason_of(error)})"


def _why_unusable(problem: TrainingProblem, *, takes_text: bool) -> str:
    if not problem.images and not problem.videos and not takes_text:
        return "no image"  # of published sets, whose few rows of text have no visual credit
    if any(num_marks(problem.question, kind) > count for kind, count in problem.num_media.items()):
        return "more marks than images"
    if not problem.answer:
        return "no answer"
    files = [medium for medium in (*problem.images, *problem.videos) if isinstance(medium, Path)]
    if files:  # opened when they are asked for
        return _why_no_file(files)
    try:
        problem.decoded()
    except MemoryError:
        raise
    except Exception:  # whatever a decoder raises on damaged bytes, the row is not usable
        return "undecodable image"
    return ""


def _why_no_file(files: Sequence[Path]) -> str:
    outside = [unquote(path.name.removeprefix(OUTSIDE)) for path in files if path.name.startswith(OUTSIDE)]
    if outside:
        return f"file outside the set's folder: {outside[0]}"
    return "" if all(path.is_file() for path in files) else "no such file"
