"""TextVQA validation.

Singh et al., "Towards VQA Models That Can Read", CVPR 2019. 5,000 questions about text in photographs, each answered by
ten annotators.

An example: "what is the brand of this camera?", ten answers, of which "dakota digital" seven times. An answer that n of
the other annotators gave is worth min(1, n/3), averaged over leaving out each annotator.

`gold` is the answer most annotators gave, to be read; the score compares with all ten. Where fewer than four agree even
that answer gets less than a point. The question stays as it was asked: lmms-eval's `capitalize` puts the names in it
into lower case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from atrl_bench.evaluation.hooks import Gold, Row, hooks, open_image, prepare
from atrl_bench.grading.scorers.text import majority

if TYPE_CHECKING:
    from PIL.Image import Image

COLUMNS = ("image_id", "question_id", "question", "image", "answers")
KEPT = ()
HINT = "Answer with a single word or phrase."
process_docs = prepare


def problem_id(row: Row) -> str:
    """Return the question's number."""
    return str(row["question_id"])


def group(row: Row) -> str:
    """Return the photograph."""
    return row["image_id"]


def question(row: Row) -> str:
    """Return how long an answer is, and the question."""
    return f"{HINT}\n{row['question'].strip()}"


def gold(row: Row) -> Gold:
    """Return the annotators' answers, the most frequent first."""
    return Gold(majority(row["answers"]), metric="vqa", references=tuple(row["answers"]))


def images(row: Row) -> list[Image]:
    """Return the photograph."""
    return [open_image(row["image"])]


doc_to_text, doc_to_visual, doc_to_target, process_results = hooks(problem_id, group, question, gold, images)
