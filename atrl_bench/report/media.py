"""Small pictures of what the problems of a task show, once per report folder: an image, several, or a strip of frames.

They are files beside the pages, named by their content, so that twelve rows that answer the same problems share them.
A list says which problem shows which: with it the report is rendered where the dataset is not.
"""

from __future__ import annotations

import hashlib
import io
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atrl_bench.data.dataset import data_digest, is_here
from atrl_bench.digests import recall
from atrl_bench.errors import AtrlBenchError
from atrl_bench.evaluation.data import load_rows, row_name, without_images
from atrl_bench.evaluation.tasks import OwnTask, find_task
from atrl_bench.models.video import read_video
from atrl_bench.results.files import write_atomically

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 320  # pixels of a thumbnail's longer side
FRAMES, FRAME_SIDE = 8, 140  # of a video's strip
MAX_PICTURES = 8  # of one problem

Pictures = dict[str, tuple[str, ...]]


def pictures_of(
    spec: Mapping[str, Any], problem_ids: Sequence[str], out: Path, data_dir_of: Callable[[str], Path | None]
) -> Pictures:
    """The file names, inside `out`, of the pictures of each problem of a cell with this spec.

    A problem that cannot be shown (its data is not on this machine, its image does not decode) has none.
    """
    data = json.dumps([spec.get("task"), spec.get("task_version"), spec.get("data_digest")])
    list_path = out / f"{hashlib.sha256(data.encode()).hexdigest()[:16]}.json"
    listed: Pictures = {name: tuple(files) for name, files in recall(list_path).items()}
    missing = set(problem_ids) - set(listed)
    if missing:
        drawn = _draw(spec, missing, out, data_dir_of)
        listed |= drawn
        if drawn:
            text = json.dumps(listed, sort_keys=True, indent=0, ensure_ascii=True)
            write_atomically(list_path, f"{text}\n".encode())
    return {name: listed[name] for name in problem_ids if name in listed}


def _draw(spec: Mapping[str, Any], wanted: set[str], out: Path, data_dir_of: Callable[[str], Path | None]) -> Pictures:
    try:
        info = find_task(str(spec.get("task", "")))
        data_dir = data_dir_of(info.folder)
        if isinstance(info, OwnTask) and data_dir is not None:
            info, data_dir = find_task(str(data_dir)), None
        if info.media == "none" or not is_here(info, data_dir):
            return {}
        if data_digest(info, data_dir) != spec.get("data_digest"):
            return {}  # the rows are others by now
        rows = load_rows(info, data_dir, spec.get("limit"))
    except AtrlBenchError:  # a report without pictures is better than none; the page says that they are not here
        return {}
    names = [row_name(info, row, index) for index, row in enumerate(without_images(rows))]
    return {
        name: tuple(_write(picture, out) for picture in shown_pictures(info.code, rows[index]))
        for index, name in enumerate(names)
        if name in wanted
    }


def shown_pictures(task: Any, row: Mapping[str, Any]) -> list[Image]:
    """What the row shows, small; nothing for what cannot be decoded, which the cell has skipped as well."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            images = list(task.images(row))[:MAX_PICTURES]
            return [
                _strip(read_video(item, FRAMES, max_pixels=FRAME_SIDE**2).pictures())
                if isinstance(item, str)
                else _small(item)
                for item in images
            ]
        except MemoryError:
            raise  # says nothing about the picture, and what is written here is remembered
        except Exception:  # of as many kinds as there are ways to damage a picture
            return []


def _small(picture: Image) -> Image:
    small = picture.convert("RGB")
    small.thumbnail((SIDE, SIDE))
    return small


def _strip(frames: Sequence[Image]) -> Image:
    from PIL import Image as Pillow

    gap, width, height = 4, frames[0].width, frames[0].height
    strip = Pillow.new("RGB", ((width + gap) * len(frames) - gap, height), "white")
    for index, frame in enumerate(frames):
        strip.paste(frame, (index * (width + gap), 0))
    return strip


def _write(picture: Image, out: Path) -> str:
    """The name of the picture's file: lossless where that is small, as of drawings, else JPEG."""
    encoded = {}
    for suffix, options in ((".png", {"format": "PNG"}), (".jpg", {"format": "JPEG", "quality": 80})):
        sink = io.BytesIO()
        picture.save(sink, **options)
        encoded[suffix] = sink.getvalue()
    suffix = ".png" if len(encoded[".png"]) <= 1.5 * len(encoded[".jpg"]) else ".jpg"
    name = hashlib.sha256(encoded[suffix]).hexdigest()[:16] + suffix
    path = out / name
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, encoded[suffix])
    return name
