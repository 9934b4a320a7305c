"""How strongly response tokens look at the image: the distribution of the connectivity, and the anchor threshold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from atrl_bench.report.figures.drawing import (
    BLUE,
    INK,
    ORANGE,
    PAGE,
    SOFT,
    FigureContent,
    mark_published,
    no_grid,
    plain,
    sheet,
)
from atrl_bench.report.figures.sources import Source, published
from atrl_bench.report.figures.tokens import ANCHOR_FRACTION, answers

NUM_BINS = 40


def make(source: Source) -> FigureContent:
    """Return the figure of the tokens of one model's answers."""
    read = answers(source)
    tokens = [value for credit in read.credit.values() for value in credit.connectivity_T]
    num_problems = len({problem_id for problem_id, _ in read.credit})
    return picture(tokens, f"{read.label}, {num_problems} problems", published("connectivity"))


def threshold_of(tokens: Sequence[float]) -> float:
    """Return the connectivity that the most connected 15 % of the tokens, rounded down, are above."""
    num_anchors = math.floor(ANCHOR_FRACTION * len(tokens))
    return sorted(tokens, reverse=True)[num_anchors]


def picture(tokens: Sequence[float], label: str, printed: Sequence[Mapping[str, str]]) -> FigureContent:
    """Return the figure of these connectivities of tokens, with what the paper prints of its own."""
    threshold = threshold_of(tokens)
    num_above = sum(value > threshold for value in tokens)
    edges = np.histogram_bin_edges(tokens, NUM_BINS)
    groups = {
        "above": [value for value in tokens if value > threshold],
        "below": [value for value in tokens if value <= threshold],
    }
    counts = {name: np.histogram(values, edges)[0] for name, values in groups.items()}
    figure, (measured, paper) = sheet(10.2, 4.2, ncols=2, width_ratios=[2.6, 1])
    measured.hist([groups["below"]], edges, color=BLUE, label=f"{len(groups['below']):,} tokens below", edgecolor=PAGE)
    measured.hist(
        [groups["above"]], edges, color=ORANGE, hatch="///", edgecolor=PAGE, label=f"{num_above:,} anchor tokens above"
    )
    measured.axvline(threshold, color=INK, linestyle=(0, (4, 2)), linewidth=1.3, label=f"threshold {threshold:.4f}")
    measured.set_xlabel("Connectivity: share of a token's debiased attention that goes to the image")
    measured.set_ylabel("Tokens")
    measured.set_title(f"Measured: {plain(label)}")
    measured.legend(loc="upper right")
    no_grid(measured, "x")
    _paper_panel(paper, printed)
    rows: list[dict[str, Any]] = [
        {
            "source": "measured",
            "connectivity_from": float(low),
            "connectivity_to": float(high),
            "num_below_threshold": int(below),
            "num_above_threshold": int(above),
            "threshold": threshold,
        }
        for low, high, below, above in zip(edges[:-1], edges[1:], counts["below"], counts["above"], strict=True)
    ]
    number = {row["kind"]: int(row["num_tokens"]) for row in printed}
    high, low = number["high connectivity"], number["low connectivity"]
    rows.append(
        {
            "source": "published",
            "connectivity_from": None,
            "connectivity_to": None,
            "num_below_threshold": low,
            "num_above_threshold": high,
            "threshold": float(printed[0]["threshold"]),
        }
    )
    share = 100 * num_above / len(tokens)
    description = (
        f"Histogram of the connectivity of {len(tokens):,} tokens of {plain(label)}. {num_above:,} of them "
        f"({share:.1f} %) are above the threshold of {threshold:.4f}. The median is "
        f"{float(np.median(tokens)):.4f}, the largest {max(tokens):.4f}. In a panel of its own the paper's counts: "
        f"{high} of {high + low} above {printed[0]['threshold']}."
    )
    return FigureContent("Distribution of cross-modal connectivity", description, figure, rows)


def _paper_panel(panel: Any, printed: Sequence[Mapping[str, str]]) -> None:
    for row, colour, hatch in zip(printed, (ORANGE, BLUE), ("///", ""), strict=True):
        name = row["kind"].replace(" ", "\n")
        panel.bar([name], [int(row["num_tokens"])], color=colour, hatch=hatch, edgecolor=PAGE, width=0.6)
        top = (name, int(row["num_tokens"]))
        panel.annotate(row["num_tokens"], top, (0, 3), textcoords="offset points", ha="center")
    panel.margins(y=0.14)
    panel.set_ylabel("Tokens", color=SOFT)
    no_grid(panel, "x")
    mark_published(panel, f"{printed[0]['num_samples']} samples, threshold {printed[0]['threshold']}")
