"""Training sets that stand for ViRL-39K, Geometry-3K, GeoQA-8K, R1-VL-10K and Video-R1, over training scans only.

They are in the columns of the real ones. ViRL-39K is the copy with embedded images (the original has an archive). Each
set has one more column, `transcription`: the digits as read from the image or, of a video, in order of time. It is the
ground truth for anchor tokens, and no trainer may learn from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from atrl_bench.mini.benchmarks.dataset import Row, SyntheticDataset, each, embedded, named_media, picture_name
from atrl_bench.mini.benchmarks.main_7b import GEOMETRY_KINDS
from atrl_bench.mini.benchmarks.videos import OPTIONS, draw_options
from atrl_bench.mini.corpus import draw_posed, pose
from atrl_bench.mini.problems import KINDS, READING_PREFIX, DigitProblem, draw_problem
from atrl_bench.mini.videos import KINDS_OF_STYLE, Style, ask, draw_scene

if TYPE_CHECKING:
    import numpy as np


def _virl39k(index: int, rng: np.random.Generator) -> Row:
    """A problem of any kind, the answer in a box as in the real set.

    A letter is the gold only where letters are all there is: the rows have no column for options, so a grader could not
    accept the text of the right one.
    """
    posed = draw_posed("train", rng, lettered=False)
    return {
        "id": str(index),
        "problem": f"<image>{posed.question}",
        "answer": f"\\boxed{{{posed.answer}}}",
        "category": "(GradeSchool) Geometric" if posed.problem.kind.unit else "(GradeSchool) Non-Geo Math",
        "qid": f"mini-{index}",
        "images": [embedded(posed.problem, f"{index}.png", with_glyph=posed.with_glyph)],
        "transcription": posed.problem.transcription,
    }


def _geometry3k(index: int, rng: np.random.Generator) -> Row:
    problem = draw_problem(KINDS[GEOMETRY_KINDS[index % len(GEOMETRY_KINDS)]], "train", rng)
    return {
        "images": [embedded(problem, f"{index}.png")],
        "problem": f"<image>{problem.question}",
        "answer": problem.answer,
        "transcription": problem.transcription,
    }


GEOQA_KINDS = (*GEOMETRY_KINDS, "sum", "product")


def _geoqa_8k(index: int, rng: np.random.Generator) -> Row:
    posed = pose(draw_problem(KINDS[GEOQA_KINDS[index % len(GEOQA_KINDS)]], "train", rng), "open", rng)
    unit = posed.problem.kind.unit
    return {
        "image": embedded(posed.problem, f"{index}.png"),
        "problem": posed.question,
        "solution": f"<answer> {posed.answer}{unit} </answer>",
        "transcription": posed.problem.transcription,
    }


# R1-VL-10K: chains in sections, and the key steps that they take. It has one more column, `section_marks`, since the
# real marks ("### Image Description:" and so on) would fill the 48 tokens that a response has here. These are short:
#
#     The image shows 3 4 5. Find the sum. (1) 3+4=7. (2) 7+5=12. The answer is \boxed{12}.

MARKS = {"description": READING_PREFIX, "rationales": "Find the", "step": "({})", "answer": "The answer is"}
# What each kind asks for, in one word. Kinds whose chain would not fit a response are left out.
SOUGHT = {
    "sum": "sum",
    "product": "product",
    "range": "difference",
    "extremes": "sum",
    "rectangle_area": "area",
    "rectangle_perimeter": "perimeter",
    "triangle_perimeter": "perimeter",
    "mean": "mean",
    "first_sum": "sum",
    "last_sum": "sum",
    "outer_sum": "sum",
}


def chain(problem: DigitProblem) -> str:
    steps = " ".join(f"({number}) {step}." for number, step in enumerate(steps_of(problem), 1))
    sought = SOUGHT[problem.kind.name]
    return (
        f"{READING_PREFIX} {problem.transcription}. Find the {sought}. {steps} "
        f"The answer is \\boxed{{{problem.answer}}}."
    )


def steps_of(problem: DigitProblem) -> list[str]:
    return problem.steps.rstrip(".").split(", ")


def _r1_vl(index: int, rng: np.random.Generator) -> Row:
    problem = draw_problem(KINDS[list(SOUGHT)[index % len(SOUGHT)]], "train", rng)
    return {
        "image_path": f"./images/{picture_name(problem)}.png",
        "problem": problem.question,
        "solution": chain(problem),
        # A calculation, or the same with spaces.
        "key_steps": {"Steps": [[step, _spaced(step)] for step in steps_of(problem)]},
        "transcription": problem.transcription,
        "section_marks": MARKS,
    }


def _spaced(step: str) -> str:
    return re.sub(r"([^\d.])", r" \1 ", step)


def _pictures(rows: list[Row]) -> Iterator[tuple[str, bytes]]:
    return named_media(row["image_path"] for row in rows)


# Video-R1-260k and Video-R1-CoT-165k name the image or video of a row by its path below the set's folder, as the real
# tables do. `process` is what a response says before its answer; only the set for supervised training has it. Half of
# its chains are empty: the model that has imitated them answers at a glance as often as it reads first, and
# reinforcement learning has to find which is better.

IMAGE_EVERY = 8  # one row in so many is about an image, as in the real mixture
CHOICE_EVERY = 8  # and one in so many has lettered options
LINGERING_EVERY = 6  # one in so many shows a lingering scene; of the others more kinds of question are asked
GLANCE_FRACTION = 0.5  # of the chains
NUM_CHOICES = 4
# What sort of answer each kind has; that of all others is "numerical".
PROBLEM_TYPES = {"order": "OCR", "mean_of_ends": "regression", "number_plus": "regression", "above_nine": "free-form"}
IMAGE_KINDS = ("sum", "above_nine", "number_plus", "extremes")


def _video_r1(with_process: bool, index: int, rng: np.random.Generator) -> Row:
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


def _media(rows: list[Row]) -> Iterator[tuple[str, bytes]]:
    return named_media(row["path"] for row in rows)


TRAINING_SETS: dict[str, SyntheticDataset] = {
    dataset.name: dataset
    for dataset in (
        SyntheticDataset("virl39k", "train", each(_virl39k)),
        SyntheticDataset("geometry3k", "train", each(_geometry3k)),
        SyntheticDataset("geoqa_8k", "train", each(_geoqa_8k)),
        SyntheticDataset("r1_vl", "train", each(_r1_vl), files=_pictures),
        SyntheticDataset("video_r1", "Video-R1-260k", each(partial(_video_r1, False)), OPTIONS, files=_media),
        SyntheticDataset(
            "video_r1", "Video-R1-COT-165k", each(partial(_video_r1, True)), OPTIONS, files=_media, label="video_r1_cot"
        ),
    )
}
