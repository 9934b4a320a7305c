"""How well each reading of the paper finds the tokens that are read from the image: by layer, row and setting."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from atrl_bench.analysis.anchors import CREDIT, LAST, SINGLE, AnchorScore, known_problems, study
from atrl_bench.models import local
from atrl_bench.report.drawing import (
    INK,
    PAGE,
    FigureContent,
    name_bars,
    new_figure,
    shortened,
    style_of,
)
from atrl_bench.report.figures.sources import Source

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_PROBLEMS = 60  # more would change no digit that is printed
LINES = [("predicting", True), ("predicting", False), ("own", True), ("own", False)]


def make(source: Source) -> FigureContent:
    ref = local.find_model(source.model or source.run_dir.profile.model)
    sizes = source.run_dir.profile.evaluation
    model = local.load(ref, min_pixels=sizes.min_pixels, max_pixels=sizes.max_pixels, dtype=sizes.dtype)
    return picture(study(model, known_problems(min(MAX_PROBLEMS, source.num_problems))), ref.name)


def picture(scores: Sequence[AnchorScore], model: str) -> FigureContent:
    num_settings = len({score.setting for score in scores if score.part == CREDIT})
    figure, (last, single, credit) = new_figure(
        11.4, max(4.6, 1.6 + 0.27 * num_settings), ncols=3, width_ratios=[1, 1, 1.35]
    )
    _lines(last, [s for s in scores if s.part == LAST])
    last.set(title="Connectivity, last layers averaged", xlabel="Layers, from the end")
    last.set_ylabel("AUC for the tokens read")
    _lines(single, [s for s in scores if s.part == SINGLE])
    single.set(title="Connectivity, one layer alone", xlabel="Layer, from the end")
    single.sharey(last)
    last.set_ylim(-0.03, 1.04)
    _dots(credit, [s for s in scores if s.part == CREDIT])
    handles, labels = last.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=2)
    num = max(score.num_problems for score in scores)
    figure.suptitle(f"Measured: {shortened(model)}, {num} generated problems; 0.5 is chance", fontsize=10, color=INK)
    best = max((s for s in scores if s.part == LAST), key=lambda s: s.mean)
    described = "; ".join(f"{s.preset} {s.setting} {s.mean:.3f}" for s in scores if s.part == CREDIT)
    description = (
        f"Area under the ROC curve for finding the tokens that {shortened(model)} reads from the image, over {num} "
        f"problems. Of averaged connectivity the best is {best.mean:.3f}: {best.reading} rows, layers averaged: "
        f"{best.setting}, {'corrected' if best.corrected else 'not corrected'} for bias. Of credit: {described}. "
        "0.5 is chance."
    )
    return FigureContent(
        "Which reading of the paper finds the true anchors", description, figure, list(map(asdict, scores))
    )


def read_scores(path: Path) -> list[AnchorScore]:
    """What this figure's CSV says; nothing where it was not drawn, or is damaged."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return TypeAdapter(list[AnchorScore]).validate_python(list(csv.DictReader(file)))
    except (OSError, ValueError):
        return []


def _lines(panel: Axes, scores: Sequence[AnchorScore]) -> None:
    from matplotlib.ticker import MaxNLocator

    for index, (reading, corrected) in enumerate(LINES):
        chosen = [s for s in scores if (s.reading, s.corrected) == (reading, corrected)]
        x = [int(score.setting.split()[0]) for score in chosen]
        label = f"{reading} rows, {'debiased' if corrected else 'as they are'}"
        # Drawn a little apart: debiasing hardly moves a line.
        panel.errorbar(
            [value + 0.05 * (index % 2) for value in x],
            [score.mean for score in chosen],
            [1.96 * score.standard_error for score in chosen],
            label=label,
            capsize=2,
            elinewidth=1,
            **style_of(index),
        )
    panel.axhline(0.5, color=INK, linestyle=(0, (1, 2)), linewidth=1)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))


def _dots(panel: Axes, scores: Sequence[AnchorScore]) -> None:
    best = {score.setting: score.mean for score in scores}  # of two presets, the later is the default one
    names = sorted(best, key=lambda name: (-best[name], name))
    labelled: set[str] = set()
    for score in scores:
        style = style_of(0) if score.preset == "default" else style_of(1) | {"markerfacecolor": PAGE}
        style |= {"linestyle": "none", "markeredgecolor": style["color"], "zorder": 2 + (score.preset == "default")}
        label = None if score.preset in labelled else f"{score.preset} preset"
        labelled.add(score.preset)
        panel.errorbar(
            [score.mean], [names.index(score.setting)], xerr=[1.96 * score.standard_error], label=label, **style
        )
    panel.axvline(0.5, color=INK, linestyle=(0, (1, 2)), linewidth=1)
    panel.set(title="Credit, last 4 layers", xlabel="AUC for the tokens read", xlim=(0, 1.06))
    name_bars(panel, [name.replace("_", " ").replace("atrl", "AT-RL") for name in names])
    panel.grid(visible=True, axis="y")
    panel.legend(loc="upper left", bbox_to_anchor=(0, -0.12), ncols=2)
