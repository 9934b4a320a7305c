"""A training problem, how a row of a training set becomes one, and the text that imitates its solution."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atrl_bench.credit.truth import TokenTruth
from atrl_bench.data.layout import own_file
from atrl_bench.data.marks import content_with_media, without_opening_marks
from atrl_bench.data.own import answers_of, gold_answer, image_of, options_of, question_of, system_of
from atrl_bench.data.pictures import open_picture
from atrl_bench.data.sets import TrainingSet, as_list, file_names
from atrl_bench.grading.gold import own_gold
from atrl_bench.models.prompt import system_turn
from atrl_bench.models.templates import render, with_choices
from atrl_bench.results.records import Gold
from atrl_bench.training.rewards.steps import OFFICIAL, KeyStep, SectionMarks, final_answer, read_key_steps, read_marks

if TYPE_CHECKING:
    from PIL.Image import Image

PLAIN = (str, int, float, bool, list)  # what a reward may be handed of a row
THINK_TAGS = re.compile(r"</?think>")


@dataclass(frozen=True)
class TrainingProblem:
    """One row: what is asked, what is shown, what is right."""

    problem_id: str
    question: str  # with `<image>` and `<video>` where some stand within it
    answer: str
    images: tuple[bytes | Path, ...]
    token_truth: TokenTruth | None = None  # of generated data
    videos: tuple[Path, ...] = ()
    problem_type: str = ""  # what sort of answer it has, where the set says so
    choices: tuple[str, ...] = ()
    process: str = ""  # the reasoning to imitate, where the set has one
    key_steps: tuple[KeyStep, ...] = ()  # what a chain has to mention, where the set says so
    section_marks: SectionMarks = OFFICIAL  # what opens the sections of such a chain
    system: str = ""  # what the conversation begins with
    template: str | None = None  # the text of the one it is asked in; None: one of ours, which is drawn
    columns: Mapping[str, Any] = field(default_factory=dict)  # of a user's own set, for a user's own reward
    chosen: str | None = None  # the better response and the worse one, in a file of pairs
    rejected: str | None = None
    own_gold: Gold | None = None  # of a user's own set, as its evaluation grades it

    @property
    def graded_as(self) -> Gold:
        return self.own_gold or Gold(self.answer)

    @property
    def num_media(self) -> dict[str, int]:
        return {"image": len(self.images), "video": len(self.videos)}

    def decoded(self) -> list[Image]:
        return [open_picture(image) for image in self.images]

    def messages(self, template: int) -> list[dict[str, Any]]:
        """The prompt: what the set's own conversation begins with, then the user's turn."""
        return [*system_turn(self.system), {"role": "user", "content": self.content(template)}]

    def content(self, template: int) -> list[dict[str, Any]]:
        """The user's turn: the question in this template, images and videos where it marks them or before it.

        The prompt of a pair is as it stands: its responses were given to that.
        """
        text = render(self.question, self.template or template, "video" if self.videos else "image")
        text = text if self.rejected is None else self.question
        return content_with_media(text, self.num_media)


def read_problem(described: TrainingSet, index: int, row: dict[str, Any], root: Path) -> TrainingProblem:
    """Row `index` of a training set whose images and videos, where they are files, lie below `root`."""
    asked = next(row[column] for column in described.question if column in row)
    question = without_opening_marks(question_of(asked))
    choices = options_of(row, described.options)
    images, videos = _media(described, row, root)
    [solution, *others], marks = answers_of(row[described.answer]), read_marks(row.get("section_marks"))
    answer = gold_answer(final_answer(solution, marks))
    return TrainingProblem(
        problem_id=str(row.get(str(described.problem_id), index)),
        question=with_choices(question, choices) if choices else question,
        answer=answer,
        images=images,
        token_truth=_truth(row),
        videos=videos,
        problem_type=row.get("problem_type") or "",
        choices=choices,
        process=row.get("process") or (solution if marks.answer in solution else ""),
        key_steps=read_key_steps(row.get("key_steps")),
        section_marks=marks,
        system=system_of(asked),
        columns=_columns(described, row) if described.takes_text else {},
        chosen=str(row[described.answer]) if described.rejected else None,
        rejected=str(row[described.rejected]) if described.rejected else None,
        own_gold=_own_gold([answer, *map(gold_answer, others)], choices) if described.takes_text else None,
    )


def _own_gold(answers: Sequence[str], choices: tuple[str, ...]) -> Gold | None:
    """None where the row's answer is none of its options, as a text to imitate may be."""
    with suppress(ValueError):
        return own_gold(answers, choices)
    return None


def _columns(described: TrainingSet, row: dict[str, Any]) -> dict[str, Any]:
    """What a user's own reward is handed of a row by its name: all but what the problem shows."""
    shown = {*described.images, described.videos}
    return {name: value for name, value in row.items() if isinstance(value, PLAIN) and name not in shown}


def _truth(row: dict[str, Any]) -> TokenTruth | None:
    truth = TokenTruth(row.get("transcription") or "", row.get("token_patterns") or {})
    return truth if truth.parts else None


def _media(
    described: TrainingSet, row: dict[str, Any], root: Path
) -> tuple[tuple[bytes | Path, ...], tuple[Path, ...]]:
    if row.get("data_type") == "video" and described.names_files and not described.takes_text:
        return (), tuple(own_file(root, name) for name in described.files_of(row))
    value = next((row[column] for column in image_columns(described) if column in row), None)
    videos = [own_file(root, name) for name in file_names(row.get(described.videos))]
    return tuple(image_of(image, root) for image in as_list(value)), tuple(videos)


def image_columns(described: TrainingSet) -> tuple[str, ...]:
    named = [column for column in described.media_columns if column != described.videos]
    return (*named, *described.images)


def response_of(process: str, answer: str, form: str) -> str:
    r"""The text to imitate: the reasoning and the answer in one of the forms of `SupervisedRecipe.response`.

    `boxed`: "3+4=7. The answer is \boxed{7}."; `tags`: "<think>3+4=7.</think>\n<answer>7</answer>"; `process`: the
    reasoning as it stands, for sets whose text already ends in the answer.
    """
    if form == "process":
        return process.strip()
    reasoning = THINK_TAGS.sub("", process).strip()
    if form == "tags":
        return f"<think>{reasoning}</think>\n<answer>{answer}</answer>"
    return f"{reasoning} The answer is \\boxed{{{answer}}}.".lstrip()
