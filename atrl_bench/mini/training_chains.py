"""A training set that stands for R1-VL-10K: chains in sections, and the key steps that they take.

Its columns are the real ones, and two more: `transcription` as in the other sets, and `section_marks`, since the real
marks ("### Image Description:" and so on) would fill the 48 tokens a response has here. The mini world has short ones:

    The image shows 3 4 5. Find the sum. (1) 3+4=7. (2) 7+5=12. The answer is \\boxed{12}.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from atrl_bench.mini.benchmarks.dataset import Row, SyntheticDataset, each, named_picture, picture_name, strings
from atrl_bench.mini.problems import KINDS, READING_PREFIX, DigitProblem, draw_problem

if TYPE_CHECKING:
    import numpy as np

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


def _row(index: int, rng: np.random.Generator) -> Row:
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


def _files(rows: list[Row]) -> Iterator[tuple[str, bytes]]:
    for path in dict.fromkeys(row["image_path"] for row in rows):
        yield path, named_picture(path.removeprefix("./images/").removesuffix(".png"))


COLUMNS = {
    **strings("image_path", "problem", "solution"),
    "key_steps": {"Steps": [["string"]]},
    "transcription": "string",
    "section_marks": strings(*MARKS),
}
R1_VL = SyntheticDataset("r1_vl", "train", COLUMNS, each(_row), files=_files)
