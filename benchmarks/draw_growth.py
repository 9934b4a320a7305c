"""Draws the table that `store_growth.py` prints: seconds and peak megabytes of each command against answers.

python benchmarks/store_growth.py | tee growth.txt
python benchmarks/draw_growth.py growth.txt docs/store_growth.svg
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

LINE = re.compile(r"^ *([\d,]+) (\w.*?) +([\d.]+) s +([\d,]+) MB$", re.MULTILINE)


def curves(text: str) -> dict[str, list[tuple[int, float, float]]]:
    """Return answers, seconds and megabytes of each command."""
    points: dict[str, list[tuple[int, float, float]]] = {}
    for answers, command, seconds, megabytes in LINE.findall(text):
        point = int(answers.replace(",", "")), float(seconds), float(megabytes.replace(",", ""))
        points.setdefault(command, []).append(point)
    return points


def main(source: Path, target: Path) -> None:
    """Draw both quantities side by side on logarithmic axes."""
    # Text stays text and ids stay the same: the file is light, and differs only where a number does.
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "growth", "font.size": 8})
    figure, panels = plt.subplots(1, 2, figsize=(7.5, 3.4), layout="constrained")
    for command, points in curves(source.read_text(encoding="utf-8")).items():
        answers, *quantities = zip(*points, strict=True)
        for axes, values in zip(panels, quantities, strict=True):
            axes.loglog(answers, values, marker="o", markersize=3, linewidth=1, label=command)
    for axes, label in zip(panels, ("processor seconds", "peak MB"), strict=True):
        axes.set(xlabel="answers", ylabel=label)
        axes.grid(alpha=0.3)
    figure.legend(*panels[1].get_legend_handles_labels(), loc="outside right upper", fontsize=6)
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
