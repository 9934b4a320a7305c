"""The prompts of a cell: what its model is shown for each row of its task, made in this one place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from atrl_bench.errors import AtrlBenchError, reason_of
from atrl_bench.evaluation.cell_spec import CellSpec
from atrl_bench.evaluation.hooks import OF_A_VIDEO, Row
from atrl_bench.evaluation.image_condition import ImageCondition, donors, withheld
from atrl_bench.evaluation.tasks import Task
from atrl_bench.models.prompt import Messages, Prompt
from atrl_bench.models.templates import system_turn
from atrl_bench.models.video import Video, read_video
from atrl_bench.results.records import Problem

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True)
class UnreadableRow:
    """A row without a prompt: it is no problem of its task, or its images or its video cannot be decoded."""

    problem_id: str
    reason: str


def shown_instead(
    task: Task, problems: Sequence[Problem], rows: Dataset, spec: CellSpec
) -> Callable[[str], Row] | None:
    """The row whose picture each problem is shown, by the problem's id, in a cell that shuffles them."""
    if spec.image != "shuffled":
        return None
    sizes = task.code.sizes or (partial(_kinds_shown, task) if task.shows_videos else None)
    donor = donors(problems, rows, spec.run_seed, sizes)
    return lambda problem_id: rows[donor[problem_id]]


def _kinds_shown(task: Task, row: Row) -> list[tuple[int, int]]:
    """Of a task with videos what tells one from a picture, whose size is not read; none where a row cannot be shown."""
    with suppress(Exception):
        return [OF_A_VIDEO if isinstance(one, str) else (1, 1) for one in task.code.images(row)]
    return []


def prompts_for(
    task: Task, rows: Iterable[Row], spec: CellSpec, instead: Callable[[str], Row] | None = None
) -> Iterator[Prompt | UnreadableRow]:
    """The prompt of each row; `instead` is `shown_instead` of all rows."""
    num_frames = spec.decoding.num_frames or 0  # of a task without videos, which asks for none
    read_frames = partial(read_video, num_frames=num_frames, max_pixels=spec.decoding.video_max_pixels)
    condition = None if spec.image is None else ImageCondition.parse(spec.image)

    def make_messages(row: Row) -> Messages:
        messages = read_media(messages_of(task, row, spec.prompt_settings), read_frames)
        if condition is None:
            return messages
        name = task.code.problem_id(row)
        others = read_media(messages_of(task, instead(name), spec.prompt_settings), read_frames) if instead else []
        parts = [part for turn in others for part in turn["content"]]
        return withheld(messages, condition, parts, spec.run_seed, name)

    for row in rows:
        yield read_prompt(task.code.problem_id(row), partial(make_messages, row))


def messages_of(task: Task, row: Row, settings: Mapping[str, Any]) -> Messages:
    begin = system_turn(settings["system"]) if "system" in settings else []
    if task.code.doc_to_messages is not None:
        return [*begin, *task.code.doc_to_messages(row, settings)]
    media = [{"type": "video" if isinstance(one, str) else "image", "url": one} for one in task.code.images(row)]
    text = {"type": "text", "text": task.code.doc_to_text(row, settings)}
    return [*begin, {"role": "user", "content": [*media, text]}]


def read_prompt(problem_id: str, make_messages: Callable[[], Messages]) -> Prompt | UnreadableRow:
    """A prompt of messages whose media are read."""
    try:
        messages = make_messages()
        parts = [part for turn in messages for part in turn["content"]]
        # lmms-eval calls an image's or video's content `url`; chat templates only look at the type.
        images, videos = ([part["url"] for part in parts if part["type"] == kind] for kind in ("image", "video"))
    except (AtrlBenchError, MemoryError):
        raise
    except Exception as error:  # a bad video, and whatever Pillow raises on damaged bytes, which is of many kinds
        return UnreadableRow(problem_id, reason_of(error))
    return Prompt(problem_id, messages, images, tuple(videos))


def read_media(messages: Messages, read_frames: Callable[[str], Video]) -> Messages:
    """The messages with each video read from its file; pictures are read already."""

    def read(part: dict[str, Any]) -> dict[str, Any]:
        return part | {"url": read_frames(part["url"])} if isinstance(part.get("url"), str) else part

    return [turn | {"content": list(map(read, turn["content"]))} for turn in messages]
