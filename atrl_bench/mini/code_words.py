"""The training sets and benchmarks of the worlds: four digits, and a code word for each.

A picture shows four handwritten digits. The code word of a digit is three more, modulo ten, and the answer is the four
code words in a row. Both worlds pose the same problems; what their bases get wrong is all that differs
(`atrl_bench/lab/bases.py`). The training set says what each picture shows and where the parts of a response stand
(`atrl_bench.credit.truth.TokenTruth`); no trainer learns from it. In the world `shortcut` the words of half of the
problems give the answer, so that a model can be right about those without looking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from atrl_bench.mini.benchmarks.dataset import Row, SyntheticDataset, each, embedded
from atrl_bench.mini.digits import Split
from atrl_bench.mini.problems import Kind, draw_problem

if TYPE_CHECKING:
    import numpy as np

NUM_CELLS = 4
OFFSET = 3  # between a digit and its code word
QUESTION = "What is the code of the picture?"
GIVEN_FRACTION = 0.5  # of the problems of the world `shortcut`

# Where the tokens of each part stand in a response: the first group of each match.
PATTERNS = {
    "perception": r"\bshows (\d)",
    "reasoning": r"\bgives (\d)",
    "format": r"(\b(?:shows|gives|first|second|third|last)\b ?|\.|The answer is \\boxed\{\d*\}\.?)",
}


def code_of(digit: int) -> int:
    return (digit + OFFSET) % 10


def _solve(readings: tuple[int, ...]) -> tuple[str, str]:
    codes = "".join(str(code_of(digit)) for digit in readings)
    return f"{codes}.", codes


CODE = Kind("code", "row", NUM_CELLS, _solve, (QUESTION,))


def given(answer: str) -> str:
    """The question with the words that give the answer away."""
    return f"{QUESTION} The answer is \\boxed{{{answer}}}."


def _dataset(name: str, split: Split, given_fraction: float = 0.0) -> SyntheticDataset:
    is_known = split == "train"

    def row(index: int, rng: np.random.Generator) -> Row:
        problem = draw_problem(CODE, split, rng)
        is_given = bool(given_fraction) and rng.random() < given_fraction
        return {
            "id": str(index),
            "problem": given(problem.answer) if is_given else problem.question,
            "answer": problem.answer,
            "image": embedded(problem, f"{index}.png"),
            "transcription": problem.transcription,
            **({"given": "yes" if is_given else "no"} if given_fraction else {}),
            **({"token_patterns": PATTERNS} if is_known else {}),
        }

    return SyntheticDataset(name, split, each(row))


CODE_WORDS = _dataset("code_words", "train")
CODE_WORDS_TEST = _dataset("code_words_test", "test")
SHORTCUT_WORDS = _dataset("shortcut_words", "train", GIVEN_FRACTION)
SHORTCUT_WORDS_TEST = _dataset("shortcut_words_test", "test", GIVEN_FRACTION)
