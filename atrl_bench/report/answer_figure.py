"""The figure that a table and the front page open with: what credit changes, how certainly, and what the paper claims.

A line for each pair of rows that differ in their credit alone. A dot is a training seed, the bar the 95 % interval, the
grey ground what these problems and seeds could not have told from zero. The paper's claims stand on an axis of their
own, hollow: they were not measured here.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from atrl_bench.report.contrasts import Contrast, answer_of, contrasts
from atrl_bench.report.page import html_environment, svg_style
from atrl_bench.report.table_model import Table
from atrl_bench.results import numbers

WIDTH, NAMES, VALUES = 900.0, 262.0, 178.0  # of the whole, of the labels on the left, of the numbers beside an axis
CLAIMS = 180.0  # of the paper's panel, its numbers included
TOP, LINE_HEIGHT, MIN_PITCH = 34.0, 16.0, 38.0
MAX_NAME = 38  # characters of a label in one line
STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)  # points between two ticks


@dataclass(frozen=True)
class Axis:
    """A scale of percentage points between two places of the drawing."""

    left: float
    right: float
    first: float
    last: float
    step: float

    def x(self, points: float) -> float:
        """Return where a number of points lies, on the axis's end where it is further out."""
        share = (min(max(points, self.first), self.last) - self.first) / (self.last - self.first)
        return round(self.left + share * (self.right - self.left), 2)

    @property
    def ticks(self) -> tuple[tuple[float, str], ...]:
        """The places and texts of the ticks."""
        num = round((self.last - self.first) / self.step)
        values = (self.first + index * self.step for index in range(num + 1))
        return tuple((self.x(value), numbers.signed(value / 100, 1 if self.step < 1 else 0)) for value in values)


@dataclass(frozen=True)
class AnswerLine:
    """One pair of rows as it is drawn; `grey` is the ground of what could not have been told from zero."""

    y: float
    names: tuple[tuple[str, bool], ...]  # lines of text, and whether they are quiet
    grey: tuple[float, float]
    low: float
    middle: float
    high: float
    dots: tuple[float, ...]
    value: str
    interval: str
    scores: str
    outcome: str
    is_clear: bool
    claim: float | None
    claim_text: str


@dataclass(frozen=True)
class AnswerFigure:
    """The drawing in its coordinates; `claims` is the paper's axis, None where it prints none of these differences."""

    id: str
    profile: str
    axis: Axis
    claims: Axis | None
    lines: tuple[AnswerLine, ...]
    height: float
    description: str
    counted: str
    width: float = WIDTH


def answer_figure(table: Table, items: Sequence[Contrast] | None = None) -> AnswerFigure | None:
    """Return the figure of a table's contrasts, None for a table without any."""
    items = contrasts(table) if items is None else items
    answer = answer_of(items)
    if answer is None:
        return None
    claimed = [float(item.claim) for item in items if item.claim is not None]
    right = WIDTH - VALUES - (CLAIMS if claimed else 0)
    axis = _axis([100 * value for item in items for value in _ends(item)], NAMES + 14, right)
    claims = _axis(claimed, right + VALUES + 14, WIDTH - 48) if claimed else None
    lines: list[AnswerLine] = []
    y = TOP
    for item in items:
        names = _names(item)
        height = max(MIN_PITCH, LINE_HEIGHT * len(names) + 8)
        lines.append(_line(item, names, y + height / 2, axis, claims))
        y += height
    description = f"{answer.badge}. {answer.sentence} " + " ".join(_words(item) for item in items)
    return AnswerFigure(table.id, table.profile, axis, claims, tuple(lines), y, description, _counted(table))


def render_answer_svg(table: Table) -> str | None:
    """Return the figure as a file of its own, with its colours for light and dark; None without one."""
    figure = answer_figure(table)
    if figure is None:
        return None
    template = html_environment().get_template("answer_figure.svg.j2")
    return template.render(figure=figure, table=table, answer=answer_of(contrasts(table)), style=svg_style())


def _counted(table: Table) -> str:
    """Return why the scores of the table do not subtract to these differences, "" where they do."""
    for row in table.rows:
        for cell in row.cells:
            if cell.estimate and cell.all_repeats and cell.num_repeats > 1 and cell.all_repeats != cell.estimate:
                return (
                    f"Differences are taken over all {cell.num_repeats} answers to each problem. The table counts the "
                    "first answer only, so its scores subtract to slightly other numbers."
                )
    return ""


def _ends(item: Contrast) -> list[float]:
    grey = [] if item.detectable is None else [-item.detectable, item.detectable]
    return [*item.interval, *item.by_seed, *grey, 0.0]


def _axis(values: Sequence[float], left: float, right: float) -> Axis:
    """Return an axis with zero on it and a few round ticks that hold all values."""
    values = [value for value in values if not math.isnan(value)]
    low, high = min([*values, 0.0]), max([*values, 0.0])
    most = max(2, int((right - left) // 42))
    step = next((step for step in STEPS if (high - low) / step <= most - 1), STEPS[-1])
    first, last = math.floor(low / step), math.ceil(high / step)
    return Axis(left, right, first * step, max(last, first + 1) * step, step)


def _names(item: Contrast) -> tuple[tuple[str, bool], ...]:
    own = textwrap.wrap(item.row, MAX_NAME) or [""]
    other = textwrap.wrap(f"− {item.other}", MAX_NAME)
    return (*((text, False) for text in own), *((text, True) for text in other))


def _line(item: Contrast, names: tuple[tuple[str, bool], ...], y: float, axis: Axis, claims: Axis | None) -> AnswerLine:
    low, high = item.interval
    x = partial(_at, axis)
    ends = (axis.left, axis.right) if math.isnan(low) else (x(low), x(high))
    # One seed says nothing of what another would give: all of the axis is what cannot be told.
    grey = (axis.left, axis.right) if item.detectable is None else (x(-item.detectable), x(item.detectable))
    return AnswerLine(
        y=y,
        names=names,
        grey=grey,
        low=ends[0],
        middle=x(item.estimate.mean),
        high=ends[1],
        dots=tuple(x(value) for value in item.by_seed),
        value=numbers.signed(item.estimate.mean),
        interval=f"({numbers.signed(low)} to {numbers.signed(high)})",
        scores=" − ".join(numbers.percent(score) for score in item.scores or ()),
        outcome={"gain": "gain", "loss": "loss"}.get(item.outcome, ""),
        is_clear=item.is_clear,
        claim=None if item.claim is None or claims is None else claims.x(float(item.claim)),
        claim_text="" if item.claim is None else numbers.signed(float(item.claim) / 100),
    )


def _at(axis: Axis, share: float) -> float:
    return axis.x(100 * share)


def _words(item: Contrast) -> str:
    low, high = item.interval
    words = f"{item.row} minus {item.other}: {numbers.signed(item.estimate.mean)} points, "
    words += f"95 % interval {numbers.signed(low)} to {numbers.signed(high)}"
    return words + (f"; the paper says {numbers.signed(float(item.claim) / 100)}." if item.claim is not None else ".")
