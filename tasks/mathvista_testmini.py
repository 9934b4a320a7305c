"""MathVista testmini.

Lu et al., "MathVista: Evaluating Mathematical Reasoning of Foundation Models in Visual Contexts", ICLR 2024. 1,000
rows: 540 multiple choice, 460 free-form (418 integers, 40 decimal numbers, 2 lists).

An example, pid 1: "When a spring does work on an object, we cannot find the work by simply multiplying the spring force
by the object's displacement. [...] By what distance d is the spring compressed?" with a picture of the spring, unit
null, precision 1.0. Gold: `1.2`.

The gold of a multiple-choice row is the option's text, not its letter; both are accepted. `precision` arrives as a
float (1.0), on which lmms-eval's own task fails for all 40 decimal rows; a response is rounded to that many places, as
the official script does. Labels known to be wrong are kept for comparability, as on the leaderboard. The test
split (5,141 rows) has no public answers: only the leaderboard scores it, so it is no task here.
"""

from __future__ import annotations

from atrl_bench.evaluation.hooks import Gold, Row, choice_gold, column, hooks, picture, prepare
from atrl_bench.models.templates import with_choices

COLUMNS = ("pid", "question", "choices", "unit", "precision", "answer", "question_type", "answer_type", "decoded_image")
KEPT = ("question_type", "answer_type")
BREAKDOWN = "question_type"
process_docs = prepare
problem_id = column("pid")  # the problem's number
group = problem_id
images = picture("decoded_image")


def question(row: Row) -> str:
    text = f"{row['question'].strip()} (Unit: {row['unit']})" if row["unit"] else row["question"]
    return with_choices(text, row["choices"]) if row["choices"] else text


def gold(row: Row) -> Gold:
    if row["question_type"] == "multi_choice":
        return choice_gold(row["answer"], row["choices"])
    if row["answer_type"] == "list":
        return Gold(row["answer"], kind="list")
    return Gold(row["answer"], precision=None if row["precision"] is None else int(row["precision"]))


doc_to_text, doc_to_visual, doc_to_target, process_results = hooks(problem_id, group, question, gold, images)
