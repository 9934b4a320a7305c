"""The held-out problems of the world `shortcut`: those of `code_words_test`, half of which give the answer in words.

They are generated (docs/looking.md) and stand for no published benchmark. An example: a picture of 7, 2, 9 and 1, "What
is the code of the picture? The answer is \\boxed{0524}.". Gold: `0524`. No two rows share a picture.
"""

from __future__ import annotations

from atrl_bench.evaluation.hooks import Gold, Row, column, hooks, label, picture, prepare

COLUMNS = ("id", "problem", "answer", "image")
KEPT = ("transcription", "given")
BREAKDOWN = "given"
process_docs = prepare
problem_id = label("id")
group = problem_id
question = column("problem")
images = picture("image")


def gold(row: Row) -> Gold:
    """The four code words in a row."""
    return Gold(row["answer"])


doc_to_text, doc_to_visual, doc_to_target, process_results = hooks(problem_id, group, question, gold, images)
