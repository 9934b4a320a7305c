"""MathVerse testmini: the five versions with an image, and Text Only as a task of its own.

Zhang et al., "MathVerse: Does Your Multi-modal LLM Truly See the Diagrams in Visual Math Problems?", ECCV 2024.
788 problems in five versions each, 3,940 rows, so that the mean over rows is the mean of the five versions' scores. The
788 Text Only rows are a set of their own that the leaderboard's number leaves out; they are asked in the one template
that speaks of no image.

An example, in its Text Dominant version: "As shown in the figure, in triangle ABC, it is known that angle
A = 80.0, angle B = 60.0, point D is on AB, DE parallel BC, then the size of angle CED is
()\\nChoices:\\nA:40°\\nB:60°\\n C:120°\\nD:140°". Gold: `D`. The same problem as Vision Only has an empty question: all
of it is drawn into the image.

Versions of one problem are one cluster of the standard error. Some gold answers are damaged or unusual and are kept as
they are where no reading is certain: `False`, `C` above `D`, letters beyond D; `(C)` is read as C, and the `掳` of
`118掳T` as a degree sign.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from atrl_bench.evaluation.hooks import Gold, Row, choice_gold, column, hooks, open_image, prepare, repair_latex
from atrl_bench.models.templates import render, split_options, with_choices

if TYPE_CHECKING:
    from PIL.Image import Image

COLUMNS = ("problem_index", "problem_version", "question", "image", "answer", "question_type")
KEPT = ("problem_version", "question_type")
BREAKDOWN = "problem_version"
process_docs = prepare


def problem_id(row: Row) -> str:
    return f"{row['problem_index']}/{row['problem_version']}"


group = column("problem_index")  # the problem that the five versions share


def question(row: Row) -> str:
    """The version's own text, nothing for Vision Only; options it contains are lettered like everywhere."""
    stem, options = _stem_and_options(row["question"])
    return with_choices(stem, options) if options else stem


def judge_question(row: Row) -> str:
    """The whole question in words, which of Vision Only the question column has none."""
    stem, options = _stem_and_options(row.get("question_for_eval") or row["question"])
    return with_choices(stem, options) if options else stem


def gold(row: Row) -> Gold:
    answer = repair_latex(row["answer"])
    if row["question_type"] != "multi-choice":
        return Gold(answer)
    return choice_gold(answer, _stem_and_options(row.get("question_for_eval") or row["question"])[1])


def images(row: Row) -> list[Image]:
    """The version's image; the column is text, and empty, where the version has none."""
    return [open_image(row["image"])] if row["image"] else []


def _stem_and_options(text: str) -> tuple[str, list[str]]:
    stem, _, options = text.partition("Choices:")
    return stem.strip(), split_options(options.strip())


doc_to_text, doc_to_visual, doc_to_target, process_results = hooks(problem_id, group, question, gold, images)


def doc_to_text_alone(row: Row, settings: Mapping[str, Any] | None = None) -> str:
    """The prompt of a Text Only row: the other two templates send the reader to an image."""
    return render(question(row), (settings or {}).get("template") or 0)
