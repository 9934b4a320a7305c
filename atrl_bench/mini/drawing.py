"""Pictures of problems: digits in 56-pixel cells, with the frames, letters and signs drawn around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from atrl_bench.mini.digits import CELL, PAPER, draw_scan
from atrl_bench.mini.problems import LETTERS, DigitProblem

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image, ImageDraw

INK = 40


def draw(problem: DigitProblem, *, with_glyph: bool = False, rng: np.random.Generator | None = None) -> Image.Image:
    """The problem's picture; `with_glyph` adds a cell with the sign of the operation, as in Vision Only rows.

    The same problem has the same picture every time, unless `rng` draws it anew (in the base model's training).
    """
    import numpy as np
    from PIL import Image, ImageDraw

    rng = rng or np.random.default_rng(problem.scans)
    cells = [draw_scan(scan, rng) for scan in problem.scans]
    columns, rows = {"row": (len(cells), 1), "labelled": (len(cells), 1)}.get(problem.kind.layout, (2, 2))
    columns += with_glyph
    picture = Image.new("L", (columns * CELL, rows * CELL), PAPER)
    pen = ImageDraw.Draw(picture)
    places = _places(problem.kind.layout, len(cells))
    for index, (cell, (column, row)) in enumerate(zip(cells, places, strict=True)):
        picture.paste(cell, (column * CELL, row * CELL))
        if problem.kind.layout == "labelled":
            pen.text((column * CELL + 3, 1), LETTERS[index], fill=INK)
    _draw_figure(pen, problem.kind.layout)
    if with_glyph:
        _draw_glyph(pen, problem.kind.glyph, (columns - 1) * CELL)
    return picture.convert("RGB")


def _places(layout: str, count: int) -> list[tuple[int, int]]:
    if layout in ("row", "labelled"):
        return [(column, 0) for column in range(count)]
    if layout in ("rectangle", "angles"):
        return [(0, 0), (1, 1)]  # the figure itself lies in the lower left cell
    return [(0, 0), (1, 0), (1, 1)]


def _draw_figure(pen: ImageDraw.ImageDraw, layout: str) -> None:
    left, top, right, bottom = 8, CELL + 8, CELL - 8, 2 * CELL - 8
    if layout == "rectangle":
        pen.rectangle((left, top + 6, right, bottom - 6), outline=INK, width=2)
    elif layout in ("triangle", "angles"):
        pen.polygon([(left, bottom), (right, bottom), ((left + right) // 2, top)], outline=INK, width=2)
    if layout == "angles":
        pen.arc((left - 10, bottom - 10, left + 10, bottom + 10), 300, 360, fill=INK, width=2)


def _draw_glyph(pen: ImageDraw.ImageDraw, glyph: str, left: int) -> None:
    """Draw the sign of an operation with strokes, so that no font decides what the picture looks like."""
    middle_x, middle_y, arm = left + CELL // 2, CELL // 2, 16
    strokes = {
        "+": [((-arm, 0), (arm, 0)), ((0, -arm), (0, arm))],
        "×": [((-arm, -arm), (arm, arm)), ((-arm, arm), (arm, -arm))],
        "-": [((-arm, 0), (arm, 0))],
        "m": [((-arm, -arm), (-arm, arm)), ((arm, -arm), (arm, arm)), ((-arm, 0), (arm, 0))],
    }[glyph]
    for (x0, y0), (x1, y1) in strokes:
        pen.line((middle_x + x0, middle_y + y0, middle_x + x1, middle_y + y1), fill=INK, width=4)
