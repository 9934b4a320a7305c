"""Learning curves: accuracy on the training problems and length of the responses, with the spread of the seeds."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from atrl_bench.report.figures.curves import Curve, bands, csv_rows, draw_curves, seed_note
from atrl_bench.report.figures.drawing import FigureContent, sheet
from atrl_bench.report.figures.sources import Source, trainings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_TOGETHER = 5  # methods in one panel
PANELS = {
    "accuracy": "Accuracy on the problems of the rollout",
    "completions/mean_length": "Tokens of a response",
}


def make(source: Source) -> FigureContent:
    """Return the figure of every finished training in the run folder."""
    runs = trainings(source)
    curves = {name: bands(runs, name) for name in PANELS}
    if not curves["accuracy"]:
        raise source.missing(f"No training in {source.run_dir.root} has learning curves.", "None of them has finished.")
    return picture(curves)


def picture(curves: dict[str, list[Curve]]) -> FigureContent:
    """Return the figure of these curves, by the name of what they measure.

    More methods than a panel can hold stand by objective, each with its AT-RL beside it; their lengths are in the CSV.
    """
    if len(curves["accuracy"]) <= MAX_TOGETHER:
        figure, panels = sheet(9.2, 4.4, ncols=len(PANELS))
        for panel, (name, title) in zip(panels, PANELS.items(), strict=True):
            draw_curves(panel, curves[name])
            panel.set_title(title)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        _percent(panels[0])
    else:
        groups = by_objective(curves["accuracy"])
        columns = min(3, len(groups))
        rows_of_panels = math.ceil(len(groups) / columns)
        figure, panels = sheet(
            10.2, 0.6 + 4.2 * rows_of_panels, nrows=rows_of_panels, ncols=columns, sharey=True, squeeze=False
        )
        for panel, (title, group) in zip(panels.flat, groups.items(), strict=False):
            draw_curves(panel, group)
            panel.set_title(title)
            panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), fontsize=7)
            _percent(panel)
        for panel in panels.flat[len(groups) :]:
            panel.set_axis_off()
        figure.suptitle(PANELS["accuracy"], fontsize=11)
    ends = [f"{c.label} {100 * statistics.mean(c.means[-8:]):.1f} %" for c in curves["accuracy"]]
    description = (
        "Lines over the rollouts of training, one for each method. "
        f"Mean accuracy over the last rollouts, at most eight: {'; '.join(ends)}. {seed_note(curves['accuracy'])}"
    )
    return FigureContent("Learning curves", description, figure, csv_rows(curves))


def by_objective(curves: Sequence[Curve]) -> dict[str, list[Curve]]:
    """Return the curves of each objective that several methods share, and last those that stand alone."""
    groups: dict[str, list[Curve]] = {}
    for curve in curves:
        groups.setdefault(re.split(r" \+ | \(|, ", curve.label, maxsplit=1)[0], []).append(curve)
    alone = [curve for group in groups.values() if len(group) == 1 for curve in group]
    shared = {name: group for name, group in groups.items() if len(group) > 1}
    return shared | ({"Others": alone} if alone else {})


def _percent(panel: Axes) -> None:
    panel.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
