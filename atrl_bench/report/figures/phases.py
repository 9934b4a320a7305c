"""Where the time of a training step goes, by method; and what the paper prints of its own profile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from atrl_bench.report.figures.drawing import (
    COLOURS,
    HATCHES,
    INK,
    PAGE,
    BarPart,
    FigureContent,
    mark_published,
    name_bars,
    percent_ticks,
    plain,
    rows_of,
    sheet,
    stacked_bars,
)
from atrl_bench.report.figures.sources import Source, Training, published, trainings

# In the order of a step. The last two are all that credit adds.
NAMES = {
    "generation": "generation",
    "reward": "grading",
    "batching": "batching",
    "scoring": "scoring passes",
    "forward_backward": "forward and backward",
    "attention_rows": "attention rows",
    "credit": "graph and credit",
}
ADDED = ("attention_rows", "credit")


def make(source: Source) -> FigureContent:
    """Return the figure of every finished training in the run folder."""
    seconds = phase_seconds(trainings(source))
    if not seconds:
        raise source.missing(f"No training in {source.run_dir.root} says how long its phases took.")
    return picture(seconds, published("phases"))


def phase_seconds(trainings: Sequence[Training]) -> dict[str, dict[str, float]]:
    """Return by method the seconds of each phase over all its steps and seeds."""
    seconds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for training in trainings:
        for step in training.steps:
            for name, value in step.items():
                if name.startswith("seconds/") and isinstance(value, int | float):
                    seconds[training.label][name.removeprefix("seconds/")] += float(value)
    return {label: dict(of_phase) for label, of_phase in seconds.items() if sum(of_phase.values()) > 0}


def picture(seconds: Mapping[str, Mapping[str, float]], printed: Sequence[Mapping[str, str]]) -> FigureContent:
    """Return the figure: measured seconds by method and phase, and the shares that the paper prints."""
    phases = [*NAMES, *sorted({phase for of_phase in seconds.values() for phase in of_phase} - NAMES.keys())]
    phases = [phase for phase in phases if any(phase in of_phase for of_phase in seconds.values())]
    labels = list(seconds)
    height = 1.9 + 0.42 * len(labels)
    figure, (measured, paper) = sheet(10.4, height + 1.7, nrows=2, height_ratios=[height, 1.25])
    shares = {
        phase: [100 * seconds[label].get(phase, 0.0) / sum(seconds[label].values()) for label in labels]
        for phase in phases
    }
    parts = [
        BarPart(
            NAMES.get(phase, plain(phase)),
            of_phase,
            [f"{share:.0f} %" if share >= 7 else "" for share in of_phase],
            COLOURS[index % len(COLOURS)],
            HATCHES[index % len(HATCHES)],
        )
        for index, (phase, of_phase) in enumerate(shares.items())
    ]
    stacked_bars(measured, labels, parts, -0.16)
    rows: list[tuple[Any, ...]] = [
        ("measured", label, phase, seconds[label][phase], share)
        for phase, of_phase in shares.items()
        for label, share in zip(labels, of_phase, strict=True)
        if phase in seconds[label]
    ]
    added = {
        label: 100 * sum(seconds[label].get(phase, 0.0) for phase in ADDED) / sum(seconds[label].values())
        for label in labels
    }
    for y, share in enumerate(added.values()):
        if share:
            measured.text(101, y, f"credit adds {share:.1f} %", va="center", ha="left", fontsize=9)
    measured.set_xlim(0, 124)
    measured.spines["left"].set_visible(False)
    measured.set_title("Measured share of a training step")
    start = 0.0
    for index, row in enumerate(printed):
        share = float(row["percent"])
        colour, hatch = COLOURS[(index + 3) % len(COLOURS)], HATCHES[index + 1]
        paper.barh([0], [share], left=[start], height=0.55, color=colour, hatch=hatch, edgecolor=PAGE)
        inside = share > 10
        text = f"{row['phase']} {row['percent']} %"
        paper.text(
            start + share / 2 if inside else start + share + 1,
            0,
            text if inside else text.replace(" computation", ""),
            ha="center" if inside else "left",
            va="center",
            fontsize=9,
            color=INK,
            bbox={"facecolor": PAGE, "edgecolor": "none", "pad": 2} if inside else None,
        )
        start += share
        rows.append(("published", "Paper", row["phase"], None, share))
    paper.set_xlim(0, 124)
    percent_ticks(paper)
    paper.spines["left"].set_visible(False)
    name_bars(paper, ["Paper"])
    mark_published(paper, f"one A100; without generation, and adding up to {start:.1f} %")
    in_words = "; ".join(f"{plain(label)} {share:.1f} %" for label, share in added.items() if share)
    description = (
        "Stacked bars of the share of each phase of a training step, one bar for each method. What credit adds "
        f"(attention rows, graph and credit): {in_words or 'no method here has it'}. In a panel of its own the "
        "paper's profile: " + ", ".join(f"{row['phase']} {row['percent']} %" for row in printed) + "."
    )
    return FigureContent(
        "Phases of a training step",
        description,
        figure,
        rows_of(("source", "method", "phase", "seconds", "percent"), rows),
    )
