"""The credit of each token of one response, beside the image it was read from.

A token's ground is blue below a credit of 1 and orange above, on one scale for all responses; the 15 % with the most
are underlined, unless they tie with others.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from atrl_bench.experiments.answer_credit import TokenCredit, prompts_of_cell
from atrl_bench.report.figures.clusters import case
from atrl_bench.report.figures.drawing import BLUE, INK, LINE, ORANGE, SOFT, FigureContent, bare, plain, rows_of, sheet
from atrl_bench.report.figures.sources import Source
from atrl_bench.report.figures.tokens import answers
from atrl_bench.report.figures.words import text_width
from atrl_bench.report.token_shades import LEVELS, level, top_tokens

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
        y = -box.line * LINE_HEIGHT
        shade = level(credit.credit_T[t])
        text.add_patch(_rectangle(box.x, y - 0.36 * LINE_HEIGHT, box.width, 0.72 * LINE_HEIGHT, shade))
        text.text(box.x + box.width / 2, y, box.text, fontsize=SIZE, ha="center", va="center_baseline")
        if t in top:
            text.plot([box.x + 1, box.x + box.width - 1], [y - 0.38 * LINE_HEIGHT] * 2, color=INK, linewidth=1.8)
    if len(credit.texts) > MAX_TOKENS:
        y = -num_lines * LINE_HEIGHT
        text.text(0, y, f"… and {len(credit.texts) - MAX_TOKENS} tokens more, in the CSV", fontsize=9, color=SOFT)
    depth = max((num_lines + 1.7) * LINE_HEIGHT, 72 * height - 50)
    text.set(xlim=(-4, WIDTH + 4), ylim=(0.8 * LINE_HEIGHT - depth, 0.8 * LINE_HEIGHT))
    _legend(text, -(num_lines + 0.35) * LINE_HEIGHT)
    text.set_title(f"Measured: {plain(label, 80)}")
    bare(text)
    tokens = zip(credit.texts, credit.credit_T, credit.connectivity_T, credit.cluster_T, strict=True)
    rows = rows_of(CSV_FIELDS, [(t, *token, int(t in top)) for t, token in enumerate(tokens)])
    named = ", ".join(f"{boxes[t].text} ({credit.credit_T[t]:.2f})" for t in sorted(top) if t < len(boxes))
    description = (
        f"A response of {len(credit.texts)} tokens ({plain(label, 80)}) beside the image, each token on a ground "
        f"that is blue below a credit of 1 and orange above. The credit reaches from {low:.2f} to {high:.2f}. "
        + (f"Underlined, the 15 % with the most: {plain(named, 600)}." if named else "No 15 % stand out.")
    )
    return FigureContent("Credit of the tokens of one response", description, figure, rows)


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


def _rectangle(x: float, y: float, width: float, height: float, shade: int) -> Any:
    from matplotlib.patches import Rectangle

    colour, alpha = ORANGE if shade > 0 else BLUE, DARKEST * abs(shade) / LEVELS
    return Rectangle((x, y), width, height, facecolor=colour, alpha=alpha, linewidth=0)


def _legend(panel: Any, y: float) -> None:
    panel.text(0, y, "credit 0", fontsize=9, color=SOFT, va="center")
    for step in range(-LEVELS, LEVELS + 1):
        panel.add_patch(_rectangle(48 + 13 * (step + LEVELS), y - 6, 13, 12, step))
    panel.text(198, y, "2 or more", fontsize=9, color=SOFT, va="center")
    panel.text(255, y, "underlined: the 15 % with the most", fontsize=9, color=SOFT, va="center")
