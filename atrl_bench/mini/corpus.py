"""Everything the tiny model may be asked and may say: the text its tokenizer and its base training are made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Posed:
    """A problem as it is put to the model: its text, what the picture holds beside the digits, the answer in a box."""

    problem: Problem
    question: str
    answer: str
    with_glyph: bool = False

    def response(self, grounded: bool) -> str:
        """Return the response to imitate."""
        return grounded_response(self.problem, self.answer) if grounded else shortcut_response(self.answer)


def verse_choices(question: str, options: tuple[str, ...]) -> str:
    """Return a question with its choices inside, as MathVerse writes them."""
    return "\n".join(
        [question, "Choices:", *(f"{letter}:{option}" for letter, option in zip(LETTERS, options, strict=False))]
    ).strip()


def pose(problem: Problem, style: str, rng: np.random.Generator) -> Posed:
    """Return the problem in one of the benchmarks' styles.

    `open`: the answer itself; `choices`: five lettered options; `four`: four and "No correct answer", as WeMath;
    `verse`: MathVerse's own choices; `glyph`, `glyph_verse`: the operation is drawn, nothing is asked in words.
    """
    if problem.kind.options:
        options = problem.kind.options
        letter = problem.answer if problem.answer in LETTERS else LETTERS[options.index(problem.answer)]
        return Posed(problem, with_choices(problem.question, options), letter)
    question = "" if style.startswith("glyph") else problem.question
    with_glyph = style.startswith("glyph")
    if style in ("open", "glyph"):
        return Posed(problem, question, problem.answer, with_glyph)
    if style == "choices":
        options = numeric_options(problem.answer, 5, rng)
        text = with_choices(question, options)
    elif style == "four":
        options = numeric_options(problem.answer, 4, rng)
        text = with_choices(question, [*options, NO_CORRECT_ANSWER])
    else:
        options = numeric_options(problem.answer, 4, rng)
        text = verse_choices(question, options)
    return Posed(problem, text, LETTERS[options.index(problem.answer)], with_glyph)


# How each kind may be posed; a kind that is posed in several styles is drawn more often, one share a style.
STYLES: dict[str, tuple[str, ...]] = {
    "sum": ("open", "choices", "verse", "glyph", "glyph_verse"),
    "product": ("open", "choices", "verse", "glyph", "glyph_verse"),
    "range": ("open", "choices", "verse", "glyph", "glyph_verse"),
    "extremes": ("open", "choices", "verse", "glyph", "glyph_verse"),
    "number_plus": ("open", "choices"),
    "top_sum": ("four",),
    "bottom_sum": ("four",),
    "grid_sum": ("four",),
    "first_sum": ("four",),
    "last_sum": ("four",),
    "outer_sum": ("four",),
}


def shares() -> list[tuple[str, str]]:
    """Return every pair of kind and style."""
    return [(name, style) for name in KINDS for style in STYLES.get(name, ("open",))]


def draw_posed(split: Split, rng: np.random.Generator) -> Posed:
    """Return a random problem in a random style."""
    pairs = shares()
    name, style = pairs[int(rng.integers(len(pairs)))]
    return pose(draw_problem(KINDS[name], split, rng), style, rng)


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
