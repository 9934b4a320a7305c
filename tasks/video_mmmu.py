"""VideoMMMU: what is learned from a lecture, in three tracks: Perception, Comprehension and Adaptation.

Hu et al., "Video-MMMU: Evaluating Knowledge Acquisition from Multi-Discipline Professional Videos", 2025. 300 lectures
of six disciplines, one question on each in every track: what the video shows, what it means, and a new problem, with a
picture of its own, that it teaches to solve. The benchmark's number is the mean of the three tracks.

A row of Adaptation, abridged: id `dev_Accounting_3`, question "<image 1> Each of the following situations relates to a
different company. [...]", options `["$63,020", "$58,410", "$71,320", "$77,490"]`, question_type `multiple-choice`, an
image. Gold: `D`.

`atrl-bench fetch video_mmmu` brings all. Videos: one archive a discipline in the hub's dataset (`Art.zip`,
`Business.zip`, `Engineering.zip`, `Humanities.zip`, `Medicine.zip`, `Science.zip`), unpacked beside the folders of
the three tracks, so that each is `DATA/video_mmmu/<discipline>/<id>.mp4`; then `--data-dir DATA`. The clips whose
name ends in `_image` show the question alone: to be asked about those is another task, and what Video-R1's evaluation
file does.

A question has 2 to 14 options (letters to N), some written with their letter. Only Adaptation tells question types: 20
of its rows are open, one has none; so what has options and a letter as its gold is multiple choice in every track. The
gold of an open question may be a list in a string, sometimes one whose last quote is missing; any item counts. The
picture of an Adaptation problem follows the video, at the end of which the official copy shows it as well.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from atrl_bench.evaluation.hooks import (
    Gold,
    Row,
    choice_gold,
    column,
    hooks,
    open_gold,
    open_image,
    prepare,
    video_file,
)
from atrl_bench.models.templates import LETTERS, with_choices

if TYPE_CHECKING:
    from datasets import Dataset
    from PIL.Image import Image

COLUMNS = ("id", "question", "options", "answer")
KEPT = ("question_type",)

DISCIPLINES = {
    "Art": "Art Art_Theory Design Music",
    "Business": "Accounting Economics Finance Manage Marketing",
    "Engineering": "Agriculture Architecture_and_Engineering Computer_Science Electronics Energy_and_Power Materials "
    "Mechanical_Engineering",
    "Humanities": "History Literature Psychology Sociology",
    "Medicine": "Basic_Medical_Science Clinical_Medicine Diagnostics_and_Laboratory_Medicine Pharmacy Public_Health",
    "Science": "Biology Chemistry Geography Math Physics",
}
DISCIPLINE_OF = {subject: name for name, subjects in DISCIPLINES.items() for subject in subjects.split()}
QUIZ_AT_THE_END = "The last frame of the video may show a quiz; it is not this question."
LEARN_AND_APPLY = "Learn from the video how to solve such a problem, then solve this one; its picture comes last."


def process_docs(split: Dataset) -> Dataset:
    """The prepared rows with whether they have a picture, which the words of a prompt depend on."""
    rows = prepare(split)
    if "image" not in rows.column_names:
        return rows.add_column("has_picture", [False] * len(rows))
    return rows.add_column("has_picture", [bool(valid) for valid in rows.data.column("image").is_valid().to_pylist()])


problem_id = column("id")  # the lecture's, once a track
group = problem_id


def media(row: Row) -> list[str]:
    """Where the lecture is in the benchmark's folder: the subject stands in its id, `dev_Art_Theory_12`."""
    subject = re.sub(r"^[^_]+_|_[^_]+$", "", row["id"])
    return [f"{DISCIPLINE_OF.get(subject, subject)}/{row['id']}.mp4"]


def options(row: Row) -> list[str]:
    """The options, without letters where every one has its own."""
    texts = list(row["options"] or ())
    lettered = all(text.startswith(f"{letter}.") for letter, text in zip(LETTERS, texts, strict=False))
    return [text[2:].strip() if lettered else text for text in texts]


def question(row: Row) -> str:
    """The question with what its track says about the video, and its options where it has some."""
    problem = row["question"].replace("<image 1>", "").strip()
    text = f"{LEARN_AND_APPLY if row['has_picture'] else QUIZ_AT_THE_END}\n{problem}"
    return with_choices(text, options(row)) if is_choice(row) else text


def is_choice(row: Row) -> bool:
    """Whether a letter is wanted, whatever `question_type` says where it is there at all."""
    texts = options(row)
    return len(texts) > 1 and row["answer"].strip() in LETTERS[: len(texts)]


def gold(row: Row) -> Gold:
    return choice_gold(row["answer"], options(row)) if is_choice(row) else open_gold(row["answer"])


def images(row: Row) -> list[Image | str]:
    """The path of the video, and the picture of an Adaptation problem after it."""
    pictures = [open_image(row["image"])] if row["has_picture"] else []
    return [*(video_file(row, name) for name in media(row)), *pictures]


doc_to_text, doc_to_visual, doc_to_target, process_results = hooks(
    problem_id, group, question, gold, images, medium="video"
)
