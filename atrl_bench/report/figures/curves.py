"""A number over training: the mean over seeds with the range they span, in lines that need no colour."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from atrl_bench.report.figures.drawing import plain, rows_of, style_of, whole_numbers
from atrl_bench.report.figures.sources import Training

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NUM_MARKERS = 12  # on one line
CSV_FIELDS = ("method", "measure", "rollout", "mean_over_seeds", "lowest_seed", "highest_seed", "num_seeds")
WINDOW = 9  # rollouts that a long line is smoothed over: what is printed is never smoothed


@dataclass(frozen=True)
class Curve:
    """One method's number by rollout: mean, lowest and highest over the seeds that got so far."""

    label: str
    measure: str
    rollouts: tuple[int, ...]
    means: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    num_seeds: tuple[int, ...]

    def points(self) -> Iterator[tuple[Any, ...]]:
        """Yield the curve as values of `CSV_FIELDS`."""
        for point in zip(self.rollouts, self.means, self.lows, self.highs, self.num_seeds, strict=True):
            yield self.label, self.measure, *point


def bands(trainings: Iterable[Training], measure: str) -> list[Curve]:
    """Return a curve for each method that recorded `measure`, in the order of their names.

    The updates of a rollout count as one point, their mean; those that lack the number are left out.
    """
    points: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for training in trainings:
        of_rollout: dict[int, list[float]] = defaultdict(list)
        for step in training.steps:
            if isinstance(step.get(measure), int | float):
                of_rollout[int(step["rollout"])].append(float(step[measure]))
        for rollout, values in of_rollout.items():
            points[training.label][rollout].append(statistics.fmean(values))
    return [_curve(label, measure, points[label]) for label in sorted(points)]


def _curve(label: str, measure: str, points: dict[int, list[float]]) -> Curve:
    rollouts = tuple(sorted(points))
    values = [points[rollout] for rollout in rollouts]
    means = tuple(statistics.fmean(seeds) for seeds in values)
    lows, highs, counts = (tuple(map(of, values)) for of in (min, max, len))
    return Curve(label, measure, rollouts, means, lows, highs, counts)


def draw_curves(panel: Axes, curves: Sequence[Curve]) -> None:
    """Draw the curves with their bands; a long one is smoothed so that it can be seen among others."""
    for index, curve in enumerate(curves):
        style = style_of(index)
        x = [rollout + 1 for rollout in curve.rollouts]
        means, lows, highs = (smoothed(line) for line in (curve.means, curve.lows, curve.highs))
        every = max(1, len(x) // NUM_MARKERS)
        panel.plot(x, means, label=plain(curve.label), markevery=(index % every, every), **style)
        if max(curve.num_seeds) > 1:
            # Many bands over each other would be mud.
            alpha = 0.14 if len(curves) <= 3 else 0.05
            panel.fill_between(x, lows, highs, color=style["color"], alpha=alpha, linewidth=0)
    panel.set_xlabel("Rollout")
    whole_numbers(panel)
    panel.margins(x=0.03)


def csv_rows(curves: Mapping[str, Sequence[Curve]]) -> list[dict[str, Any]]:
    """Return all curves, by what they measure, as rows of one CSV."""
    every = (curve for of_measure in curves.values() for curve in of_measure)
    return rows_of(CSV_FIELDS, (point for curve in every for point in curve.points()))


def smoothed(values: Sequence[float]) -> list[float]:
    """Return the centred moving mean over at most `WINDOW` values; a short line stays as it is."""
    half = WINDOW // 2 if len(values) >= 3 * WINDOW else 0
    return [statistics.fmean(values[max(0, i - half) : i + half + 1]) for i in range(len(values))]


def seed_note(curves: Sequence[Curve]) -> str:
    """Return what a band is, or that there is none."""
    most = max(max(curve.num_seeds) for curve in curves)
    is_long = any(len(curve.means) >= 3 * WINDOW for curve in curves)
    smooth = f" Lines are means over {WINDOW} rollouts; the CSV is not smoothed." if is_long else ""
    if most == 1:
        return f"One training seed: the spread between seeds was not measured.{smooth}"
    return f"Bands reach from the lowest to the highest of up to {most} training seeds.{smooth}"
