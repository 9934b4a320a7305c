"""Small tables of numbers with intervals, rows by columns, and the page, the LaTeX, the CSV and the drawing of them."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from atrl_bench.digests import plain
from atrl_bench.escape import spreadsheet
from atrl_bench.report.latex import latex_environment
from atrl_bench.report.page import html_environment, render_page, svg_style
from atrl_bench.report.text import markdown_environment

Verdict = Literal["up", "down", ""]  # whether the interval lies above or below what would be no difference


@dataclass(frozen=True)
class GridCell:
    """One number: as it is written, and the ends of its 95 % interval; `reason` where there is none."""

    text: str
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    verdict: Verdict = ""
    seen: str = ""
    """The difference that would have been seen, where it is a comparison."""
    reason: str = ""


@dataclass(frozen=True)
class Grid:
    """One table: `neutral` is the number that says "no difference"."""

    title: str
    explanation: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[GridCell, ...]], ...]
    neutral: float | None = None
    is_drawn: bool = False
    is_ratio: bool = False


@dataclass(frozen=True)
class GridPage:
    """All tables of one page."""

    id: str
    title: str
    caption: str
    label: str
    profile: str
    profile_title: str
    answer: str
    grids: tuple[Grid, ...]
    notes: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Mark:
    """One number as it is drawn."""

    x: float
    y: float
    low: float
    high: float
    name: str
    text: str
    verdict: Verdict


@dataclass(frozen=True)
class Drawing:
    """A column of a grid: a mark a row on one scale that all columns share."""

    title: str
    marks: tuple[Mark, ...]
    ticks: tuple[tuple[float, str], ...]
    neutral: float | None
    top: float
    height: float


LEFT, RIGHT, PITCH, TOP = 190.0, 620.0, 24.0, 30.0
WIDTH = 820.0


def drawings(grid: Grid) -> list[Drawing]:
    """Return the drawing of each column that has numbers, one below the other; ratios on a logarithmic scale."""
    cells = [cell for _, cells in grid.rows for cell in cells if math.isfinite(cell.value)]
    ends = [end for cell in cells for end in (cell.low, cell.value, cell.high) if math.isfinite(end)]
    if not ends:
        return []
    scale = (lambda value: math.log2(min(max(value, 1 / 16), 16.0))) if grid.is_ratio else float
    neutral = [] if grid.neutral is None else [grid.neutral]
    values = [scale(value) for value in [*ends, *neutral]]
    steps = (1.0,) if grid.is_ratio else (0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
    step = next((step for step in steps if (max(values) - min(values)) / step <= 8), steps[-1])
    first, last = math.floor(min(values) / step), math.ceil(max(values) / step)
    last = max(last, first + 1)

    def x(value: float) -> float:
        share = ((scale(value) if math.isfinite(value) else last * step) - first * step) / ((last - first) * step)
        return round(LEFT + min(max(share, 0.0), 1.0) * (RIGHT - LEFT), 2)

    def tick(index: int) -> tuple[float, str]:
        value = 2.0 ** (index * step) if grid.is_ratio else index * step
        return x(value), f"{value:g}".replace("-", "−")

    ticks = tuple(tick(index) for index in range(first, last + 1))
    made, top = [], 0.0
    for number, title in enumerate(grid.columns):
        rows = [(name, cells[number]) for name, cells in grid.rows if math.isfinite(cells[number].value)]
        if not rows:
            continue
        marks = tuple(
            Mark(x(cell.value), top + TOP + PITCH * i, x(cell.low), x(cell.high), name, cell.text, cell.verdict)
            for i, (name, cell) in enumerate(rows)
        )
        height = TOP + PITCH * len(rows) + 26
        made.append(Drawing(title, marks, ticks, None if grid.neutral is None else x(grid.neutral), top, height))
        top += height
    return made


def render_grid_html(page: GridPage) -> str:
    """Return the whole page."""
    return render_page("grids.html.j2", page=page, drawn=[(grid, drawings(grid)) for grid in page.grids], width=WIDTH)


def render_grid_svg(page: GridPage) -> str | None:
    """Return the drawing as a file of its own; None where there is nothing to draw."""
    for grid in page.grids:
        if grid.is_drawn and (drawn := drawings(grid)):
            template = html_environment().get_template("grids.svg.j2")
            return template.render(page=page, grid=grid, drawn=drawn, width=WIDTH, style=svg_style())
    return None


def render_grid_latex(page: GridPage) -> dict[str, str]:
    """Return the floats by the end of their files' names, and a `_document` with all of them that compiles."""
    template = latex_environment().get_template("grids.tex.j2")
    label = "".join(c for c in page.label if c.isascii() and (c.isalnum() or c in ":_-."))
    files = {
        f"_{number}": template.render(page=page, grids=[(number, grid)], standalone=False, label=label)
        for number, grid in enumerate(page.grids, start=1)
    }
    whole = template.render(page=page, grids=list(enumerate(page.grids, start=1)), standalone=True, label=label)
    return files | {"_document": whole}


def render_grid_markdown(page: GridPage) -> str:
    """Return the tables in Markdown."""
    return markdown_environment().get_template("grids.md.j2").render(page=page).strip("\n") + "\n"


def render_grid_csv(page: GridPage) -> str:
    """Return one line a number."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(["profile", "table", "row", "column", "value", "low", "high", "text", "reason"])
    for grid in page.grids:
        for name, cells in grid.rows:
            for column, cell in zip(grid.columns, cells, strict=True):
                texts = [page.profile, grid.title, name, column]
                numbers = [_number(value) for value in (cell.value, cell.low, cell.high)]
                writer.writerow([*map(spreadsheet, texts), *numbers, *map(spreadsheet, (cell.text, cell.reason))])
    return sink.getvalue()


def render_grid_json(page: GridPage) -> str:
    """Return everything the page knows."""
    document: Any = plain({"grid_page": asdict(page)})
    return json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n"


def files_of_page(page: GridPage) -> dict[str, str]:
    """Return all forms of the page by the names of their files, HTML first."""
    drawing = render_grid_svg(page)
    return {
        f"{page.id}.html": render_grid_html(page),
        **{f"latex/{page.id}{end}.tex": source for end, source in render_grid_latex(page).items()},
        **({f"{page.id}.svg": drawing} if drawing else {}),
        f"{page.id}.md": render_grid_markdown(page),
        f"{page.id}.csv": render_grid_csv(page),
        f"{page.id}.json": render_grid_json(page),
    }


def verdict_of(low: float, high: float, neutral: float) -> Verdict:
    """Return whether an interval lies above or below a number."""
    return "up" if low > neutral else "down" if high < neutral else ""


def _number(value: float) -> float | str:
    return round(value, 6) if math.isfinite(value) else ""
