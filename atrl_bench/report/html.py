"""One HTML file per table: opens from disk, asks for nothing outside itself, works without scripts, light and dark."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from atrl_bench.report.answer_figure import answer_figure
from atrl_bench.report.answers import FILTERS, Pages
from atrl_bench.report.contrasts import answer_of, contrasts
from atrl_bench.report.page import render_page
from atrl_bench.report.reproduction import against_paper
from atrl_bench.report.table_model import Row, Table
from atrl_bench.results.statistics import Estimate


@dataclass(frozen=True)
class Bar:
    """One line of the interval chart, in its coordinates."""

    row: Row
    estimate: Estimate
    y: float
    low: float
    middle: float
    high: float


@dataclass(frozen=True)
class Line:
    """A baseline's score beside the rows that are set against it."""

    row: str
    x: float
    top: float
    bottom: float


@dataclass(frozen=True)
class Chart:
    """One column of all rows with its intervals; rows of one name stand under the headings of their groups."""

    title: str
    bars: tuple[Bar, ...]
    headings: tuple[tuple[float, str], ...]
    baselines: tuple[Line, ...]
    ticks: tuple[tuple[float, str], ...]
    width: float
    left: float
    right: float
    height: float


def render_html(table: Table, pages: Mapping[tuple[str, str], Pages] | None = None) -> str:
    """Return the whole page; `pages` are those of the answers that it links to, by (row, column)."""
    charts, names = _charts(table), row_names(table)
    return render_page(
        "table.html.j2",
        table=table,
        labels={row.id: row.label for row in table.rows},
        names=names,
        baselines=list(dict.fromkeys(names.get(row.baseline, table.baseline) for row in table.rows)),
        spans=spans(table),
        pages=pages or {},
        filters=FILTERS,
        against=against_paper(table),
        answer=answer_of(contrasts(table)),
        figure=answer_figure(table),
        groups=by_group(table.rows),
        published_groups=by_group(table.published),
        charts=charts,
        dashed=list(dict.fromkeys(names[line.row] for chart in charts for line in chart.baselines)),
    )


def row_names(table: Table) -> dict[str, str]:
    """Return each row's label by its id, with its group where another row is called the same."""
    num_of_label = Counter(row.label for row in table.rows)
    return {row.id: f"{row.label}, {row.group}" if num_of_label[row.label] > 1 else row.label for row in table.rows}


def by_group(rows: Sequence[Any]) -> list[tuple[str, list[Any]]]:
    """Return neighbouring rows of one group under its heading."""
    return [(label, list(members)) for label, members in groupby(rows, key=lambda row: row.group)]


def spans(table: Table) -> list[tuple[str, int]]:
    """Return the headings over neighbouring columns, each with its width: how many frames of a video; or none."""
    texts = [f"{column.frames} frames" if column.frames else "" for column in table.columns]
    return [(text, len(list(members))) for text, members in groupby(texts)] if len(set(texts) - {""}) > 1 else []


MAX_CHARTS = 3  # of a table without an average; more are drawn nowhere


def _charts(table: Table) -> list[Chart]:
    """Return a chart of the averages, or of each column where there are none and few columns."""
    if table.has_average:
        charted = [len(table.columns) - 1]
    else:
        charted = list(range(len(table.columns))) if len(table.columns) <= MAX_CHARTS else []
    charts = [_chart(table, index) for index in charted]
    return [chart for chart in charts if chart is not None]


def _chart(table: Table, index: int) -> Chart | None:
    """Return where each row's score and its interval lie on a common scale, or None with fewer than two scores."""
    estimates = {row.id: e for row in table.rows if (e := row.cells[index].estimate) and not math.isnan(e.stderr)}
    rows = [row for row in table.rows if row.id in estimates]
    if len(rows) < 2:
        return None
    ends = [100 * end for estimate in estimates.values() for end in _possible(estimate)]
    step = next(step for step in (0.5, 1, 2, 5, 10, 20, 50) if (max(ends) - min(ends)) / step <= 8)
    first, last = math.floor(min(ends) / step), math.ceil(max(ends) / step)
    longest = max(len(row.label) for row in rows)
    left, right, top, pitch = max(178.0, 14 + 7.0 * longest), 700.0, 26.0, 26.0

    def x(share: float) -> float:
        return round(left + (100 * share / step - first) / max(last - first, 1) * (right - left), 2)

    bars: list[Bar] = []
    headings: list[tuple[float, str]] = []
    has_namesakes = len({row.label for row in rows}) < len(rows)
    for group, members in by_group(rows):
        if has_namesakes and group:
            headings.append((top + pitch * (len(bars) + len(headings)), group))
        for row in members:
            estimate, y = estimates[row.id], top + pitch * (len(bars) + len(headings))
            low, high = _possible(estimate)
            bars.append(Bar(row, estimate, y, x(low), x(estimate.mean), x(high)))
    ticks = tuple((x(i * step / 100), f"{i * step:g}") for i in range(first, last + 1))
    height = top + pitch * (len(bars) + len(headings)) + 10
    lines = tuple(_baselines(bars, pitch / 2))
    title = table.columns[index].text
    return Chart(title, tuple(bars), tuple(headings), lines, ticks, right + 110, left, right, height)


def _baselines(bars: Sequence[Bar], margin: float) -> Iterable[Line]:
    """Yield a line through each baseline's score, as long as the neighbouring rows that are set against it."""
    middles = {bar.row.id: bar.middle for bar in bars}
    for baseline, members in groupby(bars, key=lambda bar: bar.row.baseline):
        heights = [bar.y for bar in members]
        if baseline in middles:
            yield Line(baseline, middles[baseline], heights[0] - margin, heights[-1] + margin)


def _possible(estimate: Estimate) -> tuple[float, float]:
    """Return the interval, cut off where no score can be."""
    low, high = estimate.interval()
    return max(low, min(0.0, estimate.mean)), min(high, max(1.0, estimate.mean))
