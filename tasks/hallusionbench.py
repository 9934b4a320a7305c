"""HallusionBench, the questions with a picture: yes or no.

Guan et al., "HallusionBench: An Advanced Diagnostic Suite for Entangled Language Hallucination and Visual Illusion in
Large Vision-Language Models", CVPR 2024. 951 rows. A set has one figure and edited copies of it, and the same questions
are asked of each: `1` for yes and `0` for no, which an edit may turn around.

Three numbers are printed under one name: over questions (aAcc, which is ours without another word), the share of
figures whose questions are all right (`figures`, fAcc), and of questions that are right of all figures (`pairs`, qAcc);
model cards often print the mean of the three. lmms-eval asks GPT-4 for verdicts; here yes and no are compared. The 178
questions without a picture are left out.
"""

from __future__ import annotations

from atrl_bench.evaluation.hooks import Gold, Row, hooks, picture, prepare
from atrl_bench.results.records import Problem
from atrl_bench.results.statistics.composite import all_right

OF_SET = ("category", "subcategory", "set_id")
COLUMNS = (*OF_SET, "figure_id", "question_id", "question", "gt_answer", "image")
KEPT = (*OF_SET, "figure_id", "question_id")
BREAKDOWN = "subcategory"
HINT = "Please answer yes or no."
process_docs = prepare


def problem_id(row: Row) -> str:
    return f"{group(row)}/{row['figure_id']}/{row['question_id']}"


def group(row: Row) -> str:
    """The set: its figures are copies of one another."""
    return "/".join(str(row[name]) for name in OF_SET)


def question(row: Row) -> str:
    return f"{row['question']} {HINT}"


def gold(row: Row) -> Gold:
    return Gold("Yes" if str(row["gt_answer"]) == "1" else "No")


images = picture("image")
doc_to_text, doc_to_visual, doc_to_target, process_results = hooks(problem_id, group, question, gold, images)


def _of(problem: Problem, last: str) -> str:
    return f"{problem.group}/{problem.meta[last]}"


STATISTICS = {
    "figures": all_right(lambda problem: _of(problem, "figure_id")),
    "pairs": all_right(lambda problem: _of(problem, "question_id")),
}
