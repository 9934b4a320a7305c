"""InfoVQA validation.

Mathew et al., "InfographicVQA", WACV 2022. 2,801 questions about infographics, each with one or more accepted answers.

An example: "What percentage of recruiters search for candidates on social media?". Gold: `94%` or `94`.

ANLS: the similarity to the nearest accepted answer by edit distance, and nothing below one half. The subset is the one
called `InfographicVQA` in the dataset that also holds DocVQA.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from atrl_bench.evaluation.hooks import Gold, Row, column, hooks, image_names, label, picture, prepare

if TYPE_CHECKING:
    from datasets import Dataset

COLUMNS = ("questionId", "question", "answers", "answer_type", "image")
KEPT = ("answer_type",)
HINT = "Answer with a single word or phrase."


def process_docs(split: Dataset) -> Dataset:
    """The rows with the name of the infographic, which several rows share."""
    rows = prepare(split)
    return rows.add_column("infographic", image_names(rows, "image"))


problem_id = label("questionId")
group = column("infographic")
images = picture("image")


def question(row: Row) -> str:
    return f"{HINT}\n{row['question'].strip()}"


def gold(row: Row) -> Gold:
    return Gold(row["answers"][0], metric="anls", references=tuple(row["answers"]))


doc_to_text, doc_to_visual, doc_to_target, process_results = hooks(problem_id, group, question, gold, images)
