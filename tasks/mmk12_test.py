"""MMK12, the test split: school questions of four subjects.

Meng et al., "MM-Eureka: Exploring the Frontiers of Multimodal Reasoning with Rule-based Reinforcement Learning",
arXiv 2503.07365. 2,000 rows, 500 each of mathematics, physics, chemistry and biology. The options stand in the
question; gold: a letter, `A` to `D`.

Not the 500 free-form rows that lmms-eval calls `k12`. VPPO and PAPO look at these questions while they train.
"""

from __future__ import annotations

from atrl_bench.evaluation.hooks import Gold, Row, choice_gold, hooks, label, picture, prepare
from atrl_bench.models.templates import split_options

COLUMNS = ("question", "image", "answer", "subject")
KEPT = ("subject",)
BREAKDOWN = "subject"
NUM_OPTIONS = 4
process_docs = prepare
problem_id = label("row_number")  # no column is known to name it
group = problem_id
images = picture("image")


def question(row: Row) -> str:
    """The question, in which its options are."""
    return row["question"].replace("<image>", "").strip()


def gold(row: Row) -> Gold:
    """The letter, with its options where each stands on a line of its own."""
    options = split_options(row["question"])
    return choice_gold(row["answer"], options if len(options) == NUM_OPTIONS else ())


doc_to_text, doc_to_visual, doc_to_target, process_results = hooks(problem_id, group, question, gold, images)
