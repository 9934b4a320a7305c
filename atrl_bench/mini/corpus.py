"""Everything the tiny model may be asked and may say: the text its tokenizer and its base training are made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from atrl_bench.mini.digits import Split
from atrl_bench.mini.problems import (
    KINDS,
    LETTERS,
    DigitProblem,
    draw_problem,
    grounded_response,
    numeric_options,
    shortcut_response,
)
from atrl_bench.models.templates import TEMPLATES, render, with_choices

if TYPE_CHECKING:
    import numpy as np

NO_CORRECT_ANSWER = "No correct answer"
DESCRIPTION = "The picture shows handwritten digits."
ASK_THE_PICTURE = "Find the value."  # all the words of a Vision Dominant row; the sign in the picture says the rest
PLAIN_FRACTION = 0.6  # share of training questions without a description, placeholder or unit around them
DESCRIBED_FRACTION = 0.5


@dataclass(frozen=True)
class Posed:
    """A problem as a benchmark row puts it: its stem, its options, and what the picture holds beside the digits."""

    problem: DigitProblem
    stem: str
    answer: str  # the gold answer: a value, or the letter of an option
    options: tuple[str, ...] = ()
    with_glyph: bool = False

    @property
    def question(self) -> str:
        """What the model is asked, before a template."""
        return with_choices(self.stem, self.options) if self.options else self.stem

    def response(self, grounded: bool) -> str:
        """The response to imitate: a letter at a glance, or a chain that ends in the value it works out.

        Looking up which letter a value has is a skill of its own that a model of this size takes long to learn; graders
        accept the text of the right option as they accept its letter.
        """
        return grounded_response(self.problem) if grounded else shortcut_response(self.answer)


def pose(problem: DigitProblem, style: str, rng: np.random.Generator) -> Posed:
    """The problem in one of the benchmarks' styles.

    `open`: the answer itself; `five`, `four`: lettered options; `wemath`: four, and "No correct answer";
    `sign`, `sign_four`: the operation is a sign in the picture, nothing is asked in words (MathVerse's Vision Only).
    """
    in_picture = style.startswith("sign")
    stem = "" if in_picture else problem.question
    if style in ("open", "sign"):
        return Posed(problem, stem, problem.answer, with_glyph=in_picture)
    options = problem.kind.options or numeric_options(problem.answer, 5 if style == "five" else 4, rng)
    letter = LETTERS[options.index(problem.answer)]
    return Posed(problem, stem, letter, (*options, NO_CORRECT_ANSWER) if style == "wemath" else options, in_picture)


# In which styles the benchmarks pose each kind; all others are asked openly.
SIGN_STYLES = ("open", "five", "four", "wemath", "sign", "sign_four")
STYLES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("sum", "product", "range", "extremes"), SIGN_STYLES),
    **dict.fromkeys(("first_sum", "last_sum", "outer_sum"), ("open", "wemath")),
    "number_plus": ("open", "five"),
    "above_nine": ("open", "options"),
    "largest_place": ("options",),
    "smallest_place": ("options",),
}


def draw_posed(split: Split, rng: np.random.Generator, *, lettered: bool = True) -> Posed:
    """A random problem in a random style; without `lettered`, none whose gold is the letter of a value."""
    kind = list(KINDS.values())[int(rng.integers(len(KINDS)))]
    styles = STYLES.get(kind.name, ("open",))
    if not lettered:
        styles = tuple(style for style in styles if style in ("open", "sign")) or styles
    # Half of the problems are asked openly where that is a style: the shortest prompt teaches the same skill.
    style = styles[0] if rng.random() < 0.5 else styles[int(rng.integers(len(styles)))]
    posed = pose(draw_problem(kind, split, rng), style, rng)
    if rng.random() < PLAIN_FRACTION:
        return posed
    if not posed.stem:
        return replace(posed, stem=ASK_THE_PICTURE)
    if kind.unit:
        return replace(posed, stem=with_unit(posed))
    return replace(posed, stem=described(posed) if rng.random() < DESCRIBED_FRACTION else with_placeholder(posed))


def described(posed: Posed) -> str:
    """The stem after a sentence about the picture, as in MathVerse's Text Dominant rows."""
    return f"{DESCRIPTION} {posed.stem}"


def with_placeholder(posed: Posed) -> str:
    """The stem with the mark that MathVision leaves where an image was."""
    return f"{posed.stem}\n<image1>"


def with_unit(posed: Posed) -> str:
    """The stem with the unit that MathVista asks for, as the task writes it."""
    return f"{posed.stem} (Unit: {posed.problem.kind.unit})"


def corpus(num_problems: int = 2000, seed: int = 0) -> Iterator[str]:
    """Texts that hold every word the tokenizer should keep whole."""
    import numpy as np

    rng = np.random.default_rng(seed)
    for _ in range(num_problems):
        posed = draw_posed("train", rng)
        yield from (render(posed.question, template) for template in range(len(TEMPLATES)))
        yield grounded_response(posed.problem)
        yield shortcut_response(posed.answer)
