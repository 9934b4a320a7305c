"""Learning curves: accuracy on the training problems and length of the responses, with the spread of the seeds."""

from __future__ import annotations

import statistics

from atrl_bench.tables.figures.curves import Curve, bands, draw_curves, seed_note
from atrl_bench.tables.figures.drawing import Picture, sheet
from atrl_bench.tables.figures.sources import Source, trainings

PANELS = {
    "accuracy": "Accuracy on the problems of the rollout",
    "completions/mean_length": "Tokens of a response",
}


def make(source: Source) -> Picture:
    """Return the figure of every finished training in the run folder."""
    found = trainings(source)
    curves = {name: bands(found, name) for name in PANELS}
    if not curves["accuracy"]:
        raise source.missing(f"No training in {source.place.root} has learning curves.", "None of them has finished.")
    return picture(curves)


def picture(curves: dict[str, list[Curve]]) -> Picture:
    """Return the figure of these curves, by the name of what they measure."""
    figure, panels = sheet(9.2, 4.4, ncols=len(PANELS))
    for panel, (name, title) in zip(panels, PANELS.items(), strict=True):
        draw_curves(panel, curves[name], x_label="Rollout")
        panel.set_title(title)
    panels[0].yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    ends = [f"{c.label} {100 * statistics.mean(c.means[-8:]):.1f} %" for c in curves["accuracy"]]
    description = (
        "Lines over the rollouts of training, one for each method. "
        f"Mean accuracy over the last rollouts, at most eight: {'; '.join(ends)}. {seed_note(curves['accuracy'])}"
    )
    rows = [row for of_measure in curves.values() for curve in of_measure for row in curve.rows()]
    return Picture("Learning curves", description, figure, rows)
