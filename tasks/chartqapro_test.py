"""ChartQAPro test.

Masry et al., "ChartQAPro: A More Diverse and Challenging Benchmark for Chart Question Answering", ACL 2025. 1,948
questions about 1,341 charts: factoid, multiple choice, hypothetical, fact checking, and conversations of which the last
turn is scored.

An example, a conversation: "What is the share of the first group?", "54.3", "And of the second?". Gold: `38.5`; the
earlier turns are in the prompt with their gold answers, as in the benchmark's own evaluation.

Relaxed accuracy: a number within 5 %, a year exactly, a text by its similarity, a list element by element. The score is
the strict one that the benchmark's paper describes. Its published script drops the flag for exact answers, as do the
numbers of its leaderboard; what it gives the same answers is reported beside the score as `official` (`metrics.text`).
The hints below say in our words what the benchmark's own prompts ask of each type: nobody can know that "unanswerable"
is an answer. `image` holds a file's bytes, without the type of an image.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from atrl_bench.evaluation.hooks import Gold, Row, column, hooks, image_names, label, picture, prepare

if TYPE_CHECKING:
    from datasets import Dataset

COLUMNS = ("Question", "Answer", "Question Type", "image", "Year", "Paragraph")
KEPT = ("Question Type", "Year")
BREAKDOWN = "Question Type"
VARIANTS = ("official",)
EXACT = ("Fact Checking", "Multi Choice")
HINTS = {
    "Multi Choice": "Answer with the letter of the option.",
    "Fact Checking": 'Say whether it is "true", "false" or "unanswerable".',
}
OTHER_HINT = (
    "Answer with a word, a number without its unit or a short phrase, several answers as a list in brackets, and "
    '"unanswerable" if the chart does not tell.'
)


def process_docs(split: Dataset) -> Dataset:
    """The rows with `image` as an image and with the name of the chart, which several rows share."""
    from datasets import Image as ImageFeature

    rows = prepare(split.cast_column("image", ImageFeature()))
    return rows.add_column("chart", image_names(rows, "image"))


problem_id = label("row_number")  # the dataset has no other name for it
group = column("chart")
images = picture("image")


def question(row: Row) -> str:
    earlier = [
        f"Question: {turn.strip()}\nAnswer: {answer.strip()}"
        for turn, answer in zip(row["Question"][:-1], row["Answer"][:-1], strict=False)
    ]
    hint = HINTS.get(row["Question Type"], OTHER_HINT)
    parts = [(row["Paragraph"] or "").strip(), hint, *earlier, row["Question"][-1].strip()]
    return "\n\n".join(part for part in parts if part)


def gold(row: Row) -> Gold:
    answer = row["Answer"][-1].strip().rstrip(".")
    flags = [flag == "YES" for flag in row["Year"] or ()]
    years = flags[-1:] if row["Question Type"] == "Conversational" else flags
    rules = {"exact": row["Question Type"] in EXACT, "years": years}
    return Gold(answer, metric="relaxed", rules=json.dumps(rules))


doc_to_text, doc_to_visual, doc_to_target, process_results = hooks(problem_id, group, question, gold, images)
