"""A synthetic ChartMimic: charts of how often digits were counted, and the programs that draw them."""

from __future__ import annotations

import io
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from atrl_bench.mini.benchmarks.dataset import Row, SyntheticDataset

if TYPE_CHECKING:
    import numpy as np

KINDS = ("bar", "barh", "plot", "scatter")  # functions of matplotlib's axes that take the same arguments
COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b")
SIZE = (4.0, 3.0)  # inches
DPI = 56


class Style(NamedTuple):
    """What a chart looks like, whatever its data."""

    kind: str
    colour: str
    title: str


class Counts(NamedTuple):
    """The data of a chart: some digits, and how often each was counted."""

    digits: list[str]
    counts: list[int]


def _style(index: int, rng: np.random.Generator) -> Style:
    return Style(KINDS[index % len(KINDS)], str(rng.choice(COLOURS)), f"Digits of page {index + 1}")


def _counts(rng: np.random.Generator) -> Counts:
    digits = sorted(rng.choice(10, size=int(rng.integers(3, 7)), replace=False).tolist())
    return Counts([str(digit) for digit in digits], rng.integers(1, 10, size=len(digits)).tolist())


def program(style: Style, data: Counts, name: str) -> str:
    """The program that draws a chart; `picture` draws the same one here."""
    return f"""\
import matplotlib.pyplot as plt

{written(data)}

fig, ax = plt.subplots(figsize={SIZE})
ax.{style.kind}(digits, counts, color={style.colour!r})
ax.set_title({style.title!r})
ax.grid(True)
plt.savefig("{name}.png")
"""


def written(data: Counts) -> str:
    return f"digits = {data.digits}\ncounts = {data.counts}"


def picture(style: Style, data: Counts) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, dpi=DPI)
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    getattr(axes, style.kind)(data.digits, data.counts, color=style.colour)
    axes.set_title(style.title)
    axes.grid(True)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _rows(customized: bool, count: int, rng: np.random.Generator) -> list[Row]:
    rows = []
    for index in range(count):
        style, original = _style(index, rng), _counts(rng)
        wanted = _counts(rng) if customized else original
        name = f"{style.kind}_{index + 1}"
        rows.append(
            {
                "id": name,
                "chart_type": style.kind,
                "instruction": f"Draw these counts in the style of the image.\n{written(wanted)}" if customized else "",
                "width": SIZE[0],
                "height": SIZE[1],
                "figure": {"bytes": picture(style, original), "path": f"{name}.png"},
                "code": program(style, wanted, name),
            }
        )
    return rows


SYNTHETIC_BENCHMARKS = tuple(
    SyntheticDataset("chartmimic", f"{form}_600", partial(_rows, customized), label=f"chartmimic_{form}")
    for form, customized in (("direct", False), ("customized", True))
)
