"""Draw the figures of a run folder, one or all, and say what was drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from atrl_bench.errors import MissingDataError, UnknownNameError
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.printable import Block, Command, Record
from atrl_bench.report.drawing import FigureContent, figure_style, watermark, write
from atrl_bench.report.figures import FIGURES
from atrl_bench.report.figures.sources import Source


@dataclass(frozen=True)
class Drawn:
    """What was written for one figure, and its text for those who do not see it."""

    name: str
    title: str
    description: str
    files: tuple[Path, ...]

    @property
    def svg(self) -> Path:
        return self.files[0]


def figure(name: str, run_dir: RunDir, *, out: Path | None = None, **options: Any) -> Drawn:
    """Write one figure of the run folder below `<run folder>/reports/figures` and return what was written.

    `options` are fields of `sources.Source`: which benchmark, which model, of how many problems; and `judge`, which
    only the errors of benchmarks that nobody generated need. Raises `MissingDataError`, with the command that helps,
    where the run folder lacks what the figure shows: there is no empty picture.
    """
    if name not in FIGURES:
        raise UnknownNameError("figure", name, FIGURES, next_step="atrl-bench list figures")
    make: Callable[[Source], FigureContent] = import_module(f"{__package__}.{name}").make
    source = Source(run_dir, **{option: value for option, value in options.items() if value is not None})
    with figure_style():
        drawing = make(source)
        if run_dir.profile.name != "paper":
            watermark(drawing, run_dir.profile.name)
        paths = write(drawing, name, out or run_dir.reports / "figures")
    return Drawn(name, drawing.title, drawing.description, tuple(paths))


@dataclass(frozen=True)
class DrawnFigures(Record):
    """The figures that were written, and of the others why not."""

    figures: tuple[Drawn, ...]
    missing: Mapping[str, MissingDataError]

    def blocks(self) -> Iterable[Block]:
        yield from (f"{drawn.title}: {drawn.svg}" for drawn in self.figures)
        for name, error in self.missing.items():
            yield f"{name} is not drawn. {error.what} {error.why}"
            if error.next_step:
                yield Command(error.next_step)


def draw_all(run_dir: RunDir, **options: Any) -> DrawnFigures:
    drawn: list[Drawn] = []
    missing: dict[str, MissingDataError] = {}
    for name in FIGURES:
        try:
            drawn.append(figure(name, run_dir, **options))
        except MissingDataError as error:
            missing[name] = error
    return DrawnFigures(tuple(drawn), missing)
