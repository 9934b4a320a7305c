"""The figures of the paper, and those it lacks: each as an SVG in two themes with its numbers as CSV beside it.

Each module has one `make(source) -> Drawing`; what it draws from a run folder, it first reads into plain values, and
its `picture(...)` turns plain values into the drawing and the CSV. What the paper prints stands in a panel of its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from atrl_bench.errors import MissingDataError, UnknownNameError
from atrl_bench.experiments.run_dir import RunDir

FIGURES: dict[str, str] = {
    "scale": "Performance over model size, untrained and trained with AT-RL",
    "connectivity": "How strongly response tokens look at the image, and the 15 % that are called anchors",
    "words": "The tokens that get the most and the least credit, as word clouds with tables",
    "clusters": "The clusters of one response by their share of the credit, with their tokens",
    "errors": "What kinds of errors each method makes on MathVision",
    "phases": "Where the time of a training step goes",
    "learning": "Accuracy and response length over training, with the spread of the seeds",
    "anchors": "How well each reading of the paper finds the tokens that were read from the image",
    "heat_map": "The credit of each token of one response, beside its image",
    "graph_health": "Whether the clusters mean anything: the token graph over training",
}


@dataclass(frozen=True)
class Drawn:
    """What was written for one figure, and its text for those who do not see it."""

    name: str
    title: str
    description: str
    paths: tuple[Path, ...]

    @property
    def svg(self) -> Path:
        """The drawing."""
        return self.paths[0]


def list_figures() -> dict[str, str]:
    """Return the known figures, each with a line that says what it shows."""
    return dict(FIGURES)


def figure(name: str, run_dir: RunDir, *, out: Path | None = None, **options: Any) -> Drawn:
    """Write one figure of the run folder below `<run folder>/reports/figures` and return what was written.

    `options` are fields of `sources.Source`: which benchmark, which model, of how many problems; and `judge`, which
    only the errors of benchmarks that nobody generated need. Raises `MissingDataError`, with the command that helps,
    where the run folder lacks what the figure shows: there is no empty picture.
    """
    from atrl_bench.report.figures.drawing import look, write
    from atrl_bench.report.figures.sources import Source

    if name not in FIGURES:
        raise UnknownNameError("figure", name, FIGURES, next_step="atrl-bench list figures")
    given = {option: value for option, value in options.items() if value is not None}
    with look():
        picture = import_module(f"atrl_bench.report.figures.{name}").make(Source(run_dir, **given))
        paths = write(picture, name, out or run_dir.reports / "figures")
    return Drawn(name, picture.title, picture.description, tuple(paths))


def draw(name: str, run_dir: RunDir, **options: Any) -> list[Path]:
    """Write one figure and return its files: the SVG, then the CSV."""
    return list(figure(name, run_dir, **options).paths)


def draw_all(run_dir: RunDir, **options: Any) -> tuple[list[Drawn], dict[str, MissingDataError]]:
    """Write every figure that the run folder has the data of; return these, and of the others why not."""
    drawn: list[Drawn] = []
    missing: dict[str, MissingDataError] = {}
    for name in FIGURES:
        try:
            drawn.append(figure(name, run_dir, **options))
        except MissingDataError as error:
            missing[name] = error
    return drawn, missing


def summary(drawn: Sequence[Drawn], missing: dict[str, MissingDataError]) -> str:
    """Return what was written and what was not, for a person to read."""
    lines = [f"{one.title}: {one.svg}" for one in drawn]
    lines += [f"{name} is not drawn. {error}" for name, error in missing.items()]
    return "\n".join(lines)


def json_text(drawn: Sequence[Drawn], missing: dict[str, MissingDataError]) -> str:
    """Return the same as one JSON document."""
    figures = [
        {"name": d.name, "title": d.title, "description": d.description, "files": [str(path) for path in d.paths]}
        for d in drawn
    ]
    return json.dumps({"figures": figures, "missing": {name: str(error) for name, error in missing.items()}}, indent=2)
