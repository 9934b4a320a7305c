"""DynaMath: ten variants each of 501 questions.

Zou et al., "DynaMath: A Dynamic Visual Benchmark for Evaluating Mathematical Reasoning Robustness of Vision Language
Models", ICLR 2025. 5,010 rows; a question's variants differ in numbers, curves or names and share its `id`.

Two numbers are printed under one name: the mean over all rows, which is ours without another word, and the worst case,
the share of questions whose variants are all right (`worst_case`), by which leaderboards rank.

Answers are letters whose options stand in the question, numbers, or texts. Numbers are right to 0.001, as in the
authors' code; its rule for texts, that any part of the gold is right, is not ours.
"""

from __future__ import annotations

from atrl_bench.evaluation.hooks import Gold, Row, choice_gold, column, hooks, label, picture, prepare
from atrl_bench.results.statistics.composite import all_right

COLUMNS = ("id", "question", "decoded_image", "ground_truth", "answer_type", "subject", "knowledge_level")
KEPT = ("id", "answer_type", "subject", "knowledge_level")
BREAKDOWN = "subject"
STATISTICS = {"worst_case": all_right(lambda problem: str(problem.meta["id"]))}
TOLERANCE = 0.001
process_docs = prepare


def problem_id(row: Row) -> str:
    """The question's id with the row's number, which tells its variants apart."""
    return f"{row['id']}/{row['row_number']}"


group = label("id")  # the question that this is a variant of
question = column("question")  # the question, in which its options are
images = picture("decoded_image")


def gold(row: Row) -> Gold:
    answer = row["ground_truth"]
    if row["answer_type"] == "multiple choice":
        return choice_gold(answer, ())
    if row["answer_type"] == "float":
        size = abs(float(answer))
        return Gold(answer, kind="number", tolerance=TOLERANCE / size if size else 0.0)
    return Gold(answer)


doc_to_text, doc_to_visual, doc_to_target, process_results = hooks(problem_id, group, question, gold, images)
