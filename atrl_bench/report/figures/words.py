"""The tokens that get the most and the least credit: two word clouds, each with a table of its first tokens.

The layout is our own: words from the largest to the smallest, each at the first free place along a spiral, without a
random number. The size says how far a token's mean credit is from one, which is what every token gets without AT-RL.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from atrl_bench.report.figures.drawing import BLUE, LINE, ORANGE, SOFT, FigureContent, bare, plain, sheet
from atrl_bench.report.figures.sources import Source
from atrl_bench.report.figures.tokens import Word, answers, words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NUM_WORDS = 40  # in a cloud; the CSV has all
NUM_LISTED = 8
MIN_SHARE = 0.001  # of all tokens: a rarer one says little
SMALLEST, LARGEST = 9.0, 26.0  # points, before a cloud is zoomed to what fits
LARGEST_ZOOM, NUM_ZOOMS = 1.7, 9
WIDTH, HEIGHT = 350.0, 200.0  # of a cloud, in points
# The columns of a table: where each stands, and on which side of that.
HEADS = (
    ("token", 0.02, "left"),
    ("mean credit", 0.55, "right"),
    ("mean connectivity", 0.85, "right"),
    ("count", 1.0, "right"),
)


@dataclass(frozen=True)
class WordBox:
    """A word with the middle of its place in points from the cloud's, and its size."""

    word: Word
    x: float
    y: float
    size: float


def make(source: Source) -> FigureContent:
    """Return the figure of the tokens of one model's answers."""
    read = answers(source)
    credits = list(read.credit.values())
    num_tokens = sum(len(credit.texts) for credit in credits)
    return picture(words(credits, max(3, math.ceil(MIN_SHARE * num_tokens))), read.label)


def picture(ranked: Sequence[Word], label: str) -> FigureContent:
    """Return the figure of these words, the most credited first."""
    half = min(NUM_WORDS, len(ranked) // 2) or 1
    sides = {"highest": ranked[:half], "lowest": ranked[::-1][:half]}
    figure, panels = sheet(10.2, 6.3, nrows=2, ncols=2, height_ratios=[HEIGHT, 190])
    for column, (side, colour) in enumerate(zip(sides, (ORANGE, BLUE), strict=True)):
        _cloud(panels[0][column], layout(sides[side]), colour)
        panels[0][column].set_title(f"{side.capitalize()} mean credit")
        _table(panels[1][column], sides[side][:NUM_LISTED])
    figure.suptitle(f"Measured: {plain(label)}; only tokens written often enough", fontsize=10, color=SOFT)
    rows = [{"rank": rank} | asdict(word) for rank, word in enumerate(ranked, start=1)]
    highest, lowest = (
        ", ".join(f"{word.token} ({word.mean_credit:.2f})" for word in of_side[:NUM_LISTED])
        for of_side in sides.values()
    )
    description = (
        f"Two word clouds of the tokens of {plain(label)} with a table under each. Highest mean credit: {highest}. "
        f"Lowest: {lowest}. A credit of one is what a token gets without AT-RL."
    )
    return FigureContent("Tokens with the highest and the lowest credit", description, figure, rows)


def layout(ranked: Sequence[Word]) -> list[WordBox]:
    """Return the words as large as all of them fit, the most extreme ones first and largest.

    The same words get the same places. Only where not even the smallest letters let all fit, the last are left out.
    """
    placements: list[WordBox] = []
    for step in range(NUM_ZOOMS):
        placements = _layout_at(ranked, LARGEST_ZOOM * 0.88**step)
        if len(placements) == len(ranked):
            break
    return placements


def _layout_at(ranked: Sequence[Word], zoom: float) -> list[WordBox]:
    distances = [abs(math.log(max(word.mean_credit, 1e-3))) for word in ranked]
    widest = max(distances, default=0.0) or 1.0
    taken: list[tuple[float, float, float, float]] = []
    placements = []
    for word, distance in zip(ranked, distances, strict=True):
        size = zoom * (SMALLEST + (LARGEST - SMALLEST) * distance / widest)
        width, height = text_width(word.token, size) + 8, 1.25 * size
        index = _first_free(width, height, taken)
        if index is not None:
            taken.append((*index, width, height))
            placements.append(WordBox(word, *index, size))
    return placements


def text_width(text: str, size: float) -> float:
    """Return the width of a text in points, as measured with the font that matplotlib brings along."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    return float(TextPath((0, 0), text, size=size, prop=FontProperties(family="DejaVu Sans")).get_extents().width)


def _first_free(
    width: float, height: float, taken: Sequence[tuple[float, float, float, float]]
) -> tuple[float, float] | None:
    """Return the first middle along an outward spiral where a box overlaps none of `taken` and nothing sticks out."""
    turn = 0.0
    while (radius := 1.6 * turn) < WIDTH / 2:
        x, y = radius * math.cos(turn), radius * HEIGHT / WIDTH * math.sin(turn)
        inside = abs(x) + width / 2 <= WIDTH / 2 and abs(y) + height / 2 <= HEIGHT / 2
        if inside and not any(
            abs(x - other_x) < (width + other_width) / 2 and abs(y - other_y) < (height + other_height) / 2
            for other_x, other_y, other_width, other_height in taken
        ):
            return x, y
        turn += 0.09
    return None


def _cloud(panel: Axes, placements: Sequence[WordBox], colour: str) -> None:
    panel.set(xlim=(-WIDTH / 2, WIDTH / 2), ylim=(-HEIGHT / 2, HEIGHT / 2))
    bare(panel)
    for one in placements:
        panel.text(one.x, one.y, one.word.token, fontsize=one.size, color=colour, ha="center", va="center_baseline")


def _table(panel: Axes, listed: Sequence[Word]) -> None:
    panel.set(xlim=(0, 1), ylim=(NUM_LISTED + 0.5, -0.9))
    bare(panel)
    for head, x, side in HEADS:
        panel.text(x, -0.35, head, ha=side, va="center", color=SOFT, fontsize=9)
    panel.plot([0, 1], [0.1, 0.1], color=LINE, linewidth=1)
    for index, word in enumerate(listed, start=1):
        fields = (word.token, f"{word.mean_credit:.3f}", f"{word.mean_connectivity:.3f}", f"{word.count:,}")
        for field, (_, x, side) in zip(fields, HEADS, strict=True):
            panel.text(x, index - 0.25, field, ha=side, va="center", fontsize=9.5)
