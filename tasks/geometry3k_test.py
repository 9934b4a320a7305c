"""Geometry3K, the test split, with free-form answers.

Lu et al., "Inter-GPS: Interpretable Geometry Problem Solving with Formal Language and Symbolic Reasoning", ACL 2021, as
EasyR1, verl, VPPO, PAPO and NoisyRollout ask it: 601 rows, the value itself is asked for, without the four options.
What lmms-eval calls `geometry3k` shows options and asks for a letter: another task under the same name.

An example: "Find x.", gold `2 \\sqrt { 221 }`. EasyR1, verl and NoisyRollout train on its training split.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from atrl_bench.evaluation.hooks import Gold, Row, hooks, label, open_image, prepare, repair_latex

if TYPE_CHECKING:
    from PIL.Image import Image

COLUMNS = ("images", "problem", "answer")
KEPT = ()
process_docs = prepare
problem_id = label("row_number")  # no column names it
group = problem_id


def question(row: Row) -> str:
    """The question without the mark of its image, which comes first."""
    return row["problem"].replace("<image>", "").strip()


def gold(row: Row) -> Gold:
    return Gold(repair_latex(row["answer"]))


def images(row: Row) -> list[Image]:
    return [open_image(image) for image in row["images"]]


doc_to_text, doc_to_visual, doc_to_target, process_results = hooks(problem_id, group, question, gold, images)
