"""Dots, eight rows: how many dots a picture has. An example: "How many dots are there?" Gold: `3`."""

from atrl_bench.evaluation.hooks import Gold, hooks, open_image, prepare

COLUMNS = ("id", "picture", "question", "answer")
KEPT = ()
process_docs = prepare


def problem_id(row):
    """Return the row's name."""
    return row["id"]


def group(row):
    """Return the cluster of the standard error: every row has a picture of its own."""
    return row["id"]


def question(row):
    """Return the question as it is asked."""
    return row["question"]


def gold(row):
    """Return the right answer; how it is compared is the grader's business."""
    return Gold(row["answer"])


def images(row):
    """Return what the model is shown."""
    return [open_image(row["picture"])]


doc_to_text, doc_to_visual, doc_to_target, process_results = hooks(problem_id, group, question, gold, images)
