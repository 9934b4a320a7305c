"""What a model is shown in place of a problem's picture, to see how much its answers rest on it.

    none        no picture at all; the words stay as they are
    blank       grey of the same size
    noise       random colours of the same size
    shuffled    the picture of another problem of the task, of about the same size
    blur:SIGMA  the picture itself through a Gaussian blur of that many pixels
    frozen      of a video: its middle frame, for as long as it lasts
    reordered   of a video: its own frames in another order

A blank picture is one that no model has seen in training, and a shuffled one misleads: what is left without the picture
depends on how it is taken away, so each way is a cell of its own and none is mixed with another.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import TYPE_CHECKING, Any, Self

from atrl_bench.errors import AtrlBenchError, InvalidFileError
from atrl_bench.evaluation.hooks import MEDIA_ROOT, OF_A_VIDEO, Row, picture_sizes
from atrl_bench.models.prompt import Messages
from atrl_bench.results.records import Problem

if TYPE_CHECKING:
    import numpy as np
    from datasets import Dataset
    from PIL.Image import Image

    from atrl_bench.evaluation.tasks import Task
    from atrl_bench.models.video import Video  # which loads numpy

WAYS = ("none", "blank", "noise", "shuffled", "blur:SIGMA", "frozen", "reordered")
OF_VIDEOS = ("frozen", "reordered")
GREY = 127
SizesOf = Callable[[Row], Sequence[tuple[int, int]]]  # width and height of what a row shows
_FORM = re.compile(r"(none|blank|noise|shuffled|frozen|reordered)|blur:(\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class ImageCondition:
    """One way to withhold a picture; `sigma` in pixels for a blur."""

    way: str
    sigma: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Self:
        form = _FORM.fullmatch(text)
        if form is None or (form[2] and not float(form[2])):
            raise AtrlBenchError(
                f"Pictures cannot be shown as {text!r}.",
                why=f"They are shown as they are, or by one of {', '.join(WAYS)}.",
                next_step="name one of them, for example --image shuffled or --image blur:4",
            )
        return cls(form[1] or "blur", float(form[2] or 0))

    def __str__(self) -> str:
        return f"blur:{self.sigma:g}" if self.way == "blur" else self.way

    @property
    def words(self) -> str:
        shown = "videos" if self.way in OF_VIDEOS else "pictures"
        return "no picture" if self.way == "none" else f"{self} {shown}"

    def check(self, task: Task) -> None:
        """Refuse a way that makes nothing else of what this task shows."""
        if self.way in OF_VIDEOS and not task.shows_videos:
            raise AtrlBenchError(
                f"{task.title} shows pictures, which cannot be {self.way}.",
                next_step=f"give one of {', '.join(way for way in WAYS if way not in OF_VIDEOS)}",
            )


def withheld(
    messages: Messages, condition: ImageCondition, others: Sequence[Mapping[str, Any]], seed: int, name: str
) -> Messages:
    """The messages with each picture and video (already read) shown by this condition.

    `others` are the parts that are shown instead where it is shuffled. What is random depends on (seed, name, place)
    alone.
    """
    stand_ins = {kind: cycle([part["url"] for part in others if part["type"] == kind]) for kind in ("image", "video")}
    place = 0
    turns: Messages = []
    for turn in messages:
        parts = []
        for part in turn["content"]:
            if part["type"] not in ("image", "video"):
                parts.append(part)
            elif condition.way != "none":
                shown = next(stand_ins[part["type"]]) if condition.way == "shuffled" else part["url"]
                parts.append(part | {"url": _shown(shown, condition, _random(seed, f"{name}:{place}"))})
                place += 1
        turns.append(turn | {"content": parts})
    return turns


def _random(seed: int, name: str) -> np.random.Generator:
    import numpy as np

    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def _shown(shown: Image | Video, condition: ImageCondition, rng: np.random.Generator) -> Image | Video:
    import numpy as np
    from PIL import Image as Pillow

    if isinstance(shown, Pillow.Image):
        return Pillow.fromarray(_changed(np.asarray(shown)[None], condition, rng)[0])
    count = len(shown.frames)
    if condition.way == "frozen":
        return replace(shown, frames=shown.frames[[count // 2] * count])
    if condition.way == "reordered":
        order = rng.permutation(count).tolist()  # no frame stays where it was
        return shown.reordered([before for _, before in sorted(zip(order, [*order[1:], order[0]], strict=True))])
    return replace(shown, frames=_changed(shown.frames, condition, rng))


def _changed(frames_NHWC: np.ndarray, condition: ImageCondition, rng: np.random.Generator) -> np.ndarray:
    import numpy as np
    from PIL import Image as Pillow
    from PIL import ImageFilter

    if condition.way == "blank":
        return np.full_like(frames_NHWC, GREY)
    if condition.way == "noise":
        return rng.integers(0, 256, frames_NHWC.shape, dtype=np.uint8)
    if condition.way == "blur":
        blur = ImageFilter.GaussianBlur(condition.sigma)
        return np.stack([np.asarray(Pillow.fromarray(frame).filter(blur)) for frame in frames_NHWC])
    return frames_NHWC  # shuffled: another problem's, as it is


# Whose picture is shown -----------------------------------------------------------------------------------------------


def donors(problems: Sequence[Problem], rows: Dataset, seed: int, sizes: SizesOf | None = None) -> dict[str, int]:
    """For each problem id the number of the row whose picture it is shown: of another group, of about the same size.

    Rows with as many pictures, of an area within a factor of two, are a class. In it groups stand in a random order,
    and each row takes the picture that is one largest group further on, so that every picture is shown as often as it
    is its own problem's. A class of which one group has more than half joins the next larger one. Where rows differ in
    what they show, as `sizes` tells, pictures, videos and both are shuffled apart, and a row of words keeps its words.
    """
    kinds: dict[frozenset[bool], dict[tuple[int, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    for index in range(len(rows)):
        row = rows[index]
        shown = sizes(row) if sizes else [] if MEDIA_ROOT in row else picture_sizes(row)
        is_video = frozenset(size == OF_A_VIDEO for size in shown) if sizes else frozenset({False})
        kinds[is_video][_size_class(shown)].append(index)
    rng, words = _random(seed, "shuffled"), kinds.pop(frozenset(), {}).values()
    found = {index: index for rows_of_words in words for index in rows_of_words}
    groups = [problem.group for problem in problems]
    for _, classes in sorted(kinds.items(), key=lambda item: sorted(item[0])):
        found |= _of_one_kind(classes, groups, rng)
    return {problems[index].problem_id: donor for index, donor in found.items()}


def _of_one_kind(
    classes: Mapping[tuple[int, int], Sequence[int]], groups: Sequence[str], rng: np.random.Generator
) -> dict[int, int]:
    found, waiting = dict[int, int](), list[int]()
    for _, members in sorted(classes.items()):
        waiting += members
        if _is_mixed(waiting, groups):
            found |= _shifted(waiting, groups, rng)
            waiting = []
    if waiting:  # the largest pictures are too few, or of one group: all rows are one class
        rows = sorted(index for members in classes.values() for index in members)
        if not _is_mixed(rows, groups):
            raise InvalidFileError(
                f"These pictures cannot be shuffled: of {len(rows)} rows more than half belong to one group.",
                why="Each row would have to be shown the picture of another group.",
                next_step="take more rows, or withhold pictures by --image blank",
            )
        found = _shifted(rows, groups, rng)
    return found


def _size_class(sizes: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """How many pictures, and the power of two of their area; videos are all of one class."""
    area = sum(width * height for width, height in sizes)
    return len(sizes), round(math.log2(area)) if area else 0


def _is_mixed(rows: Sequence[int], groups: Sequence[str]) -> bool:
    return 2 * _largest(rows, groups) <= len(rows)


def _largest(rows: Sequence[int], groups: Sequence[str]) -> int:
    return max(Counter(groups[index] for index in rows).values())


def _shifted(rows: Sequence[int], groups: Sequence[str], rng: np.random.Generator) -> dict[int, int]:
    names = sorted({groups[index] for index in rows})
    place = dict(zip(names, rng.permutation(len(names)).tolist(), strict=True))
    order = sorted(rows, key=lambda index: (place[groups[index]], index))
    further = _largest(rows, groups)
    return {index: order[(i + further) % len(order)] for i, index in enumerate(order)}
