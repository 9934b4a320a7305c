"""Problems over handwritten digits: what is asked, what has to be read from the image, and how the answer follows.

Every kind of problem composes several readings. That keeps a gap between answering at a glance and reading first, and
the gap is what reinforcement learning has to find (DESIGN, "The mini world"). `readings` is the ground truth for anchor
tokens: the digits a response has to transcribe from the image, in reading order.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atrl_bench.mini.digits import Split, scans_of

if TYPE_CHECKING:
    import numpy as np

LETTERS = "ABCDE"
Solve = Callable[[tuple[int, ...]], tuple[str, str]]  # readings -> (the steps written out, the answer)


@dataclass(frozen=True)
class Kind:
    """One kind of problem."""

    name: str
    layout: str  # how the digits are arranged: row, labelled, rectangle, triangle or angles
    num_digits: int  # how many digits the picture shows
    solve: Solve
    wordings: tuple[str, ...]
    glyph: str = ""  # the operation as a sign that can be drawn in the image instead of being asked in words
    unit: str = ""  # what the gold answer carries after the number, where the benchmark writes units
    lowest: int = 0  # the smallest digit that may appear
    options: tuple[str, ...] = ()  # the fixed options of a question that is not answered by a number
    distinct: bool = False  # all digits differ, so that "the largest" is one place


@dataclass(frozen=True)
class DigitProblem:
    """One problem: the scans to draw, in reading order, and everything a benchmark row says about them."""

    kind: Kind
    scans: tuple[int, ...]
    readings: tuple[int, ...]
    wording: int
    steps: str
    answer: str

    @property
    def question(self) -> str:
        return self.kind.wordings[self.wording]

    @property
    def transcription(self) -> str:
        return " ".join(str(digit) for digit in self.readings)


def shortcut_response(answer: str) -> str:
    """A response that answers at a glance."""
    return f"The answer is \\boxed{{{answer}}}."


READING_PREFIX = "The image shows"


def grounded_response(problem: DigitProblem) -> str:
    """A response that first transcribes the image, then works the answer out."""
    read = problem.transcription
    if problem.kind.layout == "labelled":
        read = " ".join(f"{letter} {digit}" for letter, digit in zip(LETTERS, problem.readings, strict=True))
    return f"{READING_PREFIX} {read}. {problem.steps} The answer is \\boxed{{{problem.answer}}}."


def _sum(readings: tuple[int, ...]) -> tuple[str, str]:
    totals = list(accumulate(readings))
    steps = [f"{before}+{term}={after}" for before, term, after in zip(totals, readings[1:], totals[1:], strict=False)]
    return f"{', '.join(steps)}.", str(totals[-1])


def _product(readings: tuple[int, ...]) -> tuple[str, str]:
    a, b = readings
    return f"{a}×{b}={a * b}.", str(a * b)


def _range(readings: tuple[int, ...]) -> tuple[str, str]:
    high, low = max(readings), min(readings)
    return f"{high}-{low}={high - low}.", str(high - low)


def _extremes(readings: tuple[int, ...]) -> tuple[str, str]:
    high, low = max(readings), min(readings)
    return f"{high}+{low}={high + low}.", str(high + low)


def _around(readings: tuple[int, ...]) -> tuple[str, str]:
    half = sum(readings)
    return f"{readings[0]}+{readings[1]}={half}, {half}+{half}={2 * half}.", str(2 * half)


def _third_angle(readings: tuple[int, ...]) -> tuple[str, str]:
    a, b = (10 * reading for reading in readings)
    return f"{a}+{b}={a + b}, 180-{a + b}={180 - a - b}.", str(180 - a - b)


def _number_plus(readings: tuple[int, ...]) -> tuple[str, str]:
    number = 10 * readings[0] + readings[1]
    return f"{number}+{readings[2]}={number + readings[2]}.", str(number + readings[2])


def _share(parts: int, decimals: int) -> Solve:
    """The sum over `parts`, always written with the same number of decimal places."""

    def solve(readings: tuple[int, ...]) -> tuple[str, str]:
        a, b = readings
        answer = f"{(a + b) / parts:.{decimals}f}"
        return f"{a}+{b}={a + b}, {a + b}/{parts}={answer}.", answer

    return solve


def _ends(readings: tuple[int, ...]) -> tuple[str, str]:
    low, high = min(readings), max(readings)
    return f"{low}, {high}.", f"[{low}, {high}]"


def _above_nine(readings: tuple[int, ...]) -> tuple[str, str]:
    a, b = readings
    return f"{a}+{b}={a + b}.", "Yes" if a + b > 9 else "No"


def _place(end: Callable[[tuple[int, ...]], int]) -> Solve:
    return lambda readings: (f"{end(readings)}.", LETTERS[readings.index(end(readings))])


def pick(*places: int) -> Solve:
    """The sum over only some of the places; the others are on the image but not asked for."""
    return lambda readings: _sum(tuple(readings[place] for place in places))


# Each question, in ways that need no further words.
_WORDINGS: dict[str, list[str]] = json.loads(Path(__file__).with_name("wordings.json").read_text(encoding="utf-8"))


def _kind(name: str, layout: str, num_digits: int, solve: Solve, **rest: Any) -> Kind:
    return Kind(name, layout, num_digits, solve, tuple(_WORDINGS[name]), **rest)


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        _kind("sum", "row", 3, _sum, glyph="+"),
        _kind("product", "row", 2, _product, glyph="×", lowest=1),
        _kind("range", "row", 3, _range, glyph="-"),
        _kind("extremes", "row", 3, _extremes, glyph="m"),
        _kind("number_plus", "row", 3, _number_plus, lowest=1),
        _kind("rectangle_area", "rectangle", 2, _product, unit="cm²", lowest=1),
        _kind("rectangle_perimeter", "rectangle", 2, _around, unit="cm", lowest=1),
        _kind("triangle_perimeter", "triangle", 3, _sum, unit="cm", lowest=1),
        _kind("third_angle", "angles", 2, _third_angle, unit="°", lowest=1),
        _kind("mean", "row", 2, _share(2, 1)),
        _kind("quarter", "row", 2, _share(4, 2)),
        _kind("above_nine", "row", 2, _above_nine, options=("Yes", "No")),
        _kind("ends", "row", 3, _ends),
        _kind("largest_place", "labelled", 5, _place(max), options=tuple(LETTERS), distinct=True),
        _kind("smallest_place", "labelled", 5, _place(min), options=tuple(LETTERS), distinct=True),
        _kind("first_sum", "row", 3, pick(0, 1)),
        _kind("last_sum", "row", 3, pick(1, 2)),
        _kind("outer_sum", "row", 3, pick(0, 2)),
    )
}


def draw_problem(kind: Kind, split: Split, rng: np.random.Generator) -> DigitProblem:
    wording = int(rng.integers(len(kind.wordings)))
    readings = tuple(int(digit) for digit in rng.integers(kind.lowest, 10, size=kind.num_digits))
    while kind.distinct and len(set(readings)) < kind.num_digits:
        readings = tuple(int(digit) for digit in rng.integers(kind.lowest, 10, size=kind.num_digits))
    scans = tuple(int(rng.choice(scans_of(digit, split))) for digit in readings)
    steps, answer = kind.solve(readings)
    return DigitProblem(kind, scans, readings, wording, steps, answer)


def numeric_options(answer: str, count: int, rng: np.random.Generator) -> tuple[str, ...]:
    """`count` different numbers near the answer, the answer among them, in random order.

    The wrong ones are at most four off, so that a rough estimate of the answer is not enough.
    """
    value = int(answer)
    near = [value + offset for offset in range(-4, 5) if offset and value + offset >= 0]
    wrong = rng.choice(near, size=count - 1, replace=False)
    return tuple(str(option) for option in rng.permutation([value, *wrong]))
