"""Frames of a video, evenly spaced and in order of time, with what a model needs to know when each was seen.

decord decodes, in a process of its own. It is given a limit because decord has none: on a file that promises more
frames than it holds it searches for ever in native code, where no signal of Python reaches it; readers that stay open
keep decoding ahead into memory; and a damaged stream can end the process. One worker, renewed after some files, which
is stopped when it takes too long, turns each of these into a `BadVideoError` about one file.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from atrl_bench.sandbox.pool import Failure, WorkerPool

if TYPE_CHECKING:
    from PIL.Image import Image

TEMPORAL_PATCH = 2  # frames that Qwen2.5-VL makes one step in time of
SIDE = 28  # a visual token's side in pixels: patch 14, merged two by two
SECONDS = 300.0  # of computing for one file; 64 places in an hour of 1080p take about a fifth of it
PATIENCE = 4  # a worker may take this many times its computing time, on a busy machine
NUM_THREADS = 2  # decord's own choice is all cores for every reader; the frames are the same
FILES_PER_WORKER = 64  # decord leaks a little with each
MEMORY_BYTES = 4 << 30  # of a worker: a header may promise frames of any size
FRAMES_AT_ONCE = 8  # before they are reduced
MAX_FRAME_BYTES = 192 << 20  # 8K has 95 MiB
CACHED_VIDEOS = 4  # benchmarks ask several questions about one video
# What films begin with. A list of files (HLS, DASH, ffconcat) is text and begins with none of them.
CONTAINERS = (b"\x1aE\xdf\xa3", b"RIFF", b"FLV\x01", b"\x00\x00\x01\xba", b"\x47\x40", b"OggS")
MP4_BOXES = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot")
COPY = "DECORDArrayCopyFromTo"  # which fails where FFmpeg pads the rows of a frame: at widths such as 16, 48 and 72
_LOG_PREFIX = re.compile(r"\[[\d:]+\] \S+:\d+: ")  # decord puts the time and its own source lines before its errors


class BadVideoError(OSError):
    """A video that is missing, damaged, empty, or takes too long to decode: its row is left out and counted."""


@dataclass(frozen=True, eq=False)
class Video:
    """Some frames of a video."""

    frames: np.ndarray  # (frames, height, width, 3): red, green and blue in 8 bits
    indices: tuple[int, ...]  # which frames of the file these are
    num_source_frames: int
    source_fps: float

    @property
    def timestamps(self) -> tuple[float, ...]:
        return tuple(index / self.source_fps for index in self.indices)

    @property
    def metadata(self) -> dict[str, Any]:
        """What a transformers processor calls `video_metadata`: from it follow the positions in time."""
        return {
            "total_num_frames": self.num_source_frames,
            "fps": self.source_fps,
            "frames_indices": list(self.indices),
        }

    def pictures(self) -> list[Image]:
        from PIL import Image as Pillow

        return [Pillow.fromarray(frame) for frame in self.frames]

    def reordered(self, order: Sequence[int]) -> Video:
        """The video with these frames in this order, shown at the same moments: what T-GRPO shuffles."""
        return replace(self, frames=self.frames[list(order)])


def spaced(num_source_frames: int, num_frames: int) -> tuple[int, ...]:
    """`num_frames` evenly spaced places from the first to the last frame, fewer for a shorter file.

    Always an even number: the model sees two frames as one step in time. A single frame is seen twice.
    """
    if num_frames < TEMPORAL_PATCH or num_frames % TEMPORAL_PATCH:
        raise ValueError(f"{num_frames} frames asked for; it has to be an even number")
    if num_source_frames < TEMPORAL_PATCH:
        return (0,) * TEMPORAL_PATCH
    count = min(num_frames, num_source_frames // TEMPORAL_PATCH * TEMPORAL_PATCH)
    return tuple(int(index) for index in np.linspace(0, num_source_frames - 1, count).round())


def read_video(path: str | Path, num_frames: int, *, max_pixels: int | None = None) -> Video:
    """`num_frames` frames of the file, each of at most `max_pixels`; raises `BadVideoError`, never hangs."""
    path = Path(path)
    if not path.is_file():
        raise BadVideoError(f"there is no video file {path.name} in {path.parent.name}")
    status = path.stat()
    result = _remembered(str(path), (status.st_size, status.st_mtime_ns), num_frames, max_pixels)
    if isinstance(result, BadVideoError):
        raise result.with_traceback(None)
    return result


@lru_cache(maxsize=CACHED_VIDEOS)
def _remembered(path: str, content: tuple[int, int], num_frames: int, max_pixels: int | None) -> Video | BadVideoError:
    # A worker of someone else's may not have workers, but can be killed by whoever started it.
    if multiprocessing.current_process().daemon:
        return _decoded(path, num_frames, max_pixels)
    [result] = decoders.call_each([(decode_quietly, (path, num_frames, max_pixels))])
    if isinstance(result, Failure):  # which a second question about it should not wait for again
        return BadVideoError(f"{Path(path).name} cannot be decoded: {result.why}")
    return result


def decode(path: str, num_frames: int, max_pixels: int | None = None) -> Video:
    """In this process and without any limit."""
    import decord

    name = Path(path).name  # all that an error says of the path: a reason in a report is the same on every machine
    try:
        _require_video(path)
        reader = decord.VideoReader(path, ctx=decord.cpu(0), num_threads=NUM_THREADS)
        num_source_frames, source_fps = len(reader), float(reader.get_avg_fps())
        if not num_source_frames:
            raise BadVideoError(f"{name} has no frames")
        if not (math.isfinite(source_fps) and source_fps > 0):
            raise BadVideoError(f"{name} does not say how many frames it has a second")
        indices = spaced(num_source_frames, num_frames)
        frames: list[np.ndarray] = []
        # The first alone: it shows how large they are.
        for start, end in pairwise((0, *range(1, len(indices), FRAMES_AT_ONCE), len(indices))):
            batch = reader.get_batch(list(indices[start:end])).asnumpy()
            if batch[0].nbytes > MAX_FRAME_BYTES:
                raise BadVideoError(f"{name} has frames of more than {MAX_FRAME_BYTES >> 20} MiB")
            frames += [reduced(frame, max_pixels) for frame in batch]
    except (RuntimeError, decord.DECORDError) as error:
        reason = _LOG_PREFIX.sub("", str(error).replace(path, name)).splitlines()[0]
        if COPY in reason:
            reason = "decord reads no frames that are so narrow; those of at least 80 pixels it does"
        raise BadVideoError(f"{name} cannot be decoded: {reason}") from None
    return Video(np.stack(frames), indices, num_source_frames, source_fps)


def _require_video(path: str) -> None:
    """Raise for a file that is no film itself: FFmpeg follows playlists, whatever they are called, to any file."""
    with open(path, "rb") as file:
        head = file.read(16)
    if not (head.startswith(CONTAINERS) or head[4:8] in MP4_BOXES):
        raise BadVideoError(f"{Path(path).name} cannot be decoded: it is no MP4, WebM, Matroska, AVI, FLV or MPEG file")


def reduced(frame: np.ndarray, max_pixels: int | None) -> np.ndarray:
    """The frame, made smaller if it has more pixels than that, in whole visual tokens as Qwen does it.

    The processor then finds nothing left to do; and 64 frames of 1080p would be 400 MB to hand over.
    """
    height, width, _ = frame.shape
    if max_pixels is None or height * width <= max_pixels:
        return frame
    from PIL import Image as Pillow

    shrink = math.sqrt(height * width / max_pixels)
    height, width = (max(SIDE, math.floor(side / shrink / SIDE) * SIDE) for side in (height, width))
    return np.asarray(Pillow.fromarray(frame).resize((width, height), Pillow.Resampling.BICUBIC))


decoders = WorkerPool(
    work="decoding", seconds=SECONDS, patience=PATIENCE, memory_bytes=MEMORY_BYTES, calls_per_worker=FILES_PER_WORKER
)


def decode_quietly(path: str, num_frames: int, max_pixels: int | None) -> Video | BadVideoError:
    """What a worker does. decord writes its errors to the standard error before it raises them."""
    import decord

    decord.logging.set_level(decord.logging.QUIET)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    return _decoded(path, num_frames, max_pixels)


def _decoded(path: str, num_frames: int, max_pixels: int | None) -> Video | BadVideoError:
    try:
        return decode(path, num_frames, max_pixels)
    except BadVideoError as error:
        return error
