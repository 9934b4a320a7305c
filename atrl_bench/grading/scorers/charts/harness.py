"""Runs `chart.py` inside the sandbox and describes what it draws: `chart.json` and `chart.png`.

Runs alone, with matplotlib. The figure is the one that the program saves last or, when it saves none, its current one;
it is described at that moment, for many programs clear or close it afterwards. Nothing is written where it saves to.
"""

import contextlib
import functools
import json
import random
import runpy

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure
from matplotlib.projections import get_projection_class, get_projection_names

DPI = 100
MAX_TEXT = 200  # characters of one text that count
MAX_TEXTS = 4000
PLOTS = (
    "acorr angle_spectrum bar bar3d barbs barh boxplot broken_barh cohere contour contour3D contourf "
    "contourf3D csd ecdf errorbar eventplot fill fill_between fill_betweenx grouped_bar hexbin hist "
    "hist2d hlines imshow loglog magnitude_spectrum matshow pcolor pcolorfast pcolormesh phase_spectrum "
    "pie plot plot3D plot_surface plot_trisurf plot_wireframe psd quiver scatter scatter3D semilogx "
    "semilogy specgram spy stackplot stairs stem step streamplot table tricontour tricontourf tripcolor "
    "triplot violinplot vlines voxels xcorr"
)

kinds: dict[Axes, set[str]] = {}  # the plotting functions called on each pair of axes
drawn_texts: list[str] = []
depth = 0
saved = False


def watch_plots() -> None:
    """Note which plotting function is called on which axes; a `hist` that calls `bar` is a `hist`."""
    classes = {Axes, *map(get_projection_class, get_projection_names())}
    for owner in classes:
        for name in PLOTS.split():
            if name in vars(owner):
                setattr(owner, name, watched(vars(owner)[name], name))


def watched(function: object, name: str) -> object:
    @functools.wraps(function)  # type: ignore[arg-type]
    def call(self: Axes, *args: object, **settings: object) -> object:
        global depth  # noqa: PLW0603
        if depth == 0:
            kinds.setdefault(self, set()).add(name.removesuffix("3D"))  # `plot3D` is another name of `plot`
        depth += 1
        try:
            return function(self, *args, **settings)  # type: ignore[operator]
        finally:
            depth -= 1

    return call


def watch_text() -> None:
    """Note every line of text that is drawn: what is outside the axes' limits or invisible is not."""
    original = RendererAgg.draw_text

    def draw_text(
        self: RendererAgg, gc: object, x: float, y: float, text: str, *args: object, **settings: object
    ) -> None:
        drawn_texts.append(text)
        original(self, gc, x, y, text, *args, **settings)

    RendererAgg.draw_text = draw_text


def watch_saving() -> None:
    original = Figure.savefig

    def savefig(self: Figure, *args: object, **settings: object) -> None:
        global saved  # noqa: PLW0603
        saved = True
        write(self, original)

    Figure.savefig = savefig  # type: ignore[method-assign]


def write(figure: Figure, save: object) -> None:
    description = describe(figure)
    save(figure, "chart.png", format="png", dpi=DPI)  # type: ignore[operator]
    with open("chart.json", "w") as file:
        json.dump(description, file)


def describe(figure: Figure) -> dict[str, list[str]]:
    drawn_texts.clear()
    FigureCanvasAgg(figure).draw()
    texts = [" ".join(text.split())[:MAX_TEXT] for text in drawn_texts if text.strip()][:MAX_TEXTS]
    axes = [each for each in figure.axes if each.get_visible()]
    with_data = [each for each in axes if not is_colour_bar(each)]
    return {
        "text": sorted(texts),
        "layout": sorted(grid_cells(each) for each in axes),
        "type": sorted(name for each in with_data for name in kinds.get(each, ())),
        "colour": sorted({colour for each in with_data for colour in colours(each)}),
    }


def is_colour_bar(axes: Axes) -> bool:
    """Whether the axes only explain the colours of others."""
    return hasattr(axes, "_colorbar")


def grid_cells(axes: Axes) -> str:
    """The grid of a pair of axes and the cells it covers, or that it lies in none."""
    if is_colour_bar(axes):
        return "colour bar"
    cells = axes.get_subplotspec()
    if cells is None:
        return "free"
    rows, columns = cells.get_gridspec().get_geometry()
    return f"{rows}x{columns}: {cells.rowspan.start}-{cells.rowspan.stop}, {cells.colspan.start}-{cells.colspan.stop}"


def colours(axes: Axes) -> set[str]:
    """The colours of the data in a pair of axes: its lines, its areas, its colour maps."""
    shades = [line.get_color() for line in axes.lines if line.get_visible()]
    for patch in filter(Artist.get_visible, axes.patches):
        shades.append(patch.get_facecolor() if patch.get_fill() else patch.get_edgecolor())
    maps: list[ScalarMappable] = []
    for collection in filter(Artist.get_visible, axes.collections):
        if collection.get_array() is not None:
            maps.append(collection)
        else:
            filled = list(collection.get_facecolor())
            shades += filled if any(map(visible, filled)) else list(collection.get_edgecolor())
    maps += [image for image in axes.images if image.get_visible() and np.asarray(image.get_array()).ndim == 2]
    return {f"map:{mapped.get_cmap().name}" for mapped in maps}.union(*map(visible, shades))


def visible(colour: object) -> set[str]:
    """The colour as `#rrggbb`, unless it is fully transparent or none."""
    with contextlib.suppress(ValueError, TypeError):
        if to_rgba(colour)[3] > 0:
            return {to_hex(colour)}
    return set()


def main() -> None:
    """Run the program with the same random numbers every time, then describe the current figure if it saved none."""
    random.seed(0)
    np.random.seed(0)
    watch_plots()
    watch_text()
    save = Figure.savefig
    watch_saving()
    plt.show = lambda *_args, **_settings: None
    try:
        runpy.run_path("chart.py", run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
    if not saved and plt.get_fignums():
        write(plt.gcf(), save)


if __name__ == "__main__":
    main()
