"""The training sets as rows of TRL: a conversational prompt, its images, the gold answer.

Real sets and the generated twins have the same columns. A row that cannot be trained on is left out and counted by its
reason; more than 1 % of them is an error. Images are decoded when a rollout asks for them.
"""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atrl_bench.errors import MissingDataError, UnknownNameError
from atrl_bench.evaluation.prompts import choose_template, render

if TYPE_CHECKING:
    import pyarrow
    from PIL.Image import Image

MAX_BAD_FRACTION = 0.01
STREAM_ROWS = 64


@dataclass(frozen=True)
class TrainingSet:
    """Where a training set is and what its columns are called."""

    hub_id: str
    num_rows: int
    answer: str = "answer"
    problem_id: str | None = None


TRAINING_SETS = {
    # The copy with embedded images; TIGER-Lab/ViRL39K keeps them in an archive beside the table.
    "virl39k": TrainingSet("Kun-Xiang/ViRL39K", 38_870, problem_id="qid"),
    "geometry3k": TrainingSet("hiyouga/geometry3k", 2_101),
    "geoqa_8k": TrainingSet("leonardPKU/GEOQA_R1V_Train_8K", 8_000, answer="solution"),
}
# The same set is published with the one or the other name.
QUESTION_COLUMNS = ("problem", "question")
IMAGE_COLUMNS = ("images", "image")


@dataclass(frozen=True)
class Problem:
    """One row: what is asked, what is shown, what is right."""

    problem_id: str
    question: str
    answer: str
    images: tuple[bytes, ...]
    transcription: str | None = None

    def decoded(self) -> list[Image]:
        """Return the images as RGB pictures."""
        return [_decode(image) for image in self.images]


@dataclass(frozen=True)
class TrainingData:
    """The usable rows of a training set, and how many were left out for which reason."""

    name: str
    problems: list[Problem]
    left_out: dict[str, int] = field(default_factory=dict)

    def example(self, index: int, run_seed: int) -> dict[str, Any]:
        """Return row `index` as TRL wants it; the template is drawn from the run seed and the problem."""
        problem = self.problems[index]
        text = render(problem.question, choose_template(run_seed, problem.problem_id))
        content = [{"type": "image"} for _ in problem.images] + [{"type": "text", "text": text}]
        return {
            "prompt": [{"role": "user", "content": content}],
            "images": problem.decoded(),
            "answer": problem.answer,
            "transcription": problem.transcription,
        }

    def without_long_prompts(self, processor: Any, max_prompt_tokens: int) -> TrainingData:
        """Return the data without problems whose prompt has more than `max_prompt_tokens` tokens in any template."""
        from atrl_bench.evaluation.prompts import TEMPLATES

        longest = max(range(len(TEMPLATES)), key=lambda template: len(TEMPLATES[template]))
        texts = []
        for problem in self.problems:
            text = render(problem.question, longest)
            content = [{"type": "image"} for _ in problem.images] + [{"type": "text", "text": text}]
            message = [{"role": "user", "content": content}]
            texts.append(processor.apply_chat_template(message, tokenize=False, add_generation_prompt=True))
        kept = []
        token_ids = processor.tokenizer(texts)["input_ids"]
        for problem, ids in zip(self.problems, token_ids, strict=True):
            sizes = [_size(image) for image in problem.images]
            # Each placeholder in the text becomes as many tokens as its image has.
            num_visual = sum(processor._get_num_multimodal_tokens(image_sizes=sizes)["num_image_tokens"])
            if len(ids) - len(sizes) + num_visual <= max_prompt_tokens:
                kept.append(problem)
        num_long = len(self.problems) - len(kept)
        if not kept:
            raise MissingDataError(
                f"Every prompt of {self.name} is longer than {max_prompt_tokens} tokens.",
                next_step="raise max_prompt_tokens or lower max_pixels",
            )
        left_out = self.left_out | ({"prompt too long": num_long} if num_long else {})
        return TrainingData(self.name, kept, left_out)


def stream_problems(name: str, data_dir: Path | None) -> Iterator[Problem]:
    """Yield every row of training set `name`, usable or not, with a few dozen of them in memory at a time."""
    import pyarrow.parquet

    described = describe(name)
    batches: Iterable[pyarrow.RecordBatch]
    if data_dir is None:
        batches = _read_hub(described.hub_id).to_batches(max_chunksize=STREAM_ROWS)
    else:
        files = (pyarrow.parquet.ParquetFile(path) for path in _files(name, data_dir))
        # Group by group: asked for the whole file, pyarrow reads ahead until all of it is in memory.
        parts = ((file, group) for file in files for group in range(file.num_row_groups))
        batches = (batch for file, group in parts for batch in file.iter_batches(STREAM_ROWS, row_groups=[group]))
    index = 0
    for batch in batches:
        _check_columns(name, described, batch.schema.names)
        for row in batch.to_pylist():
            yield _problem(described, index, row)
            index += 1


def load_training_data(name: str, data_dir: Path | None) -> TrainingData:
    """Return the rows of training set `name`, from `<data_dir>/<name>/train*.parquet` or, without one, from the hub."""
    described = describe(name)
    table = _read_hub(described.hub_id) if data_dir is None else _read_folder(name, data_dir)
    _check_columns(name, described, table.column_names)
    problems, left_out = [], Counter[str]()
    rows = (row for batch in table.to_batches(max_chunksize=256) for row in batch.to_pylist())
    with warnings.catch_warnings(), ThreadPoolExecutor() as pool:
        from PIL import Image

        # A picture that claims to be enormous is refused, not decoded.
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        for problem, reason in pool.map(lambda pair: _checked(_problem(described, *pair)), enumerate(rows)):
            if reason:
                left_out[reason] += 1
            else:
                problems.append(problem)
    num_bad = left_out["undecodable image"]
    if not problems or num_bad > MAX_BAD_FRACTION * table.num_rows:
        raise MissingDataError(
            f"{table.num_rows - len(problems)} of {table.num_rows} rows of {name} cannot be used.",
            why=", ".join(f"{count} {reason}" for reason, count in left_out.items()),
            next_step="fetch the data set again",
        )
    return TrainingData(name, problems, dict(left_out))


def data_digest(name: str, data_dir: Path | None) -> str:
    """Return what identifies the data in a run's key: a hash of the files, or the hub id."""
    if data_dir is None:
        return f"hub:{describe(name).hub_id}"
    digest = hashlib.sha256()
    for path in _files(name, data_dir):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def describe(name: str) -> TrainingSet:
    """Return where training set `name` is and what its columns are called."""
    if name not in TRAINING_SETS:
        raise UnknownNameError("training set", name, TRAINING_SETS)
    return TRAINING_SETS[name]


def _files(name: str, data_dir: Path) -> list[Path]:
    files = sorted((data_dir / name).glob("train*.parquet"))
    if not files:
        raise MissingDataError(
            f"No {data_dir / name}/train*.parquet.",
            why=f"Training set {name} was asked for from a folder.",
            next_step="put the parquet files there, or leave --data-dir out to read from the hub",
        )
    return files


def _read_folder(name: str, data_dir: Path) -> pyarrow.Table:
    import pyarrow
    import pyarrow.parquet

    return pyarrow.concat_tables([pyarrow.parquet.read_table(path) for path in _files(name, data_dir)])


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


def _check_columns(name: str, described: TrainingSet, known: Sequence[str]) -> None:
    for columns in (QUESTION_COLUMNS, IMAGE_COLUMNS, (described.answer,)):
        if not set(columns) & set(known):
            raise MissingDataError(
                f"Training set {name} has no column {' or '.join(columns)}.",
                why=f"Its columns are {', '.join(known)}.",
            )


def _problem(described: TrainingSet, index: int, row: dict[str, Any]) -> Problem:
    value = next(row[column] for column in IMAGE_COLUMNS if column in row)
    question = next(row[column] for column in QUESTION_COLUMNS if column in row)
    values: Iterable[Any] = value if isinstance(value, list) else [] if value is None else [value]
    images = tuple(image["bytes"] if isinstance(image, dict) else image for image in values)
    return Problem(
        problem_id=str(row.get(str(described.problem_id), index)),
        # Some sets mark the place of an image in the text; the chat template has its own marks.
        question=re.sub(r"\s*<image>\s*", " ", str(question or "")).strip(),
        answer=gold_answer(str(row[described.answer] or "")),
        images=images,
        transcription=row.get("transcription"),
    )


def _checked(problem: Problem) -> tuple[Problem, str]:
    """Return the problem, and why it cannot be used if it cannot."""
    if not problem.images:
        # Mixed batches of text and images are refused by some processors, and text has no visual credit.
        return problem, "no image"
    if not problem.answer:
        return problem, "no answer"
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


def _decode(image: bytes) -> Image:
    from PIL import Image

    with Image.open(io.BytesIO(image)) as picture:
        return picture.convert("RGB")


def _size(image: bytes) -> tuple[int, int]:
    from PIL import Image

    with Image.open(io.BytesIO(image)) as picture:
        return picture.height, picture.width
