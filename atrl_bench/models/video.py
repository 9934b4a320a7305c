"""Frames of a video, evenly spaced and in order of time, with what a model needs to know when each was seen.

decord decodes, in a process of its own. It is given a limit because decord has none: on a file that promises more
frames than it holds it searches for ever in native code, where no signal of Python reaches it; readers that stay open
keep decoding ahead into memory; and a damaged stream can end the process. One worker, renewed after some files, which
is stopped when it takes too long, turns each of these into a `BadVideoError` about one file.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import re
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing.util import Finalize
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from atrl_bench.errors import AtrlBenchError

if TYPE_CHECKING:
    from pebble import ProcessPool
    from PIL.Image import Image

TEMPORAL_PATCH = 2  # frames that Qwen2.5-VL makes one step in time of
SIDE = 28  # a visual token's side in pixels: patch 14, merged two by two
SECONDS = 300.0  # of computing for one file; 64 places in an hour of 1080p take about a fifth of it
PATIENCE = 4  # a worker may take this many times its computing time, on a busy machine
NUM_ATTEMPTS = 3  # of a video whose worker dies
NUM_THREADS = 2  # decord's own choice is all cores for every reader; the frames are the same
FILES_PER_WORKER = 64  # decord leaks a little with each
MEMORY_BYTES = 8 << 30  # of a worker: a header may promise frames of any size
FRAMES_AT_ONCE = 8  # before they are reduced
CACHED_VIDEOS = 4  # benchmarks ask several questions about one video
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
        """The second at which each frame is shown."""
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
        """The frames as pictures, for whoever cannot take a video."""
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
    try:
        # A worker of someone else's may not have workers, but can be killed by whoever started it.
        if multiprocessing.current_process().daemon:
            return decode(path, num_frames, max_pixels)
        return _workers.decode(path, num_frames, max_pixels, SECONDS)
    except BadVideoError as error:  # which a second question about it should not wait for again
        return error


def decode(path: str, num_frames: int, max_pixels: int | None = None) -> Video:
    """In this process and without any limit."""
    import decord

    name = Path(path).name  # all that an error says of the path: a reason in a report is the same on every machine
    try:
        reader = decord.VideoReader(path, ctx=decord.cpu(0), num_threads=NUM_THREADS)
        num_source_frames, source_fps = len(reader), float(reader.get_avg_fps())
        if not num_source_frames:
            raise BadVideoError(f"{name} has no frames")
        if not (math.isfinite(source_fps) and source_fps > 0):
            raise BadVideoError(f"{name} does not say how many frames it has a second")
        indices = spaced(num_source_frames, num_frames)
        frames = [
            reduced(frame, max_pixels)
            for start in range(0, len(indices), FRAMES_AT_ONCE)
            for frame in reader.get_batch(list(indices[start : start + FRAMES_AT_ONCE])).asnumpy()
        ]
    except (RuntimeError, decord.DECORDError) as error:
        reason = _LOG_PREFIX.sub("", str(error).replace(path, name)).splitlines()[0]
        raise BadVideoError(f"{name} cannot be decoded: {reason}") from None
    return Video(np.stack(frames), indices, num_source_frames, source_fps)


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


# The worker -------------------------------------------------------------------------------------------------------


class _Workers:
    """The one process that decodes for this one, started when the first video is read."""

    def __init__(self) -> None:
        self._pool: ProcessPool | None = None

    def decode(self, path: str, num_frames: int, max_pixels: int | None, seconds: float) -> Video:
        """Raises `BadVideoError` after `seconds` of computing."""
        from pebble import ProcessExpired

        name = Path(path).name
        try:
            frames, indices, num_source_frames, source_fps = self._decoded(path, num_frames, max_pixels, seconds)
        except FutureTimeoutError:
            raise BadVideoError(f"{name} was not decoded within {PATIENCE * seconds:g} s") from None
        except MemoryError:
            raise BadVideoError(f"{name} needs more than {MEMORY_BYTES >> 30} GiB to be decoded") from None
        except ProcessExpired as error:
            overtime = error.exitcode == -signal.SIGXCPU
            reason = f"took more than {seconds:g} s of computing" if overtime else f"ended with code {error.exitcode}"
            raise BadVideoError(f"{name} cannot be decoded: decord {reason}") from None
        except BrokenExecutor as error:
            raise AtrlBenchError(
                "The process that decodes videos could not start.",
                why="It imports the main script, as every multiprocessing worker does.",
                next_step="put what the script runs under `if __name__ == '__main__':`",
            ) from error
        return Video(frames, indices, num_source_frames, source_fps)

    def _decoded(self, *arguments: Any) -> tuple[Any, ...]:
        from pebble import ProcessExpired

        *_, seconds = arguments
        for attempt in range(1, NUM_ATTEMPTS + 1):
            try:
                return self._started().schedule(_decode_within, arguments, timeout=PATIENCE * seconds).result()
            except ProcessExpired as error:  # killed, by whoever: that says nothing about the video
                if attempt == NUM_ATTEMPTS or error.exitcode == -signal.SIGXCPU:
                    raise
            except RuntimeError:  # a worker that was killed while it had nothing to do has broken its pool for good
                self.close()
                if attempt == NUM_ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    def _started(self) -> ProcessPool:
        if self._pool is None:
            from pebble import ProcessPool

            self._pool = ProcessPool(
                max_workers=1,
                max_tasks=FILES_PER_WORKER,
                initializer=_start_worker,
                context=multiprocessing.get_context("spawn"),  # a fork would copy a process that holds a model
            )
            Finalize(self, self.close, exitpriority=0)
        return self._pool

    def close(self) -> None:
        """The next video starts a new worker."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.stop()
            pool.join()


_workers = _Workers()


def _start_worker() -> None:
    import decord

    decord.logging.set_level(decord.logging.QUIET)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # decord writes its errors there before it raises them
    with contextlib.suppress(ImportError, ValueError, OSError):  # not on every system
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, hard))


def _decode_within(path: str, num_frames: int, max_pixels: int | None, seconds: float) -> tuple[Any, ...]:
    with _computing_limit(seconds):
        video = decode(path, num_frames, max_pixels)
    return video.frames, video.indices, video.num_source_frames, video.source_fps


@contextlib.contextmanager
def _computing_limit(seconds: float) -> Iterator[None]:
    """End this process after so many more seconds of computing: also where its parent has gone and cannot stop it."""
    try:
        import resource
    except ImportError:
        yield
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(used.ru_utime + used.ru_stime + seconds), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
