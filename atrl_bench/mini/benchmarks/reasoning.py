"""Synthetic versions of MMK12, DynaMath, LogicVista, Geometry3K's test split, MMStar and HallusionBench."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from atrl_bench.mini.benchmarks.dataset import Row, SyntheticDataset, drawn, each, embedded
from atrl_bench.mini.benchmarks.main_7b import GEOMETRY_KINDS, SIGN_KINDS
from atrl_bench.mini.corpus import pose
from atrl_bench.mini.problems import KINDS, LETTERS, DigitProblem, draw_problem

if TYPE_CHECKING:
    import numpy as np


def _with_options(stem: str, options: Sequence[str], pattern: str, head: str = "") -> str:
    """A question in which its options are."""
    return f"{stem}{head}" + "".join(pattern.format(*pair) for pair in zip(LETTERS, options, strict=False))


SCHOOL_SUBJECTS = ("math", "physics", "chemistry", "biology")


def _mmk12(index: int, rng: np.random.Generator) -> Row:
    posed = pose(drawn(SIGN_KINDS, index, rng), "four", rng)
    return {
        "question": f"<image>{_with_options(posed.stem, posed.options, chr(10) + '{}. {}')}",
        "image": embedded(posed.problem, f"{index}.png"),
        "answer": posed.answer,
        "subject": SCHOOL_SUBJECTS[index % len(SCHOOL_SUBJECTS)],
    }


VARIANTS = 10
DYNAMATH_KINDS = {"multiple choice": ("sum", "range"), "float": ("mean", "product"), "text": ("above_nine",)}


def _dynamath(count: int, rng: np.random.Generator) -> list[Row]:
    """Variants of a question are of one kind, with other digits; the file has all first variants first."""
    rows: list[Row] = []
    num_seeds = max(1, count // VARIANTS)
    for variant in range(min(VARIANTS, count)):
        for seed in range(num_seeds):
            form = list(DYNAMATH_KINDS)[seed % len(DYNAMATH_KINDS)]
            problem = drawn(DYNAMATH_KINDS[form], seed // len(DYNAMATH_KINDS), rng)
            posed = pose(problem, "four" if form == "multiple choice" else "open", rng)
            rows.append(
                {
                    "id": str(seed + 1),
                    "question": _with_options(
                        posed.stem, posed.options, " ({}) {}", " Choices:" if posed.options else ""
                    ),
                    "image": f"images/Q{seed + 1}_{variant + 1}.png",
                    "decoded_image": embedded(problem, f"Q{seed + 1}_{variant + 1}.png"),
                    "ground_truth": problem.answer if form == "text" else posed.answer,
                    "answer_type": form,
                    "subject": "arithmetic",
                    "knowledge_level": "elementary school",
                }
            )
    return rows


SKILLS = ("inductive", "deductive", "numerical", "spatial", "mechanical")


def _logicvista(index: int, rng: np.random.Generator) -> Row:
    """Every fourth row asks for two letters: the places of the largest and of the smallest digit."""
    problem = drawn(("largest_place", "smallest_place"), index, rng)
    question, answer = problem.question, problem.answer
    if index % 4 == 3:
        places = sorted(LETTERS[problem.readings.index(end(problem.readings))] for end in (max, min))
        question, answer = "Which letters stand under the largest and the smallest digit?", ", ".join(places)
    return {
        "id": str(index),
        "question": question,
        "answer": answer,
        "reasoning": problem.steps,
        "image": embedded(problem, f"{index}.png"),
        "skill": SKILLS[index % len(SKILLS)],
        "broad_capability": "patterns",
        "specific_capability": "digits",
        "imagesource": "handwritten digits",
    }


def _geometry3k(index: int, rng: np.random.Generator) -> Row:
    problem = drawn(GEOMETRY_KINDS, index, rng)
    return {
        "images": [embedded(problem, f"{index}.png")],
        "problem": f"<image>{problem.question}",
        "answer": problem.answer,
    }


CATEGORIES = ("coarse perception", "fine-grained perception", "instance reasoning", "logical reasoning", "math")


def _mmstar(index: int, rng: np.random.Generator) -> Row:
    posed = pose(drawn(SIGN_KINDS, index, rng), "four", rng)
    return {
        "index": index,
        "question": _with_options(posed.stem, posed.options, ", {}: {}", "\nOptions").replace("Options,", "Options:"),
        "image": embedded(posed.problem, f"{index}.png"),
        "answer": posed.answer,
        "category": CATEGORIES[index % len(CATEGORIES)],
        "l2_category": posed.problem.kind.name,
        "meta_info": {"source": "handwritten digits", "split": "val", "image_path": f"images/{index}.png"},
    }


QUESTIONS = ("Is the sum of the digits above nine?", "Is the sum of the digits nine or below?")


def _hallusionbench(count: int, rng: np.random.Generator) -> list[Row]:
    """A set is a figure and a copy with other digits; both are asked both questions, which exclude each other."""
    rows: list[Row] = []
    while len(rows) < count:
        number = len(rows) // 4
        for figure in ("0", "1"):
            problem: DigitProblem = draw_problem(KINDS["above_nine"], "test", rng)
            for question, text in enumerate(QUESTIONS):
                is_so = (sum(problem.readings) > 9) == (question == 0)
                rows.append(
                    {
                        "category": "VD",
                        "subcategory": "math",
                        "visual_input": "1",
                        "set_id": str(number),
                        "figure_id": figure,
                        "sample_note": "digits",
                        "question_id": str(question),
                        "question": text,
                        "gt_answer_details": f"The digits are {problem.transcription}.",
                        "gt_answer": str(int(is_so)),
                        "filename": f"./VD/math/{number}_{figure}.png",
                        "image": embedded(problem, f"{number}_{figure}.png"),
                    }
                )
    return rows


SYNTHETIC_BENCHMARKS = (
    SyntheticDataset("mmk12", "test", each(_mmk12)),
    SyntheticDataset("dynamath", "sample_all", _dynamath),
    SyntheticDataset("logicvista", "test", each(_logicvista)),
    SyntheticDataset("geometry3k", "test", each(_geometry3k), label="geometry3k_test"),
    SyntheticDataset("mmstar", "val", each(_mmstar)),
    SyntheticDataset("hallusionbench", "image", _hallusionbench),
)
