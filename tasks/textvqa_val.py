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

from atrl_bench.evaluation.hooks import Gold, Row, column, hooks, label, picture, prepare
from atrl_bench.grading.scorers.text import majority

COLUMNS = ("image_id", "question_id", "question", "image", "answers")
KEPT = ()
HINT = "Answer with a single word or phrase."
process_docs = prepare
problem_id = label("question_id")
group = column("image_id")
images = picture("image")


def question(row: Row) -> str:
    return f"{HINT}\n{row['question'].strip()}"


def gold(row: Row) -> Gold:
    return Gold(majority(row["answers"]), metric="vqa", references=tuple(row["answers"]))


doc_to_text, doc_to_visual, doc_to_target, process_results = hooks(problem_id, group, question, gold, images)
