"""The tokens that get the most and the least credit: two word clouds, each with a table of its first tokens.

The size says how far a token's mean credit is from one, which is what every token gets without AT-RL. `wordcloud` lays
the words out, with a fixed seed; matplotlib draws them, as text that can be read, searched and shown in two themes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from atrl_bench.report.drawing import BLUE, LINE, ORANGE, SOFT, FigureContent, hide_axes, new_figure, shortened
from atrl_bench.report.figures.sources import Source, Word, answers, words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NUM_WORDS = 40  # in a cloud; the CSV has all
NUM_LISTED = 8
MIN_SHARE = 0.001  # of all tokens: a rarer one says little
WIDTH, HEIGHT = 340, 195  # of a cloud, in points: as large as its panel is drawn, so that letters are as laid out
SMALLEST, LARGEST = 7, 34  # points
SEED = 0
# The columns of a table: where each stands, and on which side of that.
HEADS = (
    ("token", 0.02, "left"),
    ("mean credit", 0.55, "right"),
    ("mean connectivity", 0.85, "right"),
    ("count", 1.0, "right"),
)


@dataclass(frozen=True)
class PlacedWord:
    """A word with the left end of its baseline, in points from the upper left corner of the cloud, and its size."""

    word: Word
    x: float
    baseline: float
    size: int


def make(source: Source) -> FigureContent:
    read = answers(source)
    credits = list(read.credit.values())
    num_tokens = sum(len(credit.texts) for credit in credits)
    return picture(words(credits, max(3, math.ceil(MIN_SHARE * num_tokens))), read.label)


def picture(ranked: Sequence[Word], label: str) -> FigureContent:
    half = min(NUM_WORDS, len(ranked) // 2) or 1
    sides = {"highest": ranked[:half], "lowest": ranked[::-1][:half]}
    figure, panels = new_figure(10.2, 6.3, nrows=2, ncols=2, height_ratios=[1.05, 1])
    for column, (side, colour) in enumerate(zip(sides, (ORANGE, BLUE), strict=True)):
        _cloud(panels[0][column], laid_out(sides[side]), colour)
        panels[0][column].set_title(f"{side.capitalize()} mean credit")
        _table(panels[1][column], sides[side][:NUM_LISTED])
    figure.suptitle(f"Measured: {shortened(label)}; only tokens written often enough", fontsize=10, color=SOFT)
    rows = [{"rank": rank} | asdict(word) for rank, word in enumerate(ranked, start=1)]
    highest, lowest = (
        ", ".join(f"{word.token} ({word.mean_credit:.2f})" for word in of_side[:NUM_LISTED])
        for of_side in sides.values()
    )
    description = (
        f"Two word clouds of the tokens of {shortened(label)} with a table under each. Highest mean credit: {highest}. "
        f"Lowest: {lowest}. A credit of one is what a token gets without AT-RL."
    )
    return FigureContent("Tokens with the highest and the lowest credit", description, figure, rows)


def laid_out(ranked: Sequence[Word]) -> list[PlacedWord]:
    """The words of a cloud, the most extreme ones first and largest; what no room is left for is left out."""
    from matplotlib import get_data_path
    from PIL import ImageFont
    from wordcloud import WordCloud

    font = f"{get_data_path()}/fonts/ttf/DejaVuSans.ttf"
    distances = [abs(math.log(max(word.mean_credit, 1e-3))) for word in ranked]
    widest = max(distances) or 1.0
    sizes = {"min_font_size": SMALLEST, "max_font_size": LARGEST, "margin": 4}
    cloud = WordCloud(font, WIDTH, HEIGHT, prefer_horizontal=1.0, random_state=SEED, **sizes)
    cloud.generate_from_frequencies(
        # A size has to be more than nothing, also for a word whose credit is that of every token.
        {word.token: max(distance / widest, 0.05) for word, distance in zip(ranked, distances, strict=True)}
    )
    of_token, placed = {word.token: word for word in ranked}, []
    for (token, _), size, (top, left), *_ in cloud.layout_:
        # It measures a word from the corner of its ink; matplotlib writes from the baseline.
        right_of, above, *_ = ImageFont.truetype(font, size).getbbox(token, anchor="ls")
        placed.append(PlacedWord(of_token[token], left - right_of, top - above, size))
    return placed


def _cloud(panel: Axes, placed: Sequence[PlacedWord], colour: str) -> None:
    panel.set(xlim=(0, WIDTH), ylim=(HEIGHT, 0))
    hide_axes(panel)
    for one in placed:
        panel.text(one.x, one.baseline, one.word.token, fontsize=one.size, color=colour, va="baseline")


def _table(panel: Axes, listed: Sequence[Word]) -> None:
    panel.set(xlim=(0, 1), ylim=(NUM_LISTED + 0.5, -0.9))
    hide_axes(panel)
    for head, x, side in HEADS:
        panel.text(x, -0.35, head, ha=side, va="center", color=SOFT, fontsize=9)
    panel.plot([0, 1], [0.1, 0.1], color=LINE, linewidth=1)
    for index, word in enumerate(listed, start=1):
        fields = (word.token, f"{word.mean_credit:.3f}", f"{word.mean_connectivity:.3f}", f"{word.count:,}")
        for field, (_, x, side) in zip(fields, HEADS, strict=True):
            panel.text(x, index - 0.25, field, ha=side, va="center", fontsize=9.5)
