"""The credit of each token of one response, beside the image it was read from.

A token's ground is the darker the more credit it has; the 15 % with the most are underlined as well.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from atrl_bench.experiments.answer_credit import TokenCredit, prompts_of_cell
from atrl_bench.report.figures.clusters import case
from atrl_bench.report.figures.drawing import INK, LINE, ORANGE, SOFT, FigureContent, bare, plain, rows_of, sheet
from atrl_bench.report.figures.sources import Source
from atrl_bench.report.figures.tokens import ANCHOR_FRACTION, answers
from atrl_bench.report.figures.words import text_width

if TYPE_CHECKING:
    from PIL.Image import Image

SIZE, LINE_HEIGHT, WIDTH = 13.0, 31.0, 470.0  # of the text, in points
MAX_TOKENS = 240  # drawn; the CSV has all
DARKEST = 0.45  # text on it keeps its contrast in both themes
IMAGE_SIDE = 448  # pixels of the embedded picture
CSV_FIELDS = ("position", "token", "credit", "connectivity", "cluster", "is_top_15_percent")


@dataclass(frozen=True)
class Box:
    """A token's place in the text: its left edge and line, its width, what is written there."""

    x: float
    line: int
    width: float
    text: str


def make(source: Source) -> FigureContent:
    """Return the figure of the same answer that the clusters are shown of."""
    read = answers(source)
    problem_id, repeat = case(read)
    with source.open_store() as store:
        prompt = prompts_of_cell(store, read.cell.key, source.run_dir, {problem_id})[problem_id]
    sample = read.samples[problem_id, repeat]
    verdict = sample.verdict.state if sample.verdict else "not graded"
    label = f"{read.label}, problem {problem_id}, repeat {repeat}, {verdict}"
    return picture(read.credit[problem_id, repeat], label, sample.problem.question, prompt.images[:1])


def picture(credit: TokenCredit, label: str, question: str, images: Sequence[Image]) -> FigureContent:
    """Return the figure of one response; of an answer to a video, or to words alone, without a picture."""
    boxes = laid_out(credit.texts[:MAX_TOKENS])
    num_lines = boxes[-1].line + 1
    question_lines = textwrap.wrap(plain(question, 240), 34) or [""]
    height = max(2.9 + 0.18 * len(question_lines), 1.1 + num_lines * LINE_HEIGHT / 72)
    figure, (image_panel, text) = sheet(10.2, height, ncols=2, width_ratios=[1, 2.35])
    _image(image_panel, images, question_lines)
    top = top_tokens(credit.credit_T)
    low, high = min(credit.credit_T), max(credit.credit_T)
    for t, box in enumerate(boxes):
        share = (credit.credit_T[t] - low) / (high - low) if high > low else 0.0
        y = -box.line * LINE_HEIGHT
        text.add_patch(_rectangle(box.x, y - 0.36 * LINE_HEIGHT, box.width, 0.72 * LINE_HEIGHT, DARKEST * share))
        text.text(box.x + box.width / 2, y, box.text, fontsize=SIZE, ha="center", va="center_baseline")
        if t in top:
            text.plot([box.x + 1, box.x + box.width - 1], [y - 0.38 * LINE_HEIGHT] * 2, color=INK, linewidth=1.8)
    if len(credit.texts) > MAX_TOKENS:
        y = -num_lines * LINE_HEIGHT
        text.text(0, y, f"… and {len(credit.texts) - MAX_TOKENS} tokens more, in the CSV", fontsize=9, color=SOFT)
    depth = max((num_lines + 1.7) * LINE_HEIGHT, 72 * height - 50)
    text.set(xlim=(-4, WIDTH + 4), ylim=(0.8 * LINE_HEIGHT - depth, 0.8 * LINE_HEIGHT))
    _legend(text, -(num_lines + 0.35) * LINE_HEIGHT, low, high)
    text.set_title(f"Measured: {plain(label, 80)}")
    bare(text)
    tokens = zip(credit.texts, credit.credit_T, credit.connectivity_T, credit.cluster_T, strict=True)
    rows = rows_of(CSV_FIELDS, [(t, *token, int(t in top)) for t, token in enumerate(tokens)])
    named = ", ".join(f"{boxes[t].text} ({credit.credit_T[t]:.2f})" for t in sorted(top) if t < len(boxes))
    description = (
        f"A response of {len(credit.texts)} tokens ({plain(label, 80)}), each token on a ground that is the darker the "
        f"more credit it has, beside the image. The credit reaches from {low:.2f} to {high:.2f}. Underlined, the 15 % "
        f"with the most, and those with as much: {plain(named, 600)}."
    )
    return FigureContent("Credit of the tokens of one response", description, figure, rows)


def top_tokens(credit_T: Sequence[float]) -> set[int]:
    """Return the places of the 15 % of tokens, rounded up, with the most credit, and of those that have as much.

    All tokens of a cluster have the same credit. Where every token has, there are none.
    """
    if not max(credit_T) > min(credit_T):
        return set()
    least = sorted(credit_T, reverse=True)[math.ceil(ANCHOR_FRACTION * len(credit_T)) - 1]
    return {t for t, value in enumerate(credit_T) if value >= least}


def laid_out(texts: Sequence[str]) -> list[Box]:
    """Return the tokens as running text: lines as long as they fit, and where the response has line breaks."""
    boxes = []
    x, line = 0.0, 0
    for text in texts:
        visible_text = plain(text, 40) if text.strip() else ("⟨end⟩" if not text else "")
        width = text_width(visible_text, SIZE) + 3 if visible_text else 0.42 * SIZE
        if text.startswith(" ") and visible_text and x:
            x += 0.28 * SIZE
        if x + width > WIDTH and x:
            x, line = 0.0, line + 1
        boxes.append(Box(x, line, width, visible_text))
        x += width + 1
        if "\n" in text:
            x, line = 0.0, line + 1
    return boxes


def _image(panel: Any, images: Sequence[Image], question_lines: Sequence[str]) -> None:
    import numpy as np

    for image in images:
        small = image.copy()
        small.thumbnail((IMAGE_SIDE, IMAGE_SIDE))
        panel.imshow(np.asarray(small), interpolation="nearest")
    if not images:
        panel.text(0.5, 0.5, "no still image", ha="center", va="center", transform=panel.transAxes, color=SOFT)
    bare(panel)
    for spine in panel.spines.values() if images else ():
        spine.set(visible=True, color=LINE)
    panel.set_xlabel("\n".join(question_lines), fontsize=9, loc="left", labelpad=8)


def _rectangle(x: float, y: float, width: float, height: float, alpha: float) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), width, height, facecolor=ORANGE, alpha=alpha, linewidth=0)


def _legend(panel: Any, y: float, low: float, high: float) -> None:
    panel.text(0, y, f"credit {low:.2f}", fontsize=9, color=SOFT, va="center")
    for step in range(6):
        panel.add_patch(_rectangle(66 + 18 * step, y - 6, 18, 12, DARKEST * step / 5))
    panel.text(180, y, f"{high:.2f}", fontsize=9, color=SOFT, va="center")
    panel.text(220, y, "underlined: as much as the 15 % with the most", fontsize=9, color=SOFT, va="center")
