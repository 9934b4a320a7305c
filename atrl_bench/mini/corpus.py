"""Everything the tiny model may be asked and may say: the text its tokenizer and its base training are made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from atrl_bench.evaluation.prompts import TEMPLATES, render, with_choices
from atrl_bench.mini.digits import Split
from atrl_bench.mini.problems import (
    KINDS,
    LETTERS,
    Problem,
    draw_problem,
    grounded_response,
    numeric_options,
    shortcut_response,
)

NO_CORRECT_ANSWER = "No correct answer"
DESCRIPTION = "The picture shows handwritten digits."
ASK_THE_PICTURE = "Find the value."  # all the words of a Vision Dominant row; the sign in the picture says the rest
PLAIN_FRACTION = 0.6  # share of training questions without a description, placeholder or unit around them
DESCRIBED_FRACTION = 0.5


@dataclass(frozen=True)
class Posed:
    """A problem as a benchmark row puts it: its stem, its options, and what the picture holds beside the digits."""

    problem: Problem
    stem: str
    answer: str  # what belongs in the box: a value, or a letter
    options: tuple[str, ...] = ()
    with_glyph: bool = False

    @property
    def question(self) -> str:
        """The text put to the model, before a template."""
        return with_choices(self.stem, self.options) if self.options else self.stem

    def response(self, grounded: bool) -> str:
        """Return the response to imitate."""
        return grounded_response(self.problem, self.answer) if grounded else shortcut_response(self.answer)


def pose(problem: Problem, style: str, rng: np.random.Generator) -> Posed:
    """Return the problem in one of the benchmarks' styles.

    `open`: the answer itself; `five`, `four`: lettered options; `wemath`: four, and "No correct answer";
    `sign`, `sign_four`: the operation is a sign in the picture, nothing is asked in words (MathVerse's Vision Only).
    """
    options = problem.kind.options
    if options:
        letter = problem.answer if problem.answer in options else ""
        return Posed(problem, problem.question, LETTERS[options.index(letter or problem.answer)], options)
    in_picture = style.startswith("sign")
    stem = "" if in_picture else problem.question
    if style in ("open", "sign"):
        return Posed(problem, stem, problem.answer, with_glyph=in_picture)
    options = numeric_options(problem.answer, 5 if style == "five" else 4, rng)
    letter = LETTERS[options.index(problem.answer)]
    return Posed(problem, stem, letter, (*options, NO_CORRECT_ANSWER) if style == "wemath" else options, in_picture)


# How each kind may be posed; a kind that is posed in several styles is drawn more often, one share a style.
STYLES: dict[str, tuple[str, ...]] = {
    "sum": ("open", "five", "four", "wemath", "sign", "sign_four"),
    "product": ("open", "five", "four", "sign", "sign_four"),
    "range": ("open", "five", "four", "sign", "sign_four"),
    "extremes": ("open", "five", "four", "sign", "sign_four"),
    "number_plus": ("open", "five"),
    "top_sum": ("wemath",),
    "bottom_sum": ("wemath",),
    "grid_sum": ("wemath",),
    "first_sum": ("wemath",),
    "last_sum": ("wemath",),
    "outer_sum": ("wemath",),
}


def shares() -> list[tuple[str, str]]:
    """Return every pair of kind and style."""
    return [(name, style) for name in KINDS for style in STYLES.get(name, ("open",))]


def draw_posed(split: Split, rng: np.random.Generator) -> Posed:
    """Return a random problem in a random style."""
    pairs = shares()
    name, style = pairs[int(rng.integers(len(pairs)))]
    posed = pose(draw_problem(KINDS[name], split, rng), style, rng)
    if rng.random() < PLAIN_FRACTION:
        return posed
    if not posed.stem:
        return replace(posed, stem=ASK_THE_PICTURE)
    if posed.problem.kind.unit:
        return replace(posed, stem=with_unit(posed))
    return replace(posed, stem=described(posed) if rng.random() < DESCRIBED_FRACTION else with_placeholder(posed))


def described(posed: Posed) -> str:
    """Return the stem after a sentence about the picture, as in MathVerse's Text Dominant rows."""
    return f"{DESCRIPTION} {posed.stem}"


def with_placeholder(posed: Posed) -> str:
    """Return the stem with the mark that MathVision leaves where an image was."""
    return f"{posed.stem}\n<image1>"


def with_unit(posed: Posed) -> str:
    """Return the stem with the unit that MathVista asks for, as the task writes it."""
    return f"{posed.stem} (Unit: {posed.problem.kind.unit})"


def prompt_texts(posed: Posed) -> list[str]:
    """Return the user turn in each of the three templates."""
    return [render(posed.question, template) for template in range(len(TEMPLATES))]


def corpus(num_problems: int = 2000, seed: int = 0) -> Iterator[str]:
    """Yield texts that hold every word the tokenizer should keep whole."""
    rng = np.random.default_rng(seed)
    for _ in range(num_problems):
        posed = draw_posed("train", rng)
        yield from prompt_texts(posed)
        yield posed.response(grounded=True)
        yield posed.response(grounded=False)
