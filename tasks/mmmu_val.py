"""MMMU validation, and MMMU-Pro in its standard form with ten options.

Yue et al., "MMMU: A Massive Multi-discipline Multimodal Understanding and Reasoning Benchmark for Expert AGI", CVPR
2024: 900 rows, 30 of each of 30 subjects, a few of them open questions. Yue et al., "MMMU-Pro: A More Robust
Multi-discipline Multimodal Understanding Benchmark", ACL 2025: 1,730 rows, all multiple choice, with up to ten options.

A row, abridged: id `validation_Accounting_1`, question "<image 1> Baxter Company has a relevant range of production
between 15,000 and 30,000 units. [...]", options the string `"['$6', '$7', '$8', '$9']"`, question_type
`multiple-choice`, images in `image_1` to `image_7`. Gold: `B`.

The official MMMU has one configuration a subject; the rows come from lmms-eval's copy, which has them all in one, and
the subject from the id. Images stand where the question or an option names them. `options` holds a Python list as a
string, and so does `answer` where an open question has several accepted answers: any of them counts. An answer that
names no option is "unparseable", where the official code draws an option at random. Rows of MMMU-Pro with fewer than
ten options are meant to be so; options were shuffled, so "either of the above" there is to be taken with care.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from atrl_bench.evaluation.hooks import (
    Gold,
    Row,
    choice_gold,
    column,
    hooks,
    interleaved,
    numbered_images,
    open_gold,
    prepare,
    read_list,
)
from atrl_bench.models.templates import with_choices

if TYPE_CHECKING:
    from datasets import Dataset
    from PIL.Image import Image

COLUMNS = ("id", "question", "options", "image_1", "answer")
KEPT = ("subject", "question_type", "topic_difficulty")
BREAKDOWN = "subject"


def process_docs(split: Dataset) -> Dataset:
    """The prepared rows with their subject, which in MMMU only the id tells: `validation_Art_Theory_3`."""
    rows = prepare(split)
    if "subject" in rows.column_names:
        return rows
    return rows.add_column("subject", [re.sub(r"^[a-z]+_|_\d+$", "", name) for name in rows["id"]])


problem_id = column("id")
group = problem_id


def question(row: Row) -> str:
    """The question, with its options where it has some; `<image 1>` stands where an image belongs."""
    options = read_list(row["options"])
    return with_choices(row["question"], options) if options else row["question"]


def gold(row: Row) -> Gold:
    if row.get("question_type") == "open":
        return open_gold(row["answer"])
    return choice_gold(row["answer"], read_list(row["options"]))


def images(row: Row) -> list[Image]:
    """All images, for a model class that puts them before the text."""
    return list(numbered_images(row).values())


doc_to_text, doc_to_visual, doc_to_target, process_results = hooks(problem_id, group, question, gold, images)
doc_to_messages = interleaved(doc_to_text, numbered_images)
