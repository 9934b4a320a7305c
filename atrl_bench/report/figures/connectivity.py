"""How strongly response tokens look at the image: the distribution of the connectivity, and the anchor threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from atrl_bench.report.drawing import (
    BLUE,
    INK,
    ORANGE,
    PAGE,
    SOFT,
    FigureContent,
    mark_published,
    new_figure,
    shortened,
)
from atrl_bench.report.figures.sources import Source, answers, published
from atrl_bench.report.token_shades import num_top

NUM_BINS = 40
CSV_FIELDS = (
    "source",
    "connectivity_from",
    "connectivity_to",
    "num_below_threshold",
    "num_above_threshold",
    "threshold",
)


def make(source: Source) -> FigureContent:
    read = answers(source)
    tokens = [value for credit in read.credit.values() for value in credit.connectivity_T]
    num_problems = len({problem_id for problem_id, _ in read.credit})
    return picture(tokens, f"{read.label}, {num_problems} problems", published("connectivity"))


def picture(tokens: Sequence[float], label: str, printed: Sequence[Mapping[str, str]]) -> FigureContent:
    # The most connected 15 % of the tokens are above it.
    threshold = sorted(tokens, reverse=True)[min(num_top(len(tokens)), len(tokens) - 1)]
    edges = np.histogram_bin_edges(tokens, NUM_BINS)
    above = [value for value in tokens if value > threshold]
    below = [value for value in tokens if value <= threshold]
    figure, (measured, paper) = new_figure(10.2, 4.2, ncols=2, width_ratios=[2.6, 1])
    num_below, *_ = measured.hist(below, edges, color=BLUE, label=f"{len(below):,} tokens below", edgecolor=PAGE)
    anchors = f"{len(above):,} anchor tokens above"
    num_above, *_ = measured.hist(above, edges, color=ORANGE, hatch="///", edgecolor=PAGE, label=anchors)
    measured.axvline(threshold, color=INK, linestyle=(0, (4, 2)), linewidth=1.3, label=f"threshold {threshold:.4f}")
    measured.set_xlabel("Connectivity: share of a token's debiased attention that goes to the image")
    measured.set_ylabel("Tokens")
    measured.set_title(f"Measured: {shortened(label)}")
    measured.legend(loc="upper right")
    measured.grid(visible=False, axis="x")
    _paper_panel(paper, printed)
    rows: list[tuple[Any, ...]] = [
        ("measured", float(low), float(high), int(of_below), int(of_above), threshold)
        for low, high, of_below, of_above in zip(edges[:-1], edges[1:], num_below, num_above, strict=True)
    ]
    number = {row["kind"]: int(row["num_tokens"]) for row in printed}
    high, low = number["high connectivity"], number["low connectivity"]
    rows.append(("published", None, None, low, high, float(printed[0]["threshold"])))
    csv_rows = [dict(zip(CSV_FIELDS, row, strict=True)) for row in rows]
    share = 100 * len(above) / len(tokens)
    description = (
        f"Histogram of the connectivity of {len(tokens):,} tokens of {shortened(label)}. {len(above):,} of them "
        f"({share:.1f} %) are above the threshold of {threshold:.4f}. The median is "
        f"{float(np.median(tokens)):.4f}, the largest {max(tokens):.4f}. In a panel of its own the paper's counts: "
        f"{high} of {high + low} above {printed[0]['threshold']}."
    )
    return FigureContent("Distribution of cross-modal connectivity", description, figure, csv_rows)


def _paper_panel(panel: Any, printed: Sequence[Mapping[str, str]]) -> None:
    for row, colour, hatch in zip(printed, (ORANGE, BLUE), ("///", ""), strict=True):
        name = row["kind"].replace(" ", "\n")
        panel.bar([name], [int(row["num_tokens"])], color=colour, hatch=hatch, edgecolor=PAGE, width=0.6)
        top = (name, int(row["num_tokens"]))
        panel.annotate(row["num_tokens"], top, (0, 3), textcoords="offset points", ha="center")
    panel.margins(y=0.14)
    panel.set_ylabel("Tokens", color=SOFT)
    panel.grid(visible=False, axis="x")
    mark_published(panel, f"{printed[0]['num_samples']} samples, threshold {printed[0]['threshold']}")
