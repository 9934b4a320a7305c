"""What every task of `tasks/` shares: from a benchmark's row to lmms-eval's hooks, and back to one verdict.

`hooks` turns what a task module says of a row into the functions that lmms-eval calls, so that both runners see
one prompt and one verdict. Its metrics average over all repeats; lmms-eval's default would score the first alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from atrl_bench.data.layout import MAX_NAME, path_inside
from atrl_bench.data.pictures import open_picture, picture_size
from atrl_bench.errors import MissingDataError
from atrl_bench.grading.gold import choice_gold as choice_gold  # which tasks take from here
from atrl_bench.models.prompt import Messages
from atrl_bench.models.templates import choose_template, render
from atrl_bench.results.records import Gold as Gold  # task files have it from here

if TYPE_CHECKING:
    from datasets import Dataset
    from PIL.Image import Image

# Part of every cell's key: raise it when a row gets another prompt, gold answer or cluster from what is in here.
VERSION = 1

Row = Mapping[str, Any]


class Hooks(NamedTuple):
    """The functions that lmms-eval calls, in the order in which a task module unpacks them."""

    doc_to_text: Callable[..., str]
    doc_to_visual: Callable[[Row], Sequence[Image | str]]
    doc_to_target: Callable[[Row], str]
    process_results: Callable[[Row, list[str]], dict[str, Any]]


def hooks(
    problem_id: Callable[[Row], str],
    group: Callable[[Row], str],
    question: Callable[[Row], str],
    gold: Callable[[Row], Gold],
    images: Callable[[Row], Sequence[Image | str]],
    medium: str = "image",
) -> Hooks:
    """lmms-eval's view of a benchmark that these five functions describe, whose prompts speak of a `medium`."""

    def doc_to_text(row: Row, settings: Mapping[str, Any] | None = None) -> str:
        settings = settings or {}
        template = settings.get("template") or choose_template(int(settings.get("run_seed", 0)), problem_id(row))
        return render(question(row), template, medium)

    def process_results(row: Row, responses: list[str]) -> dict[str, Any]:
        from atrl_bench.grading.grade import shared_pool  # a table is planned and printed without the grader

        verdicts = shared_pool().grade_many([(response, gold(row)) for response in responses])
        points = [verdict.points for verdict in verdicts]
        unscored = [float(verdict.state not in ("correct", "wrong")) for verdict in verdicts]
        metrics = {"acc_at_1": points[0], "mean_at_n": _mean(points), "not_scored": _mean(unscored)}
        return {name: {"score": value, "group": group(row)} for name, value in metrics.items()}

    return Hooks(doc_to_text, images, lambda row: gold(row).answer, process_results)


# What most benchmarks say of a row: a task module names the column.


def column(name: str) -> Callable[[Row], str]:
    """What stands in a column that holds texts."""
    return lambda row: row[name]


def label(name: str) -> Callable[[Row], str]:
    """The text of a column that may hold numbers."""
    return lambda row: str(row[name])


def picture(name: str) -> Callable[[Row], list[Image]]:
    """The one picture of a column."""
    return lambda row: [open_image(row[name])]


_PLACEHOLDER = re.compile(r"<image[ _]?(\d{1,2})>")


def interleaved(
    doc_to_text: Callable[..., str], pictures: Callable[[Row], Mapping[int, Image]]
) -> Callable[..., Messages]:
    """A `doc_to_messages` that shows each numbered picture where the text names it: `<image 1>` or `<image_1>`.

    One that is never named comes first, where lmms-eval alone would put all, and a name without a picture is text.
    """

    def doc_to_messages(row: Row, lmms_eval_specific_kwargs: Mapping[str, Any] | None = None) -> Messages:
        text, picture_of = doc_to_text(row, lmms_eval_specific_kwargs), pictures(row)
        in_text = {int(number) for number in _PLACEHOLDER.findall(text)}
        parts: list[Any] = [picture for number, picture in picture_of.items() if number not in in_text]
        start = 0
        for name in _PLACEHOLDER.finditer(text):
            if int(name[1]) in picture_of:
                parts += [text[start : name.start()], picture_of[int(name[1])]]
                start = name.end()
        parts.append(text[start:])
        content = [
            {"type": "text", "text": part} if isinstance(part, str) else {"type": "image", "url": part}
            for part in parts
            if part != ""
        ]
        return [{"role": "user", "content": content}]

    return doc_to_messages


def mean_score(items: Sequence[Mapping[str, Any]]) -> float:
    """The mean over problems: the aggregation of every metric of ours."""
    return _mean([item["score"] for item in items])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def prepare(split: Dataset) -> Dataset:
    """The split with a `row_number`, the only name that every row has, and with its images still encoded.

    lmms-eval would otherwise end the run at the first picture that is unreadable.
    """
    from datasets import Image as ImageFeature

    for column, feature in split.features.items():
        if isinstance(feature, ImageFeature):
            split = split.cast_column(column, ImageFeature(decode=False))
    return split.add_column("row_number", list(range(len(split))))


def image_names(rows: Dataset, column: str) -> list[str]:
    """A name for the picture of each row, the same where the picture is: the cluster of questions about it."""
    pictures = rows.select_columns(column)
    cells = (row[column] or {} for row in pictures)
    return [hashlib.sha256(c.get("bytes") or (c.get("path") or "").encode()).hexdigest()[:12] for c in cells]


def open_image(cell: Any) -> Image:
    """An image column's value as an RGB picture, transparent pixels white; raises `OSError` or a warning if bad.

    A row is bytes: what it names is never opened here. A `Path` comes from a task's own code, by `video_file`.
    """
    if isinstance(cell, Mapping):
        if not isinstance(cell.get("bytes"), bytes) or not cell["bytes"]:
            raise FileNotFoundError(f"there is no picture {unquote(str(cell.get('path') or ''))[:MAX_NAME]}".rstrip())
        cell = cell["bytes"]
    if not isinstance(cell, bytes | Path):
        raise TypeError(f"a picture is bytes, not of type {type(cell).__name__}")
    return open_picture(cell)


def numbered_images(row: Row) -> dict[int, Image]:
    numbers = sorted(int(name.removeprefix("image_")) for name in row if re.fullmatch(r"image_\d{1,2}", name))
    return {number: open_image(cell) for number in numbers if (cell := row[f"image_{number}"]) is not None}


MEDIA_ROOT = "media_root"  # the column of a video benchmark's rows that says where its files are
OF_A_VIDEO = (0, 0)  # its size, which nobody reads
MEDIA_ROOT_VARIABLE = "ATRL_BENCH_MEDIA_ROOT"  # says it where lmms-eval alone reads the rows


def video_file(row: Row, name: str) -> str:
    """The path of a row's video, `name` being its place in the benchmark's folder; it may not leave that."""
    root = row.get(MEDIA_ROOT) or os.environ.get(MEDIA_ROOT_VARIABLE)
    if not root:
        then = f"give atrl-bench a --data-dir; with lmms-eval alone, set {MEDIA_ROOT_VARIABLE} to its folder"
        raise MissingDataError(f"Nothing says where the video {name} is unpacked.", next_step=then)
    return str(path_inside(Path(root), name))


def picture_sizes(row: Row) -> list[tuple[int, int]]:
    """Width and height of the row's pictures, read from their headers; those with a broken header are left out."""
    sizes = []
    for value in row.values():
        if isinstance(value, Mapping) and value.get("bytes"):
            with contextlib.suppress(Exception), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # they are about files that are refused when they are shown
                sizes.append(picture_size(value["bytes"])[::-1])
    return sizes


_ITEM = re.compile(
    r"""\s*(?:'(?P<single>(?:[^'\\]|\\.)*)(?:'|\Z)|"(?P<double>(?:[^"\\]|\\.)*)(?:"|\Z)"""
    r"""|(?P<bare>[^\s'",\[\]][^'",\[\]]*))\s*(?:,|\Z)""",
    re.S,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U(00(?:0[0-9a-f]|10)[0-9a-f]{4})|([\\'\"nrt]))")


def read_list(text: str) -> list[str]:
    """The items of a Python list that a dataset keeps as a string: `"['3 cm', \\"it's\\"]"`.

    Nothing is evaluated. A last string that was never closed (`"['24/7', '3.43]"`) ends where the list does, and a
    backslash that Python would not have written, as in `\\frac`, is a backslash.
    """
    inner = text.strip()
    if not (inner.startswith("[") and inner.endswith("]")):
        raise ValueError(f"not a list: {text[:80]!r}")
    inner, items, start = inner[1:-1].rstrip(), [], 0
    while start < len(inner):
        item = _ITEM.match(inner, start)
        if item is None:
            raise ValueError(f"not a list of strings and numbers: {text[:80]!r}")
        bare = item["bare"]
        items.append(bare.strip() if bare else _ESCAPE.sub(_unescaped, item["single"] or item["double"] or ""))
        start = item.end()
    return items


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2] or escape[3]
    return chr(int(code, 16)) if code else {"n": "\n", "r": "\r", "t": "\t"}.get(escape[4], escape[4])


def open_gold(answer: str) -> Gold:
    """The gold of an open question; a list of quoted strings is one of answers, while `[1, 2]` may be an interval."""
    accepted = read_list(answer) if re.match(r"\s*\[\s*['\"].*\]\s*\Z", answer, re.S) else [answer]
    accepted = [repair_latex(one) for one in accepted if one.strip()]
    return Gold(accepted[0], references=tuple(accepted) if len(accepted) > 1 else ()) if accepted else Gold("")


def repair_latex(answer: str) -> str:
    """A gold answer with the damage of earlier conversions undone, and nothing else changed.

    Seen in the public files: the form feed of a `\\f` that was read as an escape, in `\\x0crac{36}{13}`; a box around
    the whole answer, `$\\boxed{4}$`; the unit of `69{degrees}`; and `掳`, which is a degree sign read as Chinese.
    """
    answer = answer.replace("\x0c", "\\f").replace("掳", "°").replace("{degrees}", "^\\circ").strip()
    boxed = re.fullmatch(r"\$?\s*\\boxed\{([^{}]*)\}\s*\$?", answer)
    return boxed[1].strip() if boxed else answer
