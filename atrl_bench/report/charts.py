"""The figures of a table: what its credit changes, and the grids that are drawn.

The first is what a table and the front page open with: a line for each pair of rows that differ in their credit alone.
A dot is a training seed, the bar the 95 % interval, the grey ground the true differences that these problems and seeds
would miss more than once in five tries. The paper's claims stand in a panel of their own, hollow: they were not
measured here.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from atrl_bench.escape import one_line
from atrl_bench.experiments.definition import file_stem
from atrl_bench.report.differences import anchor_contrasts, answer_of, contrasts, in_words
from atrl_bench.report.drawing import (
    GREEN,
    GREY,
    INK,
    PAGE,
    RED,
    SOFT,
    FigureContent,
    figure_style,
    mark_published,
    new_figure,
    shortened,
    svg,
)
from atrl_bench.report.drawing import LINE as RULE
from atrl_bench.report.table_model import Comparison, Grid, GridCell, Table
from atrl_bench.results import numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"gain": GREEN, "loss": RED, "up": GREEN, "down": RED}  # of what is clear; everything else is in ink
# Of the figure of an answer, in points. It is as wide as a telephone shows it: the names and the numbers of a line
# stand above its bar.
WIDTH, MARGIN, CLAIMS = 340.0, 14.0, 96.0  # all of it, beside it, and the paper's panel with its numbers
LINE, BAR, ABOVE = 12.5, 12.0, 16.0  # a line of text; from the middle of a bar to the axis, and to the numbers above


@dataclass(frozen=True)
class Drawing:
    """A drawn figure: the name of its file, what is in it, and what it shows for those who do not see it."""

    file: str
    svg: str
    description: str


def draw(table: Table) -> dict[str, Drawing]:
    """The figures of a table by what they show: `answer`, `anchors`, `grid 1` and so on.

    `anchors` is the answer without the rules that put no credit on anchors, where a table has such: the front page asks
    about the others.
    """
    made: dict[str, FigureContent] = {}
    with figure_style():
        items, of_anchors = contrasts(table), anchor_contrasts(table)
        if items:
            made["answer"] = answer_figure(table, items)
        if 0 < len(of_anchors) < len(items):
            made["anchors"] = answer_figure(table, of_anchors)
        for number, grid in enumerate(table.grids, start=1):
            if grid.is_drawn and any(math.isfinite(cell.value) for _, cells in grid.rows for cell in cells):
                made[f"grid {number}"] = grid_figure(table, grid)
        drawings: dict[str, Drawing] = {}
        for name, figure in made.items():
            # The first is the table's own; the others are called by what they show.
            stem = file_stem(table.id)
            file = f"{stem}_{name.replace(' ', '')}" if drawings else stem
            drawings[name] = Drawing(f"{file}.svg", svg(figure, "figure"), figure.description)
    return drawings


# What credit changes --------------------------------------------------------------------------------------------------


def answer_figure(table: Table, items: Sequence[Comparison]) -> FigureContent:
    from matplotlib.figure import Figure

    answer = answer_of(items)
    assert answer is not None
    claims = [100 * item.claimed for item in items if item.claimed is not None]
    legend = "Diamond: mean. Dots: training seeds. Bar: 95 % interval. Grey: missed more than once in five tries."
    legend += " Hollow: printed in the paper, not measured here." if claims else ""
    about = f"{shortened(table.profile_title)}: points that token credit adds, on the mean of the benchmarks"
    title, about_lines, legend_lines = _wrapped(answer.badge, 40), _wrapped(about, 62), _wrapped(legend, 66)
    names = [[*_wrapped(item.row, 44), *_wrapped(f"− {item.other}", 48)] for item in items]
    pitch = BAR + ABOVE + LINE * max(map(len, names)) + 9
    top, bottom = 17.0 * len(title) + LINE * len(about_lines) + 33, LINE * len(legend_lines) + 26
    height = top + pitch * len(items) + bottom
    figure = Figure(figsize=(WIDTH / 72, height / 72))

    def panel_at(left: float, width: float, title: str, values: Sequence[float]) -> Axes:
        panel = figure.add_axes((left / WIDTH, bottom / height, width / WIDTH, pitch * len(items) / height))
        panel.set(ylim=(len(items) - 1 + BAR / pitch, BAR / pitch - 1), yticks=[])
        panel.spines["left"].set_visible(False)
        _scale(panel, values, max(2, int(width // 36)))
        panel.grid(visible=False)
        for y in range(len(items)):  # beside its bar alone: above are its words
            ends = y - 0.8 * BAR / pitch, y + BAR / pitch
            panel.vlines(panel.get_xticks(), *ends, color=RULE, linewidth=0.8, zorder=0.5)
            panel.vlines(0, *ends, color=SOFT, linewidth=1.2, zorder=0.6)
        panel.set_title(title, fontsize=9, color=SOFT, pad=5)
        return panel

    whose = "" if table.is_comparable else f"{shortened(table.profile)}: "
    width = WIDTH - 2 * MARGIN - (CLAIMS if claims else 0)
    panel = panel_at(MARGIN, width, f"{whose}points, measured here", [100 * v for item in items for v in _ends(item)])
    for y, item in enumerate(items):
        num_bold = len(_wrapped(item.row, 44))
        for line, text in enumerate(names[y]):
            style: dict[str, Any] = {"fontweight": "bold"} if line < num_bold else {"color": SOFT}
            _write(panel, y, 0, ABOVE + LINE * (len(names[y]) - line), text, fontsize=9, **style)
        _draw_comparison(panel, y, item, 15 / pitch)
    if claims:
        paper = panel_at(WIDTH - CLAIMS + 8, 0.5 * CLAIMS, "", claims)
        mark_published(paper, "")
        paper.set_title("paper’s claim", fontsize=9, color=SOFT, pad=5)
        hollow: dict[str, Any] = {"markerfacecolor": "none", "markeredgecolor": SOFT, "markeredgewidth": 1.5}
        for y, item in enumerate(items):
            if item.claimed is not None:
                paper.plot(100 * item.claimed, y, "o", **hollow)
                _write(paper, y, 4, 0, numbers.signed(item.claimed), start=1, color=SOFT, fontsize=9)
    for line, text in enumerate(title):
        figure.text(MARGIN / WIDTH, 1 - (18 + 17 * line) / height, text, fontsize=12, fontweight="bold")
    for line, text in enumerate(about_lines):
        above = 17 * len(title) + LINE * (line + 1) + 3
        figure.text(MARGIN / WIDTH, 1 - above / height, text, fontsize=9, color=SOFT)
    for line, text in enumerate(reversed(legend_lines)):
        figure.text(MARGIN / WIDTH, (5 + LINE * line) / height, text, fontsize=8.5, color=SOFT)
    named = f"{table.title}, {'' if table.is_comparable else f'profile {table.profile}, '}credit minus no credit"
    return FigureContent(named, in_words(items), figure)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(one_line(text), width) or [""]


def _ends(item: Comparison) -> list[float]:
    grey = [] if item.detectable is None else [-item.detectable, item.detectable]
    return [value for value in (*item.interval, *item.by_seed, *grey, 0.0) if not math.isnan(value)]


def _scale(panel: Axes, values: Sequence[float], most: int) -> None:
    from matplotlib.ticker import MaxNLocator

    ticks = MaxNLocator(most, steps=[1, 2, 5, 10]).tick_values(min([*values, 0.0]), max([*values, 0.0]))
    digits = 1 if ticks[1] - ticks[0] < 1 else 0
    panel.set_xticks(ticks, [numbers.signed(tick / 100, digits) for tick in ticks], fontsize=9)
    panel.set_xlim(ticks[0], ticks[-1])


def _draw_comparison(panel: Axes, y: int, item: Comparison, height: float) -> None:
    left, right = panel.get_xlim()
    # One seed says nothing of what another would give: all of the axis is what cannot be told.
    grey = (left, right) if item.detectable is None else (-100 * item.detectable, 100 * item.detectable)
    low, high = (100 * end for end in item.interval)
    colour = COLOURS.get(item.outcome, INK)
    panel.barh(y, grey[1] - grey[0], left=grey[0], height=height, color=GREY, zorder=0.4)
    panel.plot((left, right) if math.isnan(low) else (low, high), (y, y), color=colour)
    seeds: dict[str, Any] = {"linestyle": "none", "markersize": 4.5, "markerfacecolor": PAGE, "markeredgecolor": INK}
    panel.plot([100 * value for value in item.by_seed], [y + 0.3 * height] * len(item.by_seed), "o", **seeds)
    panel.plot(100 * item.estimate.mean, y, "D", color=colour, markersize=6)
    value = numbers.signed(item.estimate.mean)
    _write(panel, y, 0, ABOVE, value, color=colour, fontweight="bold", fontsize=9.5)
    ends = f"({numbers.signed(item.interval[0])} to {numbers.signed(item.interval[1])})"
    scores = " − ".join(numbers.percent(score) for score in item.scores or ())
    outcome = f": {item.outcome}" if item.is_clear else ""
    _write(panel, y, 6 + 6.5 * max(len(value), 4), ABOVE, f"{ends}; {scores}{outcome}", color=SOFT, fontsize=8.5)


def _write(panel: Axes, y: float, right: float, above: float, text: str, *, start: int = 0, **style: Any) -> None:
    """Write beside a line of a panel, so many points right of its left end, or of its right end: `start` 1."""
    at: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center"}
    panel.annotate(text, (start, y), (right, above), annotation_clip=False, **at, **style)


# Numbers with their intervals -----------------------------------------------------------------------------------------


NamedCells = Sequence[tuple[str, GridCell]]


def grid_figure(table: Table, grid: Grid) -> FigureContent:
    by_column = {
        title: [(name, cells[number]) for name, cells in grid.rows if math.isfinite(cells[number].value)]
        for number, title in enumerate(grid.columns)
    }
    columns: dict[str, NamedCells] = {title: cells for title, cells in by_column.items() if cells}
    # The figure's title says the profile.
    names = {name: _wrapped(shortened(name.removeprefix(f"{table.profile}: "), 72), 38) for name, _ in grid.rows}
    pitch = 0.4 + LINE / 72 * (max(map(len, names.values())) - 1)
    heights = [0.56 + pitch * (len(cells) + 0.2) for cells in columns.values()]
    figure, panels = new_figure(
        WIDTH / 72, 0.5 + sum(heights), nrows=len(columns), sharex=True, squeeze=False, height_ratios=heights
    )
    if grid.is_ratio:
        panels[0][0].set_xscale("log", base=2)
        panels[0][0].xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    # What has no end reaches to the end of the axis, which is where the numbers that are there end.
    ends = [end for cells in columns.values() for _, cell in cells for end in (cell.low, cell.value, cell.high)]
    known = [end for end in ends if math.isfinite(end)]
    known = [min(max(end, 1 / 16), 16.0) for end in known] if grid.is_ratio else known
    low, high = (of([*known, *([] if grid.neutral is None else [grid.neutral])]) for of in (min, max))
    margin = 1.15 if grid.is_ratio else 0.04 * (high - low or 1)
    limits = (low / margin, high * margin) if grid.is_ratio else (low - margin, high + margin)
    for [panel], (title, cells) in zip(panels, columns.items(), strict=True):
        panel.set_xlim(*limits)
        _draw_cells(panel, [(names[name], cell) for name, cell in cells])
        if grid.neutral is not None:
            panel.axvline(grid.neutral, color=SOFT, linewidth=1.2)
        panel.set_title(shortened(title), fontsize=9.5, fontstyle="italic")
        panel.tick_params(labelbottom=True)
    figure.suptitle(f"{shortened(grid.title, 40)}, profile {shortened(table.profile)}", fontsize=10, color=INK)
    described = " ".join(f"{title}: {_described(cells)}." for title, cells in columns.items())
    description = f"{table.says} {grid.title} of each row with its 95 % interval. {described}".strip()
    return FigureContent(f"{table.title}, profile {table.profile}", description, figure)


def _draw_cells(panel: Axes, cells: Sequence[tuple[Sequence[str], GridCell]]) -> None:
    panel.set(ylim=(len(cells) - 0.6, -0.8), yticks=[])
    right = panel.get_xlim()[1]
    for y, (lines, cell) in enumerate(cells):
        low = cell.low if math.isfinite(cell.low) else cell.value
        high = cell.high if math.isfinite(cell.high) else right if math.isfinite(cell.low) else cell.value
        colour = COLOURS.get(cell.verdict, INK)
        panel.plot((low, high), (y, y), color=colour)
        panel.plot(cell.value, y, "o", color=colour, markeredgecolor=PAGE)
        for line, text in enumerate(reversed(lines)):
            _write(panel, y, 0, 10 + LINE * line, text, fontsize=9)
        _write(panel, y, 0, 10, shortened(cell.marked, 26), start=1, ha="right", fontsize=9, color=colour)


def _described(cells: NamedCells) -> str:
    return "; ".join(f"{name} {cell.marked}" for name, cell in cells)
