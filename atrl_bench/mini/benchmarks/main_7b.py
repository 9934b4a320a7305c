"""Synthetic versions of the five benchmarks of `main_7b`: GeoQA, MathVerse, MathVision, MathVista and WeMath."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from atrl_bench.mini.benchmarks.dataset import Row, SyntheticDataset, drawn, each, embedded
from atrl_bench.mini.corpus import ASK_THE_PICTURE, NO_CORRECT_ANSWER, Posed, described, pose, with_placeholder
from atrl_bench.mini.drawing import draw
from atrl_bench.mini.problems import KINDS, LETTERS, READING_PREFIX, DigitProblem, draw_problem

if TYPE_CHECKING:
    import numpy as np

# GeoQA: open questions; the gold carries degree signs always, other units every second time.

GEOMETRY_KINDS = ("rectangle_area", "rectangle_perimeter", "triangle_perimeter", "third_angle")


def _geoqa(index: int, rng: np.random.Generator) -> Row:
    problem = drawn(GEOMETRY_KINDS, index, rng)
    unit = problem.kind.unit if problem.kind.unit == "°" or rng.random() < 0.5 else ""
    image = embedded(problem, f"{index}.png")
    return {"image": image, "question": problem.question, "ground_truth": f"{problem.answer}{unit}"}


# MathVerse: each problem in five versions that move the question from the words into the picture.

VERSIONS = ("Text Dominant", "Text Lite", "Vision Intensive", "Vision Dominant", "Vision Only")
SIGN_KINDS = ("sum", "product", "range", "extremes")


def _verse_text(stem: str, options: Sequence[str]) -> str:
    lettered = [f"{letter}:{option}" for letter, option in zip(LETTERS, options, strict=False)]
    return "\n".join(part for part in (stem, *(["Choices:", *lettered] if lettered else [])) if part)


def _mathverse(count: int, rng: np.random.Generator) -> list[Row]:
    rows: list[Row] = []
    for index in range(max(1, count // len(VERSIONS))):
        # 436 of the 788 problems are multiple choice.
        posed = pose(drawn(SIGN_KINDS, index, rng), "four" if rng.random() < 436 / 788 else "open", rng)
        full, short = posed.problem.kind.wordings
        for version in VERSIONS:
            words = {"Text Dominant": described(posed), "Text Lite": full, "Vision Intensive": short}
            stem = words.get(version, ASK_THE_PICTURE if version == "Vision Dominant" else "")
            sign = version in ("Vision Dominant", "Vision Only")
            name = f"image_{index + 1}_{version}.png"
            text = _verse_text(stem, posed.options)
            row = _verse_row(posed, index, version, text, embedded(posed.problem, name, with_glyph=sign))
            rows.append({"sample_index": str(len(rows) + 1), **row})
    return rows


def _mathverse_text_only(index: int, rng: np.random.Generator) -> Row:
    """A problem whose digits are in the words; the column of the image is an empty text."""
    posed = pose(drawn(SIGN_KINDS, index, rng), "four" if rng.random() < 436 / 788 else "open", rng)
    stem = f"{READING_PREFIX} {posed.problem.transcription}. {posed.stem}"
    row = _verse_row(posed, index, "Text Only", _verse_text(stem, posed.options), "")
    return {"sample_index": str(index + 1), **row}


def _verse_row(posed: Posed, index: int, version: str, text: str, image: dict[str, Any] | str) -> Row:
    wanted = "correct option letter, e.g., A, B, C, D" if posed.options else "final value, e.g., 1, 2.5, 300"
    return {
        "problem_index": str(index + 1),
        "problem_version": version,
        "question": text,
        "image": image,
        "answer": posed.answer,
        "question_type": "multi-choice" if posed.options else "free-form",
        "metadata": {
            "split": "testmini",
            "source": "handwritten digits",
            "subject": "Arithmetic",
            "subfield": posed.problem.kind.name,
        },
        "query_wo": f"Please directly answer the question and provide the {wanted}.\n{text}",
        "query_cot": "Please first conduct reasoning, and then answer the question and provide the "
        f"{wanted}, at the end.\n{text}",
        "question_for_eval": _verse_text(posed.problem.kind.wordings[0], posed.options),
    }


# MathVision: 190 of 304 rows have five options, in 73 of them only the letters of parts of the picture.


def _mathvision(count: int, rng: np.random.Generator) -> list[Row]:
    rows = []
    for index, (form, posed, is_explained) in enumerate(posed_mathvision(count, rng)):
        name = f"{index + 1}.png"
        rows.append(
            {
                "id": str(index + 1),
                "question": with_placeholder(posed),
                "options": list(posed.options),
                "image": f"images/{name}",
                "answer": posed.answer,
                "solution": posed.problem.steps if is_explained else None,
                "level": len(posed.problem.readings) - 1,
                "subject": "logic" if form == "letters" else "arithmetic",
                "decoded_image": embedded(posed.problem, name),
            }
        )
    return rows


def posed_mathvision(count: int, rng: np.random.Generator) -> Iterator[tuple[str, Posed, bool]]:
    """What each row is made from: the form of its answer, its problem, and whether its solution is told."""
    for index in range(count):
        form = str(rng.choice(["letters", "five", "open"], p=[73 / 304, 117 / 304, 114 / 304]))
        names = {
            "letters": ("largest_place", "smallest_place"),
            "five": ("number_plus", "sum", "extremes", "range"),
            "open": ("number_plus", "sum", "extremes", "product"),
        }[form]
        posed = pose(drawn(names, index, rng), form, rng)
        yield form, posed, bool(rng.random() >= 2258 / 3040)


# MathVista: the gold of a multiple-choice row is the option's text; numbers come with the precision that counts.

_HINTS = {
    "text": "Please answer the question and provide the correct option letter, e.g., A, B, C, D, at the end.",
    "integer": "Please answer the question requiring an integer answer and provide the final value, e.g., 1, 2, 3, "
    "at the end.",
    "float": "Please answer the question requiring a floating-point number and provide the final value, at the end.",
    "list": "Please answer the question requiring a Python list as an answer and provide the final list, e.g., "
    "[1, 2, 3], at the end.",
}


def _mathvista(index: int, rng: np.random.Generator) -> Row:
    # The real shares are 54, 42, 4 and 0.2 %; here floats and lists are common enough to be seen in every profile.
    form = str(rng.choice(["text", "integer", "float", "list"], p=[0.5, 0.25, 0.125, 0.125]))
    names = {
        "text": ("above_nine", "sum", "range", "extremes"),
        "integer": ("rectangle_perimeter", "sum", "range", "product"),
        "float": ("mean", "quarter"),
        "list": ("ends",),
    }[form]
    problem = drawn(names, index, rng)
    posed = pose(problem, "four" if form == "text" else "open", rng)
    picture = draw(problem)
    return {
        "pid": str(index + 1),
        "question": problem.question,
        "image": f"images/{index + 1}.png",
        "decoded_image": embedded(problem, f"{index + 1}.png"),
        "choices": list(posed.options) or None,
        "unit": problem.kind.unit or None,
        "precision": float(len(problem.answer.split(".")[1])) if form == "float" else None,
        "answer": problem.answer,
        "question_type": "multi_choice" if form == "text" else "free_form",
        "answer_type": form,
        "metadata": {
            "category": "math-targeted-vqa",
            "context": "handwritten digits",
            "grade": "elementary school",
            "img_height": picture.height,
            "img_width": picture.width,
            "language": "english",
            "skills": ["arithmetic reasoning"],
            "source": "handwritten digits",
            "split": "testmini",
            "task": "math word problem",
        },
        "query": f"Hint: {_HINTS[form]}\nQuestion: {posed.question}",
    }


# WeMath: a composite and its steps ask about one picture; all rows have lettered options in one string.

COMPOSITES = {"2steps": ("first_sum", "last_sum", "sum"), "3steps": ("first_sum", "last_sum", "outer_sum", "sum")}
_CONCEPTS = {
    "first_sum": "Addition of Two Numbers",
    "last_sum": "Addition of Two Numbers",
    "outer_sum": "Addition of Two Numbers",
    "sum": "Addition of Several Numbers",
}


def _option_string(options: Sequence[str], rng: np.random.Generator) -> str:
    """The options in one string, with the uneven separators of the real file."""
    separator = str(rng.choice([";", "; "]))
    numbered = [f"{letter}. {option}" for letter, option in zip(LETTERS, options[:-1], strict=False)]
    return f"{separator.join(numbered)}; {LETTERS[len(numbered)]}. {NO_CORRECT_ANSWER}"


def _wemath(count: int, rng: np.random.Generator) -> list[Row]:
    rows: list[Row] = []
    composite = 0
    while len(rows) < count:
        # 360 composites of two steps, 165 of three.
        length = "2steps" if composite % 3 < 2 else "3steps"
        names = COMPOSITES[length]
        whole = draw_problem(KINDS[names[-1]], "test", rng)
        composite += 1
        for step, name in enumerate(names, start=1):
            kind = KINDS[name]
            steps, answer = kind.solve(whole.readings)
            posed: Posed = pose(DigitProblem(kind, whole.scans, whole.readings, 0, steps, answer), "wemath", rng)
            rows.append(
                {
                    "ID": f"{length}_{composite}",
                    "split": "testmini",
                    "knowledge concept": _CONCEPTS[name],
                    "question": posed.stem,
                    "option": _option_string(posed.options, rng),
                    "answer": posed.answer,
                    "key": f"{length}_{'multi' if step == len(names) else step}",
                    "question number": len(rows) + 1,
                    "knowledge concept description": f"{_CONCEPTS[name]}:\n1. Add the digits one after the other.",
                    "image_path": embedded(posed.problem, f"{composite}-{step}.png"),
                }
            )
    return rows


# Of columns that may be empty.
MATHVISION_TYPES = {"options": ["string"], "solution": "string"}
MATHVISTA_TYPES = {"choices": ["string"], "unit": "string", "precision": "float64"}
SYNTHETIC_BENCHMARKS = (
    SyntheticDataset("geoqa", "test", each(_geoqa)),
    SyntheticDataset("mathverse", "testmini", _mathverse),
    SyntheticDataset("mathverse", "testmini_text_only", each(_mathverse_text_only), label="mathverse_text_only"),
    SyntheticDataset("mathvision", "testmini", _mathvision, MATHVISION_TYPES),
    SyntheticDataset("mathvision", "test", _mathvision, MATHVISION_TYPES, label="mathvision_test"),
    SyntheticDataset("mathvista", "testmini", each(_mathvista), MATHVISTA_TYPES),
    SyntheticDataset("wemath", "testmini", _wemath),
)
