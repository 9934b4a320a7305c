"""What all figures share: one look in two themes, SVG in which nothing changes from day to day, and their data as CSV.

Colours are written in their light form; a style sheet inside the SVG swaps them where the theme is dark. What
does not understand style sheets still shows the light form. Nothing is told apart by colour alone.
"""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from atrl_bench.escape import one_line, spreadsheet, visible
from atrl_bench.report.page import TEMPLATES
from atrl_bench.results.files import write_texts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAGE, INK, SOFT, LINE, GREY = "#ffffff", "#1b1f24", "#57606a", "#d0d7de", "#e4e7eb"
BLUE, ORANGE, GREEN, PURPLE, RED, TEAL = "#0a4bb5", "#a84300", "#116329", "#7a2e8e", "#a40e26", "#0b6e73"
DARK = {
    PAGE: "#0f1318",
    INK: "#e6edf3",
    SOFT: "#a3aebb",
    LINE: "#333c47",
    GREY: "#2b333d",
    BLUE: "#8ab8ff",
    ORANGE: "#ffa657",
    GREEN: "#5bd46a",
    PURPLE: "#d9a6e8",
    RED: "#ff8a80",
    TEAL: "#56d4d0",
}
# A line is told by its marker and dashes as well, an area by its hatching and the word on it.
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, TEAL, RED)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))


@dataclass(frozen=True)
class FigureContent:
    """A figure, what it shows in words for those who do not see it, and every number in it."""

    title: str
    description: str
    figure: Figure
    rows: Sequence[Mapping[str, Any]] = ()


@contextmanager
def figure_style() -> Iterator[None]:
    import matplotlib.style

    with matplotlib.style.context(["default", TEMPLATES / "figure.mplstyle"]), warnings.catch_warnings():
        # A character that our measuring font lacks is text in the SVG like any other.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def new_figure(width: float, height: float, **subplots: Any) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(**subplots)


def mark_published(panel: Axes, source: str) -> None:
    panel.spines[:].set(visible=True, linestyle=(0, (4, 3)), color=SOFT)
    panel.set_title(f"Published, not measured here\n{source}", color=SOFT)


def name_bars(panel: Axes, names: Sequence[str]) -> None:
    """Write these names beside horizontal bars at 0, 1, 2 and so on, the first on top; two may be the same."""
    panel.set_yticks(range(len(names)), [shortened(name, 52) for name in names])
    panel.invert_yaxis()
    panel.tick_params(axis="y", length=0)
    panel.grid(visible=False, axis="y")


def hide_axes(panel: Axes) -> None:
    panel.grid(visible=False)
    panel.set_xticks([])
    panel.set_yticks([])
    panel.spines[:].set_visible(False)


def style_of(index: int) -> dict[str, Any]:
    """How the line at this place among several is drawn: no two share colour, marker and dashes."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": DASHES[index % len(DASHES)],
        "markeredgecolor": PAGE,
        "markeredgewidth": 0.8,
    }


def shortened(text: str, limit: int = 60) -> str:
    """Any text as one line that is safe to show: nothing invisible in it, and cut where it is long."""
    line = one_line(text)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def token_text(text: str) -> str:
    if not text:
        return "⟨end⟩"
    return shortened(text, 24) or ("⏎" if "\n" in text else "␣")


def watermark(content: FigureContent, profile: str) -> None:
    """Write the profile into a corner of the figure, below all that is drawn: cut out, it still says whose it is."""
    height = float(content.figure.get_figheight())
    strip = 0.22 / height
    engine = content.figure.get_layout_engine()
    if engine is not None:
        engine.set(rect=(0, strip, 1, 1 - strip))  # type: ignore[call-arg]
    content.figure.text(0.995, 0.03 / height, f"measured with profile {profile}", ha="right", fontsize=8, color=SOFT)


# Files ----------------------------------------------------------------------------------------------------------------


def write(picture: FigureContent, name: str, out: Path) -> list[Path]:
    return write_texts(out, {f"{name}.svg": svg(picture, name), f"{name}.csv": figure_csv(picture.rows)})


def svg(picture: FigureContent, name: str) -> str:
    """The figure as SVG with its title and description; the same figure gives the same bytes on any day."""
    buffer = io.StringIO()
    picture.figure.savefig(buffer, format="svg", metadata={"Date": None})
    content = buffer.getvalue()
    # The document type names a file on another server, the metadata say which day and which matplotlib.
    content = re.sub(r"<metadata>.*?</metadata>\s*", "", content, count=1, flags=re.S)
    start = content.index("<svg")
    opening, body = content[start : (end := content.index(">", start))], content[end:].removeprefix(">")
    title, description = (escape(visible(text)) for text in (picture.title, picture.description))
    return (
        f'{opening} role="img" aria-labelledby="{name}-title {name}-description">\n'
        f' <title id="{name}-title">{title}</title>\n <desc id="{name}-description">{description}</desc>\n'
        f" <style>{_dark_style()}</style>{body}"
    )


def _dark_style() -> str:
    rules = "".join(
        f'[style*="fill: {light}"],[fill="{light}"]{{fill:{dark}!important}}'
        f'[style*="stroke: {light}"],[stroke="{light}"]{{stroke:{dark}!important}}'
        for light, dark in DARK.items()
    )
    return f"@media screen and (prefers-color-scheme:dark){{{rules}}}"


def figure_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    written = [{name: f"{v:.6g}" if isinstance(v, float) else v for name, v in row.items()} for row in rows]
    return csv_text(written, list(rows[0]))


def csv_text(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> str:
    """The rows' fields of these names as CSV; no spreadsheet takes a text for a formula."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, names, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows({name: spreadsheet(v) if isinstance(v, str) else v for name, v in row.items()} for row in rows)
    return buffer.getvalue()
