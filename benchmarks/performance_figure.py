"""Draws docs/images/performance.svg: how the credit grows with a response, and where the time of a step goes.

    python benchmarks/performance_figure.py

Measures nothing: the growth is what docs/performance.md says, the steps are those of docs/gpu_steps_h100.json.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from atrl_bench.report.drawing import COLOURS, FigureContent, figure_style, name_bars, new_figure, style_of, svg
from atrl_bench.results.files import write_atomically

DOCS = Path(__file__).resolve().parents[1] / "docs"
LENGTHS = (2048, 8192, 16384)
PHASES = {
    "forward passes": ("scoring", "forward"),
    "backward": ("backward",),
    "rows": ("attention_rows",),
    "all else, credit too": ("credit", "reward", "batching", "optimiser", "the rest"),
}


def growth(page: str) -> dict[str, list[float]]:
    """Milliseconds of a core at each of the lengths, by the table of the page."""

    def row(start: str) -> list[list[float]]:
        [line] = [line for line in page.splitlines() if line.startswith(f"| {start}")]
        threes = re.findall(r"([\d,.]+) / ([\d,.]+) / ([\d,.]+)", line.replace("2,048 / 8,192 / 16,384", ""))
        return [[float(number.replace(",", "")) for number in three] for three in threes]

    (_, whole), (*_, sketch, searched, metis) = row("credit alone"), row("the same from sketches")
    return {"whole rows": whole, "sketch, with the search": searched, "sketch": sketch, "METIS alone": metis}


def shares() -> dict[str, dict[str, float]]:
    """Percent of a step at the 7B shape in each phase, by tokens of a response."""
    steps = json.loads((DOCS / "gpu_steps_h100.json").read_text(encoding="utf-8"))["steps"]
    measured = [step for step in steps if (step["rows"], step["attention"]) == ("exact", "sdpa")]
    return {
        f"{step['tokens']:,} tokens": {
            name: 100 * sum(step["seconds"][phase] for phase in phases) / sum(step["seconds"].values())
            for name, phases in PHASES.items()
        }
        for step in measured
    }


def figure() -> FigureContent:
    lines, bars = growth((DOCS / "performance.md").read_text(encoding="utf-8")), shares()
    picture, (left, right) = new_figure(9, 3.4, ncols=2, width_ratios=(1, 1.15))
    for index, (name, milliseconds) in enumerate(lines.items()):
        left.plot(LENGTHS, milliseconds, label=name, **style_of(index))
    left.set(xscale="log", yscale="log", title="Credit of a response, ms of a core", xlabel="tokens")
    left.set_xticks(LENGTHS, [f"{length:,}" for length in LENGTHS])
    left.set_xticks([], minor=True)
    left.set_yticks((10, 100, 1000), ("10", "100", "1,000"))
    left.legend(fontsize=8)
    for index, name in enumerate(PHASES):
        begun = [sum(list(of_step.values())[:index]) for of_step in bars.values()]
        looks = {"color": COLOURS[index], "hatch": ("", "//", "..", "xx")[index], "label": name}
        right.barh(range(len(bars)), [of_step[name] for of_step in bars.values()], left=begun, **looks)
    name_bars(right, list(bars))
    right.set(title="A step at the 7B shape, one H100, %", xlim=(0, 100))
    right.legend(fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.45, -0.12))
    words = [f"{name}: {' / '.join(f'{value:g}' for value in line)} ms" for name, line in lines.items()]
    words += [
        f"{name}: {', '.join(f'{part} {value:.1f} %' for part, value in one.items())}" for name, one in bars.items()
    ]
    return FigureContent("How the credit grows, and where a step's time goes", "; ".join(words), picture)


def main() -> None:
    with figure_style():
        write_atomically(DOCS / "images" / "performance.svg", svg(figure(), "performance").encode())


if __name__ == "__main__":
    main()
