"""One HTML file per table: opens from disk, asks for nothing outside itself, works without scripts, light and dark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from atrl_bench.results.statistics import Estimate
from atrl_bench.tables import numbers
from atrl_bench.tables.page import render_page
from atrl_bench.tables.parts import Row, Table
from atrl_bench.tables.reproduction import against_paper
from atrl_bench.tables.samples import Pages


@dataclass(frozen=True)
class Bar:
    """One line of the interval chart, in the chart's coordinates."""

    label: str
    y: float
    low: float
    middle: float
    high: float
    text: str
    is_baseline: bool


@dataclass(frozen=True)
class Chart:
    """One column of all rows with its intervals."""

    title: str
    bars: tuple[Bar, ...]
    ticks: tuple[tuple[float, str], ...]
    baseline: float | None
    width: float
    left: float
    right: float
    height: float


def render_html(table: Table, pages: Mapping[tuple[str, str], Pages] | None = None) -> str:
    """Return the whole page; `pages` are those of the answers that it links to, by (row, column)."""
    return render_page(
        "table.html.j2",
        table=table,
        labels={row.id: row.label for row in table.rows},
        spans=spans(table),
        pages=pages or {},
        against=against_paper(table),
        groups=by_group(table.rows),
        published_groups=by_group(table.published),
        charts=_charts(table),
    )


def by_group(rows: Sequence[Any]) -> list[tuple[str, list[Any]]]:
    """Return neighbouring rows of one group under its heading."""
    return [(label, list(members)) for label, members in groupby(rows, key=lambda row: row.group)]


def spans(table: Table) -> list[tuple[str, int]]:
    """Return the headings over neighbouring columns, each with its width: how many frames of a video; or none."""
    shown = [f"{column.frames} frames" if column.frames else "" for column in table.columns]
    return [(text, len(list(members))) for text, members in groupby(shown)] if len(set(shown) - {""}) > 1 else []


MAX_CHARTS = 3  # of a table without an average; more are drawn nowhere


def _charts(table: Table) -> list[Chart]:
    """Return a chart of the averages, or of each column where there are none and few columns."""
    if table.has_average:
        shown = [len(table.columns) - 1]
    else:
        shown = list(range(len(table.columns))) if len(table.columns) <= MAX_CHARTS else []
    charts = [_chart(table, place) for place in shown]
    return [chart for chart in charts if chart is not None]


def _chart(table: Table, place: int) -> Chart | None:
    """Return where each row's score and its interval lie on a common scale, or None with fewer than two scores."""
    rows = [(row, estimate) for row in table.rows if (estimate := row.cells[place].estimate) is not None]
    rows = [(row, estimate) for row, estimate in rows if not math.isnan(estimate.stderr)]
    if len(rows) < 2:
        return None
    ends = [100 * end for _, estimate in rows for end in _possible(estimate)]
    step = next(step for step in (0.5, 1, 2, 5, 10, 20, 50) if (max(ends) - min(ends)) / step <= 8)
    first, last = math.floor(min(ends) / step), math.ceil(max(ends) / step)
    left, right, top, pitch = 178.0, 700.0, 26.0, 26.0

    def x(share: float) -> float:
        return round(left + (100 * share / step - first) / max(last - first, 1) * (right - left), 2)

    def bar(index: int, row: Row) -> Bar:
        estimate = row.cells[place].estimate
        assert estimate is not None
        low, high = _possible(estimate)
        text = f"{numbers.percent(estimate.mean)} ±{numbers.half_width(estimate)}"
        y = top + pitch * index
        return Bar(row.label, y, x(low), x(estimate.mean), x(high), text, row.label == table.baseline)

    bars = tuple(bar(index, row) for index, (row, _) in enumerate(rows))
    ticks = tuple((x(i * step / 100), f"{i * step:g}") for i in range(first, last + 1))
    baseline = next((bar.middle for bar in bars if bar.is_baseline), None)
    title = table.columns[place].text
    return Chart(title, bars, ticks, baseline, right + 110, left, right, top + pitch * len(bars) + 10)


def _possible(estimate: Estimate) -> tuple[float, float]:
    """Return the interval, cut off where no score can be."""
    low, high = estimate.interval()
    return max(low, min(0.0, estimate.mean)), min(high, max(1.0, estimate.mean))
