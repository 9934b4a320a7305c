"""Performance over model size: untrained, and trained with AT-RL; what the paper prints stands in panels of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from atrl_bench.errors import MissingDataError
from atrl_bench.experiments.definition import load_table
from atrl_bench.models.local import find_model
from atrl_bench.models.shape import num_parameters
from atrl_bench.papers.scores import load_printed
from atrl_bench.report.drawing import FigureContent, mark_published, new_figure, shortened, style_of
from atrl_bench.report.figures.sources import Evaluated, Source, evaluated, published
from atrl_bench.results.statistics.metrics import ScoredSamples, score
from atrl_bench.results.store import Cell, Store

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TASKS = {"mathvista_testmini": "MathVista", "mathverse_testmini": "MathVerse"}  # the two that the paper's teaser names


@dataclass(frozen=True)
class Point:
    """One score: of which method, on which benchmark, at how many parameters; half of its 95 % interval if measured."""

    method: str
    task: str
    num_parameters: float
    percent: float
    half_width_95: float | None = None


def make(source: Source) -> FigureContent:
    points = []
    with source.run_dir.open_store(read_only=True) as store:
        for task in TASKS:
            found = evaluated(source, store, task, all_tables=True)  # models of several sizes stand in several
            wanted = [e for e in found if (e.recipe is None or e.is_anchored) and e.cell.spec["limit"] is None]
            points += [point for one in wanted if (point := _point(source, store, one))]
    if not points:
        raise source.missing(f"{source.run_dir.root} has no finished evaluation on {' or '.join(TASKS)}.")
    return picture(_means(points), printed_points(published("scale")), source.run_dir.profile.name)


def printed_points(rows: Sequence[Mapping[str, str]]) -> list[Point]:
    printed = {table: load_printed(load_table(table)).scores for table in {row["table"] for row in rows}}
    return [
        Point(row["method"], task, 1e9 * float(row["billion_parameters"]), float(percent))
        for row in rows
        for task in TASKS
        if (percent := printed[row["table"]].get((row["row"], task))) is not None
    ]


def picture(measured: Sequence[Point], printed: Sequence[Point], profile: str) -> FigureContent:
    figure, panels = new_figure(10.2, 7.2, nrows=2, ncols=2)
    positions = {method: index for index, method in enumerate(sorted({p.method for p in measured}))}
    paper_positions = {method: index + 3 for index, method in enumerate(dict.fromkeys(p.method for p in printed))}
    for column, (task, title) in enumerate(TASKS.items()):
        top, bottom = panels[0][column], panels[1][column]
        _draw(top, [p for p in measured if p.task == task], positions)
        top.set_title(f"{title}, measured, profile {shortened(profile)}")
        _draw(bottom, [p for p in printed if p.task == task], paper_positions)
        mark_published(bottom, f"{title}, as the paper's tables print it")
        bottom.set_xlabel("Parameters")
    rows = [
        {"source": kind} | asdict(point) | {"num_parameters": round(point.num_parameters)}
        for kind, points in (("measured", measured), ("published", printed))
        for point in points
    ]
    description = (
        f"Accuracy over the number of parameters. Measured: {_in_words(measured)}. "
        f"In panels of their own, published: {_in_words(printed)}."
    )
    return FigureContent("Performance over model size", description, figure, rows)


def _in_words(points: Sequence[Point]) -> str:
    return "; ".join(
        f"{shortened(p.method)} on {TASKS[p.task]} at {_size(p.num_parameters)} {p.percent:.1f} %" for p in points
    )


def _draw(panel: Axes, points: Sequence[Point], positions: Mapping[str, int]) -> None:
    sizes = sorted({point.num_parameters for point in points})
    for method, index in positions.items():
        own = sorted((p for p in points if p.method == method), key=lambda p: p.num_parameters)
        if own:
            # Methods at one size stand side by side.
            aside = index - (min(positions.values()) + max(positions.values())) / 2
            x = [sizes.index(point.num_parameters) + 0.06 * aside for point in own]
            # No score is below 0 or above 100, wherever half a width would reach.
            halves = [p.half_width_95 or 0.0 for p in own]
            room = [[p.percent for p in own], [100 - p.percent for p in own]]
            errors = [list(map(min, halves, of_side)) for of_side in room] if any(halves) else None
            panel.errorbar(x, [p.percent for p in own], errors, label=shortened(method), capsize=3, **style_of(index))
    panel.set_xticks(range(len(sizes)), [_size(size) for size in sizes])
    panel.set_xlim(-0.6, len(sizes) - 0.4)
    panel.margins(y=0.2)
    low, high = panel.get_ylim()
    panel.set_ylim(max(low, -3), min(high, 103))
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:.0f} %")
    if points:
        panel.legend(loc="best", fontsize=9 if len(positions) <= 4 else 8)


def _size(num_parameters: float) -> str:
    return f"{num_parameters / 1e9:g} B" if num_parameters >= 1e9 else f"{num_parameters / 1e6:.3g} M"


def _point(source: Source, store: Store, one: Evaluated) -> Point | None:
    cell, folder = one.cell, _model_folder(source, store, one.cell)
    if folder is None:
        return None
    estimate = score(ScoredSamples(store.scores(cell.key), "acc@1"))
    # Rows of several tables that were trained alike are one method, whatever each table calls them.
    name = "Untrained" if one.recipe is None else f"{one.recipe.upper()} + AT-RL"
    return Point(name, cell.spec["task"], num_parameters(folder), 100 * estimate.mean, 100 * estimate.half_width())


def _means(points: Sequence[Point]) -> list[Point]:
    """One point a method, benchmark and size: the mean over seeds, with the widest of their intervals."""
    groups: dict[tuple[str, str, float], list[Point]] = {}
    for point in points:
        groups.setdefault((point.method, point.task, point.num_parameters), []).append(point)
    return [
        Point(*group, sum(p.percent for p in same) / len(same), max(p.half_width_95 or 0.0 for p in same))
        for group, same in sorted(groups.items())
    ]


def _model_folder(source: Source, store: Store, cell: Cell) -> Path | None:
    """Where the model that filled a cell is, None where only an endpoint knows."""
    for run in store.runs():
        if run.digest and run.digest == cell.spec["model_digest"]:
            return source.run_dir.root / run.checkpoint
    try:
        return find_model(cell.spec["model_name"]).folder
    except MissingDataError:
        return None
