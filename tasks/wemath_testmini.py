"""WeMath testmini.

Qiao et al., "We-Math: Does Your Large Multimodal Model Achieve Human-like Mathematical Reasoning?", ACL 2025. 1,740
rows: 525 composite problems with all their sub-steps; every row has lettered options.

An example, a first step: "As shown in the diagram, there is a circle made of wire. What is the circumference of this
circle?", options "A. 15π;B. 10π;C. 5π; D. No correct answer". Gold: `B`.

"Overall accuracy" (the paper) is the mean over the 1,740 rows, the number computed here; the benchmark's own Score
(strict and loose) needs `key` and the composite, which are kept with every stored problem. `ID` names the composite,
not the row: it is the cluster of the standard error, and `key` makes it unique. The options are one string with uneven
separators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from atrl_bench.evaluation.prompts import split_options, with_choices
from atrl_bench.evaluation.protocol import Gold, Row, choice_gold, hooks, open_image, prepare

if TYPE_CHECKING:
    from PIL.Image import Image

COLUMNS = ("ID", "key", "question number", "question", "option", "answer", "image_path")
KEPT = ("key", "knowledge concept")
process_docs = prepare


def problem_id(row: Row) -> str:
    """Return composite, step and question number: `ID` alone is shared by a composite and its steps."""
    return f"{row['ID']}/{row['key']}/{row['question number']}"


def group(row: Row) -> str:
    """Return the composite, whose steps share their figure."""
    return row["ID"]


def question(row: Row) -> str:
    """Return the question with its options."""
    return with_choices(row["question"], split_options(row["option"]))


def gold(row: Row) -> Gold:
    """Return the letter of the right option."""
    return choice_gold(row["answer"], split_options(row["option"]))


def images(row: Row) -> list[Image]:
    """Return the one image; the column is called `image_path`, and holds it."""
    return [open_image(row["image_path"])]


doc_to_text, doc_to_visual, doc_to_target, process_results = hooks(problem_id, group, question, gold, images)
