"""MMStar: questions that need their picture.

Chen et al., "Are We on the Right Way for Evaluating Large Vision-Language Models?", NeurIPS 2024. 1,500 rows, 250 of
each of six categories, three finer ones in each, chosen so that text alone does not answer them. The options stand in
the question; gold: a letter, `A` to `D`.

lmms-eval prints the mean over finer categories; categories have equal sizes, so that the mean over rows is the same.
"""

from __future__ import annotations

import re

from atrl_bench.evaluation.hooks import Gold, Row, choice_gold, hooks, label, picture, prepare
from atrl_bench.models.templates import split_options

COLUMNS = ("index", "question", "image", "answer", "category", "l2_category")
KEPT = ("category", "l2_category")
BREAKDOWN = "category"
NUM_OPTIONS = 4
process_docs = prepare
problem_id = label("index")
group = problem_id
images = picture("image")


def question(row: Row) -> str:
    """The question, in which its options are."""
    return row["question"].strip()


def gold(row: Row) -> Gold:
    """The letter, with its options where they follow the word: `Options: A: a cat, B: a dog, ...`."""
    listed = re.sub(r"\s*,\s*(?=[B-D]:)", "\n", row["question"].rpartition("Options:")[2].strip())
    options = split_options(listed)
    return choice_gold(row["answer"], options if len(options) == NUM_OPTIONS else ())


doc_to_text, doc_to_visual, doc_to_target, process_results = hooks(problem_id, group, question, gold, images)
