"""Synthetic versions of the benchmarks about charts and documents: ChartQAPro, TextVQA and InfoVQA."""

from __future__ import annotations

from typing import TYPE_CHECKING

from atrl_bench.mini.benchmarks.dataset import Row, SyntheticDataset, drawn, each, embedded
from atrl_bench.mini.corpus import pose
from atrl_bench.mini.drawing import draw
from atrl_bench.mini.problems import KINDS, DigitProblem

if TYPE_CHECKING:
    import numpy as np

# ChartQAPro: five types of question; answers and questions are lists of turns, the image is a file's bytes.

# Of ten questions five are factoid, two end a conversation, one is of each other type.
ORDER = (
    *("Factoid", "Conversational", "Factoid", "Multi Choice", "Factoid"),
    *("Fact Checking", "Factoid", "Conversational", "Factoid", "Hypothetical"),
)
ASKED = {
    # A list among them, and with the two-digit number one whose answer has to be exact.
    "Factoid": ("sum", "mean", "ends", "rectangle_perimeter", "third_angle", "number_plus"),
    "Conversational": ("sum",),
    "Multi Choice": ("sum", "range", "extremes"),
    "Fact Checking": ("above_nine",),
    "Hypothetical": ("extremes", "triangle_perimeter"),
}
TURNS = ("first_sum", "last_sum", "sum")


def _chartqapro(count: int, rng: np.random.Generator) -> list[Row]:
    rows: list[Row] = []
    for index in range(count):
        kind = ORDER[index % len(ORDER)]
        problem = drawn(ASKED[kind], sum(row["Question Type"] == kind for row in rows), rng)
        questions, answers = [problem.question], [problem.answer]
        if kind == "Multi Choice":
            posed = pose(problem, "four", rng)
            questions, answers = [posed.question], [posed.answer]
        elif kind == "Conversational":
            steps = [(KINDS[name], KINDS[name].solve(problem.readings)[1]) for name in TURNS]
            questions, answers = [step.wordings[0] for step, _ in steps], [answer for _, answer in steps]
        elif kind == "Fact Checking":
            answers = ["True" if problem.answer == "Yes" else "False"]
        exact = problem.kind.name == "number_plus"
        rows.append(
            {
                "Question": questions,
                "Answer": answers,
                "Question Type": kind,
                "image": embedded(problem, "")["bytes"],
                "Year": ["NO"] * (len(questions) - 1) + ["YES" if exact else "NO"],
                "Paragraph": "The picture shows handwritten digits." if rng.random() < 0.25 else "",
            }
        )
    return rows


# TextVQA: ten annotators, most of whom agree; words for small numbers say the same as digits.

READINGS = ("sum", "mean", "extremes", "triangle_perimeter", "rectangle_perimeter")
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def _textvqa(index: int, rng: np.random.Generator) -> Row:
    problem = drawn(READINGS, index, rng)
    picture = draw(problem)
    return {
        "image_id": f"{index:016x}",
        "question_id": 34602 + index,
        "question": problem.question,
        "question_tokens": problem.question.lower().rstrip("?.").split(),
        "image": embedded(problem, f"{index:016x}.jpg"),
        "image_width": picture.width,
        "image_height": picture.height,
        "flickr_original_url": "",
        "flickr_300k_url": "",
        "answers": _annotators(problem, rng),
        "image_classes": ["Handwriting"],
        "set_name": "val",
        "ocr_tokens": [str(digit) for digit in problem.readings],
    }


def _annotators(problem: DigitProblem, rng: np.random.Generator) -> list[str]:
    agree = int(rng.integers(5, 11))
    spelled = WORDS[int(problem.answer)] if problem.answer in map(str, range(11)) else f"{problem.answer}."
    wrong = [f"not {problem.answer}", "unanswerable", problem.transcription]
    answers = [problem.answer] * (agree - 1) + [spelled] + [wrong[index % 3] for index in range(10 - agree)]
    return [str(answer) for answer in rng.permutation(answers)]


# InfoVQA: some answers have a second spelling, with the unit.


def _infovqa(index: int, rng: np.random.Generator) -> Row:
    problem = drawn(("rectangle_perimeter", "sum", "third_angle", "mean", "largest_place"), index, rng)
    unit = problem.kind.unit
    return {
        "questionId": str(98313 + index),
        "question": problem.question,
        "answers": [problem.answer, *([f"{problem.answer} {unit}"] if unit else [])],
        "answer_type": ["non-extractive"] if problem.kind.name != "largest_place" else ["single span"],
        "image": embedded(problem, f"{index}.jpeg"),
        "image_url": f"{index}.jpeg",
        "operation/reasoning": ["arithmetic"],
        "ocr": problem.transcription,
        "data_split": "val",
    }


TEXTVQA_TYPES = dict.fromkeys(("question_id", "image_width", "image_height"), "int32")
SYNTHETIC_BENCHMARKS = (
    SyntheticDataset("chartqapro", "test", _chartqapro),
    SyntheticDataset("textvqa", "validation", each(_textvqa), TEXTVQA_TYPES),
    SyntheticDataset("infovqa", "validation", each(_infovqa), config="InfographicVQA"),
)
