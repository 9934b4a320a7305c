"""Training sets that stand for Video-R1-260k and Video-R1-CoT-165k, in their columns, over training scans only.

Both name the image or video of a row by its path below the set's folder, as the real tables do. They have one more
column, `transcription`: the digits in order of time, the ground truth for anchor tokens. `process` is what a response
says before its answer; only the set for supervised training has it. Half of its chains are empty: the model that has
imitated them answers at a glance as often as it reads first, and reinforcement learning has to find which is better.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from atrl_bench.mini.benchmarks.dataset import Row, SyntheticDataset, each, named_picture, picture_name, strings
from atrl_bench.mini.benchmarks.videos import draw_options
from atrl_bench.mini.problems import KINDS, READING_PREFIX, DigitProblem, draw_problem
from atrl_bench.mini.videos import KINDS_OF_STYLE, Scene, Style, ask, draw_scene

if TYPE_CHECKING:
    import numpy as np

IMAGE_EVERY = 8  # one row in so many is about an image, as in the real mixture
CHOICE_EVERY = 8  # and one in so many has lettered options
LINGERING_EVERY = 6  # one in so many shows a lingering scene; of the others more kinds of question are asked
GLANCE_FRACTION = 0.5  # of the chains
NUM_CHOICES = 4
# What sort of answer each kind has; that of all others is "numerical".
PROBLEM_TYPES = {"order": "OCR", "mean_of_ends": "regression", "number_plus": "regression", "above_nine": "free-form"}
IMAGE_KINDS = ("sum", "above_nine", "number_plus", "extremes")


def _row(with_process: bool, index: int, rng: np.random.Generator) -> Row:
    problem, path = _posed(index, rng)
    is_video = path.endswith(".mp4")
    is_choice = is_video and index % CHOICE_EVERY == 0
    options = draw_options(problem, NUM_CHOICES, rng) if is_choice else []
    answer = "ABCD"[options.index(problem.answer)] if options else problem.answer
    chain = "" if rng.random() < GLANCE_FRACTION else f"{READING_PREFIX} {problem.transcription}. {problem.steps}"
    return {
        "problem_id": index,
        "problem": problem.question,
        "data_type": "video" if is_video else "image",
        "problem_type": "multiple choice" if options else PROBLEM_TYPES.get(problem.kind.name, "numerical"),
        "options": [f"{letter}. {text}" for letter, text in zip("ABCD", options, strict=False)],
        "process": f"<think>{chain}</think>" if with_process else "",
        "solution": f"<answer>{answer}</answer>",
        "path": path,
        "data_source": "mini",
        "transcription": problem.transcription,
    }


def _posed(index: int, rng: np.random.Generator) -> tuple[DigitProblem, str]:
    """The problem of a row, and the path of the image or video that it is about."""
    if index % IMAGE_EVERY == IMAGE_EVERY - 1:
        problem = draw_problem(KINDS[IMAGE_KINDS[index // IMAGE_EVERY % len(IMAGE_KINDS)]], "train", rng)
        return problem, f"./images/{picture_name(problem)}.png"
    style: Style = "lingering" if index % LINGERING_EVERY == LINGERING_EVERY - 1 else "passing"
    scene, kinds = draw_scene(style, "train", rng), KINDS_OF_STYLE[style]
    return ask(scene, kinds[int(rng.integers(len(kinds)))], rng), f"./videos/{scene.name}.mp4"


def _files(rows: list[Row]) -> Iterator[tuple[str, bytes]]:
    for path in dict.fromkeys(row["path"] for row in rows):
        file = PurePosixPath(path)
        yield path, Scene.named(file.stem).mp4() if file.suffix == ".mp4" else named_picture(file.stem)


COLUMNS = {
    "problem_id": "int64",
    **strings("problem", "data_type", "problem_type"),
    "options": ["string"],
    **strings("process", "solution", "path", "data_source", "transcription"),
}
VIDEO_R1, VIDEO_R1_COT = (
    SyntheticDataset("video_r1", split, COLUMNS, each(partial(_row, with_process)), files=_files, label=label)
    for split, with_process, label in (
        ("Video-R1-260k", False, "video_r1"),
        ("Video-R1-COT-165k", True, "video_r1_cot"),
    )
)
