"""MMVU validation: expert knowledge applied to specialised videos.

Zhao et al., "MMVU: Measuring Expert-Level Multi-Discipline Video Understanding", CVPR 2025. 1,000 rows of 27 subjects:
625 multiple choice with five options, 375 open-ended. The answers of the test split are not public.

A row, abridged: id `validation_0`, video `https://huggingface.co/datasets/yale-nlp/MMVU/resolve/main/videos/Art/0.mp4`,
question_type `multiple-choice`, metadata `{"subject": "Art", ...}`, question "In the video, which musical instrument
[...]?", choices `{"A": "Violin", "B": "Cello", ...}`. Gold: `C`.

`atrl-bench fetch mmvu_val` brings both. Rows: lmms-eval's copy, which has them as Parquet. Videos: the folder
`videos` of the official dataset (`hf download --repo-type dataset yale-nlp/MMVU --local-dir DATA/mmvu`), or the
copy's archive unpacked in that folder, so that each is `DATA/mmvu/` and what the row's `video_path`, or else the end
of its `video`, says; then `--data-dir DATA`.

Every row counts; `multiple_choice` is the mean over the 625 rows that Video-R1 reports alone (its 59.2 is that number;
over all rows it is about 48). An open-ended answer is compared by the rules of this package, which are strict with
wording: the official number has GPT-4o judge all rows, so give a judge. An empty answer is no answer, and "sixteen" is
not "six": both count as right in lmms-eval's copy, which looks for one text inside the other.
"""

from __future__ import annotations

from atrl_bench.evaluation.hooks import Gold, Row, choice_gold, column, hooks, open_gold, prepare, video_file
from atrl_bench.models.templates import LETTERS, with_choices
from atrl_bench.results.statistics import mean_by

COLUMNS = ("id", "question_type", "question", "choices", "answer")
KEPT = ("question_type",)
BREAKDOWN = "question_type"
MULTIPLE_CHOICE = "multiple-choice"
STATISTICS = {
    "multiple_choice": mean_by(lambda problem: "all" if problem.meta["question_type"] == MULTIPLE_CHOICE else None)
}
process_docs = prepare
problem_id = column("id")


def group(row: Row) -> str:
    """The video: some are asked about more than once."""
    return media(row)[0]


def media(row: Row) -> list[str]:
    """Where the video is in the benchmark's folder: as a path of its own, or the end of its address."""
    path: str = row.get("video_path") or row["video"]
    return [path.rpartition("/resolve/main/")[2]]


def options(row: Row) -> list[str]:
    """The options in the order of their letters; none for an open-ended question."""
    choices = row["choices"] or {}
    return [choices[letter] for letter in LETTERS if choices.get(letter)]


def question(row: Row) -> str:
    return with_choices(row["question"], options(row)) if _is_choice(row) else row["question"]


def _is_choice(row: Row) -> bool:
    return row["question_type"] == MULTIPLE_CHOICE


def gold(row: Row) -> Gold:
    return choice_gold(row["answer"], options(row)) if _is_choice(row) else open_gold(row["answer"])


def images(row: Row) -> list[str]:
    return [video_file(row, name) for name in media(row)]


doc_to_text, doc_to_visual, doc_to_target, process_results = hooks(
    problem_id, group, question, gold, images, medium="video"
)
