"""MMMU-Pro in its vision form: question and options are only in the picture.

Yue et al., "MMMU-Pro: A More Robust Multi-discipline Multimodal Understanding Benchmark", ACL 2025. The 1,730 problems
of the standard form, each as one screenshot or photograph; with the standard form's score it makes MMMU-Pro's number.

A row has the image, the options as a string that holds a Python list, and the letter of the right one. Only the image
is shown to the model.

The rows have no question, so the prompt is one fixed sentence; the options are there for the grader, which takes the
text of the right one as it takes its letter. lmms-eval compares the raw response with the letter here, so that "B."
counts as wrong and every chain of thought as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from atrl_bench.evaluation.hooks import Gold, Row, choice_gold, hooks, open_image, prepare, read_list

if TYPE_CHECKING:
    from PIL.Image import Image

COLUMNS = ("id", "image", "options", "answer", "subject")
KEPT = ("subject",)
BREAKDOWN = "subject"
process_docs = prepare


def problem_id(row: Row) -> str:
    """Return the row's id, which the standard form has too."""
    return row["id"]


def group(row: Row) -> str:
    """Return the problem itself."""
    return problem_id(row)


def question(row: Row) -> str:
    """Return nothing: the image asks."""
    return ""


def gold(row: Row) -> Gold:
    """Return the letter with its options."""
    return choice_gold(row["answer"], read_list(row["options"]))


def images(row: Row) -> list[Image]:
    """Return the one image."""
    return [open_image(row["image"])]


doc_to_text, doc_to_visual, doc_to_target, process_results = hooks(problem_id, group, question, gold, images)
