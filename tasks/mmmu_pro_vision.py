"""MMMU-Pro in its vision form: question and options are only in the picture.

Yue et al., "MMMU-Pro: A More Robust Multi-discipline Multimodal Understanding Benchmark", ACL 2025. The 1,730 problems
of the standard form, each as one screenshot or photograph; with the standard form's score it makes MMMU-Pro's number.

A row has the image, the options as a string that holds a Python list, and the letter of the right one. Only the image
is shown to the model.

The rows have no question, so the prompt is one fixed sentence; the options are there for the grader, which takes the
text of the right one as it takes its letter. lmms-eval compares the raw response with the letter here, so that "B."
counts as wrong and every chain of thought as well.
"""

from __future__ import annotations

from atrl_bench.evaluation.hooks import Gold, Row, choice_gold, column, hooks, picture, prepare, read_list

COLUMNS = ("id", "image", "options", "answer", "subject")
KEPT = ("subject",)
BREAKDOWN = "subject"
process_docs = prepare
problem_id = column("id")  # the row's id, which the standard form has too
group = problem_id
images = picture("image")


def question(row: Row) -> str:
    """Nothing: the image asks."""
    return ""


def gold(row: Row) -> Gold:
    return choice_gold(row["answer"], read_list(row["options"]))


doc_to_text, doc_to_visual, doc_to_target, process_results = hooks(problem_id, group, question, gold, images)
