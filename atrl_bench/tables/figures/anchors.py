"""How well each reading of the paper finds the tokens that are read from the image: by layer, row and setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from atrl_bench.tables.anchor_study import CREDIT, LAST, SINGLE, AnchorScore, known_problems, study
from atrl_bench.tables.figures.drawing import INK, LINE, PAGE, Picture, no_grid, plain, sheet, style_of, whole_numbers
from atrl_bench.tables.figures.sources import Source

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_PROBLEMS = 60  # more would change no digit that is printed
LINES = [("predicting", True), ("predicting", False), ("own", True), ("own", False)]


def make(source: Source) -> Picture:
    """Return the figure of the profile's base model, or of the one that is named, on generated problems."""
    from atrl_bench.evaluation import models

    ref = models.find_model(source.model or source.place.profile.model)
    sizes = source.place.profile.evaluation
    model = models.load(ref, min_pixels=sizes.min_pixels, max_pixels=sizes.max_pixels, dtype=sizes.dtype)
    return picture(study(model, known_problems(min(MAX_PROBLEMS, source.num_problems))), ref.name)


def picture(scores: Sequence[AnchorScore], model: str) -> Picture:
    """Return the figure of these scores."""
    num_settings = sum(score.part == CREDIT for score in scores)
    figure, (last, single, credit) = sheet(
        11.4, max(4.6, 1.6 + 0.27 * num_settings), ncols=3, width_ratios=[1, 1, 1.35]
    )
    _lines(last, [s for s in scores if s.part == LAST])
    last.set(title="Connectivity, last layers averaged", xlabel="Layers, from the end")
    last.set_ylabel("AUC for the tokens read")
    _lines(single, [s for s in scores if s.part == SINGLE])
    single.set(title="Connectivity, one layer alone", xlabel="Layer, from the end")
    single.sharey(last)
    last.set_ylim(-0.03, 1.04)
    _dots(credit, sorted((s for s in scores if s.part == CREDIT), key=lambda s: (-s.mean, s.setting)))
    handles, labels = last.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=2)
    num = max(score.num_problems for score in scores)
    figure.suptitle(f"Measured: {plain(model)}, {num} generated problems; 0.5 is chance", fontsize=10, color=INK)
    rows: list[dict[str, Any]] = [
        {
            "part": score.part,
            "setting": score.setting,
            "rows": score.reading,
            "bias_corrected": int(score.corrected),
            "mean_auc": score.mean,
            "standard_error": score.standard_error,
            "num_problems": score.num_problems,
        }
        for score in scores
    ]
    best = max((s for s in scores if s.part == LAST), key=lambda s: s.mean)
    described = "; ".join(f"{s.setting} {s.mean:.3f}" for s in scores if s.part == CREDIT)
    description = (
        f"Area under the ROC curve for finding the tokens that {plain(model)} reads from the image, over {num} "
        f"problems. Of averaged connectivity the best is {best.mean:.3f}: {best.reading} rows, layers averaged: "
        f"{best.setting}, {'corrected' if best.corrected else 'not corrected'} for bias. Of credit: {described}. "
        "0.5 is chance."
    )
    return Picture("Which reading of the paper finds the true anchors", description, figure, rows)


def _lines(panel: Axes, scores: Sequence[AnchorScore]) -> None:
    for place, (reading, corrected) in enumerate(LINES):
        chosen = [s for s in scores if (s.reading, s.corrected) == (reading, corrected)]
        x = [int(score.setting.split()[0]) for score in chosen]
        label = f"{reading} rows, {'debiased' if corrected else 'as they are'}"
        # Drawn a little apart: debiasing hardly moves a line.
        panel.errorbar(
            [value + 0.05 * (place % 2) for value in x],
            [score.mean for score in chosen],
            [1.96 * score.standard_error for score in chosen],
            label=label,
            capsize=2,
            elinewidth=1,
            **style_of(place),
        )
    panel.axhline(0.5, color=INK, linestyle=(0, (1, 2)), linewidth=1)
    whole_numbers(panel)


def _dots(panel: Axes, scores: Sequence[AnchorScore]) -> None:
    names = [score.setting for score in scores]
    for place, score in enumerate(scores):
        panel.plot([0, score.mean], [names[place]] * 2, color=LINE, linewidth=1, zorder=1)
        style = style_of(0 if score.reading == "predicting" else 2) | {"linestyle": "none"}
        panel.errorbar([score.mean], [names[place]], xerr=[1.96 * score.standard_error], capsize=2, **style)
        panel.annotate(
            f"{score.mean:.2f}",
            (score.mean, names[place]),
            (0, 4),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=8,
            color=INK,
            bbox={"facecolor": PAGE, "edgecolor": "none", "pad": 0.2, "alpha": 0.0},
        )
    panel.axvline(0.5, color=INK, linestyle=(0, (1, 2)), linewidth=1)
    panel.set(title="Credit, by setting and rule", xlabel="AUC for the tokens read", xlim=(0, 1.06))
    panel.invert_yaxis()
    panel.tick_params(axis="y", length=0)
    no_grid(panel, "y")
