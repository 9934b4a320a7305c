"""InfoVQA validation.

Mathew et al., "InfographicVQA", WACV 2022. 2,801 questions about infographics, each with one or more accepted answers.

An example: "What percentage of recruiters search for candidates on social media?". Gold: `94%` or `94`.

ANLS: the similarity to the nearest accepted answer by edit distance, and nothing below one half. The subset is the one
called `InfographicVQA` in the dataset that also holds DocVQA.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from atrl_bench.evaluation.hooks import Gold, Row, hooks, image_names, open_image, prepare

if TYPE_CHECKING:
    from datasets import Dataset
    from PIL.Image import Image

COLUMNS = ("questionId", "question", "answers", "answer_type", "image")
KEPT = ("answer_type",)
HINT = "Answer with a single word or phrase."


def process_docs(split: Dataset) -> Dataset:
    """Return the rows with the name of the infographic, which several rows share."""
    rows = prepare(split)
    return rows.add_column("infographic", image_names(rows, "image"))


def problem_id(row: Row) -> str:
    """Return the question's number."""
    return str(row["questionId"])


def group(row: Row) -> str:
    """Return the infographic."""
    return row["infographic"]


def question(row: Row) -> str:
    """Return how long an answer is, and the question."""
    return f"{HINT}\n{row['question'].strip()}"


def gold(row: Row) -> Gold:
    """Return the accepted answers."""
    return Gold(row["answers"][0], metric="anls", references=tuple(row["answers"]))


def images(row: Row) -> list[Image]:
    """Return the infographic."""
    return [open_image(row["image"])]


doc_to_text, doc_to_visual, doc_to_target, process_results = hooks(problem_id, group, question, gold, images)
