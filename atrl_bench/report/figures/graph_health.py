"""Whether the clusters mean anything: density of the token graph, its cut against a random one, entropy of the weight.

With an attention sink in the rows every pair of tokens is similar, the graph is complete, and any partition is as good
as any other: then the cut meets the random cut, and grouping is a way to draw lots.
"""

from __future__ import annotations

from atrl_bench.report.figures.curves import NUM_MARKERS, Curve, bands, csv_rows, draw_curves, seed_note, smoothed
from atrl_bench.report.figures.drawing import INK, PAGE, FigureContent, plain, sheet, style_of
from atrl_bench.report.figures.sources import Source, trainings

DENSITY, CUT, RANDOM_CUT, ENTROPY = "credit/edge_density", "credit/cut", "credit/random_cut", "credit/entropy"


def make(source: Source) -> FigureContent:
    """Return the figure of every finished training that built graphs."""
    runs = trainings(source)
    curves = {name: bands(runs, name) for name in (DENSITY, CUT, RANDOM_CUT, ENTROPY)}
    if not curves[DENSITY]:
        raise source.missing(
            f"No training in {source.run_dir.root} built a token graph.", "Only rows with AT-RL's credit do."
        )
    return picture(curves)


def picture(curves: dict[str, list[Curve]]) -> FigureContent:
    """Return the figure of these curves, by the name of what they measure."""
    from matplotlib.lines import Line2D

    figure, (density, cut, entropy) = sheet(10.4, 4.4, ncols=3)
    draw_curves(density, curves[DENSITY])
    density.set_title("Edge density of the token graph")
    draw_curves(cut, curves[CUT])
    for index, curve in enumerate(curves[RANDOM_CUT]):
        style = style_of(index) | {"markerfacecolor": PAGE, "markeredgecolor": style_of(index)["color"], "alpha": 0.75}
        style |= {"linestyle": ":", "linewidth": 1.0, "markevery": max(1, len(curve.rollouts) // NUM_MARKERS)}
        cut.plot([rollout + 1 for rollout in curve.rollouts], smoothed(curve.means), **style)
    cut.set_title("Share of edge weight that is cut")
    kinds = [
        Line2D([], [], color=INK, marker="o", label="METIS"),
        Line2D([], [], color=INK, marker="o", markerfacecolor=PAGE, linestyle=":", label="random partition"),
    ]
    cut.legend(handles=kinds, loc="best")
    draw_curves(entropy, curves[ENTROPY])
    entropy.set_title("Entropy of the weight (1: uniform)")
    density.set_ylim(bottom=0)
    cut.set_ylim(bottom=0)
    handles, labels = density.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=10 if len(labels) <= 6 else 8)
    ends = [
        f"{plain(metis.label)} {metis.means[-1]:.2f} against {random.means[-1]:.2f} at random"
        for metis, random in zip(curves[CUT], curves[RANDOM_CUT], strict=True)
    ]
    description = (
        "Three panels over the rollouts of training. A graph is worth grouping by where METIS cuts much less than "
        f"a random partition. Cut in the last rollout: {'; '.join(ends)}. {seed_note(curves[DENSITY])}"
    )
    return FigureContent("Health of the token graph over training", description, figure, csv_rows(curves))
