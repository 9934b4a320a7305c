"""LogicVista: puzzles of five kinds of reasoning.

Xiao et al., "LogicVista: Multimodal LLM Logical Reasoning Benchmark in Visual Contexts", arXiv 2407.04973. 448 rows by
its paper: inductive, deductive, numerical, spatial and mechanical reasoning. The options stand in the picture or in the
question. Gold: a letter, or several, `A, C`, which are right together and in any order.
"""

from __future__ import annotations

from atrl_bench.evaluation.hooks import Gold, Row, choice_gold, column, hooks, label, picture, prepare

COLUMNS = ("id", "question", "answer", "image", "skill", "broad_capability", "specific_capability")
KEPT = ("skill", "broad_capability", "specific_capability")
BREAKDOWN = "skill"
process_docs = prepare
problem_id = label("id")
group = problem_id
question = column("question")
images = picture("image")


def gold(row: Row) -> Gold:
    """The letter, or all letters, whose order is irrelevant."""
    letters = [letter for letter in row["answer"].replace(",", " ").upper().split() if letter]
    return choice_gold(letters[0], ()) if len(letters) == 1 else Gold(", ".join(sorted(letters)))


doc_to_text, doc_to_visual, doc_to_target, process_results = hooks(problem_id, group, question, gold, images)
