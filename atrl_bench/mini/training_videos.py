"""Training sets that stand for Video-R1-260k and Video-R1-CoT-165k, in their columns, over training scans only.

Both name the image or video of a row by its path below the set's folder, as the real tables do. They have one more
column, `transcription`: the digits in order of time, the ground truth for anchor tokens. `process` is what a response
says before its answer; only the set for supervised training has it. Half of its chains are empty: the model that has
imitated them answers at a glance as often as it reads first, and reinforcement learning has to find which is better.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from atrl_bench.mini.benchmarks.dataset import Row, SyntheticDataset, columns, strings
from atrl_bench.mini.benchmarks.videos import draw_options
from atrl_bench.mini.drawing import draw
from atrl_bench.mini.problems import KINDS, READING_PREFIX, DigitProblem, draw_problem
from atrl_bench.mini.videos import KINDS_OF_STYLE, Scene, Style, ask, draw_scene

if TYPE_CHECKING:
    import numpy as np
    from datasets import Features

IMAGE_EVERY = 8  # one row in so many is about an image, as in the real mixture
CHOICE_EVERY = 8  # and one in so many has lettered options
LINGERING_EVERY = 6  # one in so many shows a lingering scene; of the others more kinds of question are asked
GLANCE_FRACTION = 0.5  # of the chains
NUM_CHOICES = 4
# What sort of answer each kind has; that of all others is "numerical".
PROBLEM_TYPES = {"order": "OCR", "mean_of_ends": "regression", "number_plus": "regression", "above_nine": "free-form"}
IMAGE_KINDS = ("sum", "above_nine", "number_plus", "extremes")


def _rows(with_process: bool, count: int, rng: np.random.Generator) -> list[Row]:
    rows: list[Row] = []
    for index in range(count):
        if index % IMAGE_EVERY == IMAGE_EVERY - 1:
            kind = IMAGE_KINDS[index // IMAGE_EVERY % len(IMAGE_KINDS)]
            problem = draw_problem(KINDS[kind], "train", rng)
            path = f"./images/{kind}-{'-'.join(map(str, problem.scans))}.png"
        else:
            style: Style = "lingering" if index % LINGERING_EVERY == LINGERING_EVERY - 1 else "passing"
            scene = draw_scene(style, "train", rng)
            problem, path = _about(scene, style, rng), f"./videos/{scene.name}.mp4"
        rows.append(_row(index, problem, path, rng, with_process))
    return rows


def _about(scene: Scene, style: Style, rng: np.random.Generator) -> DigitProblem:
    kinds = KINDS_OF_STYLE[style]
    return ask(scene, kinds[int(rng.integers(len(kinds)))], rng)


def _row(index: int, problem: DigitProblem, path: str, rng: np.random.Generator, with_process: bool) -> Row:
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


def _files(rows: list[Row]) -> Iterator[tuple[str, bytes]]:
    """Yield each file once; its name is enough to draw it."""
    for path in dict.fromkeys(row["path"] for row in rows):
        folder, _, name = path.removeprefix("./").rpartition("/")
        stem = name.rpartition(".")[0]
        yield path, Scene.named(stem).mp4() if folder == "videos" else _png(stem)


def _png(name: str) -> bytes:
    kind, _, scans = name.partition("-")
    scene = Scene.named(scans)
    buffer = io.BytesIO()
    draw(DigitProblem(KINDS[kind], scene.scans, scene.readings, 0, "", "")).save(buffer, format="PNG")
    return buffer.getvalue()


def _features() -> Features:
    from datasets import List, Value

    return columns(
        problem_id="int64",
        **strings("problem", "data_type", "problem_type"),
        options=List(Value("string")),
        **strings("process", "solution", "path", "data_source", "transcription"),
    )


VIDEO_R1 = SyntheticDataset(
    "video_r1", "Video-R1-260k", _features, partial(_rows, False), files=_files, label="video_r1"
)
VIDEO_R1_COT = SyntheticDataset(
    "video_r1", "Video-R1-COT-165k", _features, partial(_rows, True), files=_files, label="video_r1_cot"
)
