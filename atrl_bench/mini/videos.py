"""Videos of moving handwritten digits, and problems about them; most cannot be solved when the frames are shuffled.

A scene shows one digit after the other, a second each, every one on a straight way of its own across the frame. The
same scan two seconds running is one digit that stays. `Problem.readings` is the digit of each second, in order of time:
what a response has to transcribe before it works the answer out. With eight frames a scene of four seconds is seen as
two frames of each digit, which Qwen2.5-VL makes one step in time of.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Literal

from atrl_bench.mini.digits import CELL, PAPER, Split, digit_of, draw_scan, scans_of
from atrl_bench.mini.problems import KINDS, DigitProblem, Kind, Solve, pick

if TYPE_CHECKING:
    import numpy as np

FRAME = 84  # nine visual tokens; a digit's cell has 28 pixels to move in
FRAMES_PER_SECOND = 16  # so that 16, 32 and 64 frames are different looks at a scene
NUM_SECONDS = 4
STAY_FRACTION = 0.4  # of the seconds of a lingering scene in which the digit stays
RETURN_FRACTION = 0.4  # of its changes that bring an earlier digit back

# `passing`: every second another digit, all different; `lingering`: digits stay, go and come back.
Style = Literal["passing", "lingering"]


@dataclass(frozen=True)
class Scene:
    """What a video shows: the scan of each second."""

    scans: tuple[int, ...]

    @property
    def readings(self) -> tuple[int, ...]:
        return tuple(digit_of(scan) for scan in self.scans)

    @property
    def name(self) -> str:
        """What names the scene, and is enough to draw it again."""
        return "-".join(str(scan) for scan in self.scans)

    @classmethod
    def named(cls, name: str) -> Scene:
        return cls(tuple(int(scan) for scan in name.split("-")))

    def frames(self) -> np.ndarray:
        """All frames (frames, height, width, 3) in 8 bits; the same scene moves the same way every time."""
        import numpy as np

        rng = np.random.default_rng(self.scans)
        frames = np.full((len(self.scans) * FRAMES_PER_SECOND, FRAME, FRAME), PAPER, dtype=np.uint8)
        start = 0
        for scan, seconds in groupby(self.scans):
            cell = np.asarray(draw_scan(scan, rng))
            count = len(list(seconds)) * FRAMES_PER_SECOND
            begin, end = rng.integers(0, FRAME - CELL + 1, size=(2, 2))
            for step in range(count):
                top, left = np.round(begin + (end - begin) * (step / (count - 1))).astype(int)
                frames[start + step, top : top + CELL, left : left + CELL] = cell
            start += count
        return np.repeat(frames[..., None], 3, axis=-1)

    def mp4(self) -> bytes:
        """An H.264 file, the same bytes every time."""
        return encode(self.frames(), FRAMES_PER_SECOND)


def encode(frames: np.ndarray, frames_per_second: int) -> bytes:
    """An MP4 file with H.264, of frames (frames, height, width, 3)."""
    import av

    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        # Near lossless: a blurred stroke would be one more difference between reading an image and a video.
        options = {"crf": "12", "preset": "ultrafast"}
        stream = container.add_stream("libx264", rate=Fraction(frames_per_second), options=options)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "yuv420p"
        stream.thread_count = 1  # several threads may cut the frames differently
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return buffer.getvalue()


def draw_scene(style: Style, split: Split, rng: np.random.Generator) -> Scene:
    digits = [int(digit) for digit in rng.permutation(10)]
    if style == "lingering":
        order, fresh = [digits[0]], digits[1:]
        while len(order) < NUM_SECONDS:
            earlier = [digit for digit in order if digit != order[-1]]
            if rng.random() < STAY_FRACTION:
                order.append(order[-1])
            elif earlier and rng.random() < RETURN_FRACTION:
                order.append(int(rng.choice(earlier)))
            else:
                order.append(fresh.pop(0))
        digits = order
    digits = digits[:NUM_SECONDS]
    scan_of = {digit: int(rng.choice(scans_of(digit, split))) for digit in sorted(set(digits))}
    return Scene(tuple(scan_of[digit] for digit in digits))


# What is asked ----------------------------------------------------------------------------------------------------


def _digit_at(index: int) -> Solve:
    return lambda readings: (f"{readings[index]}.", str(readings[index]))


def _order(readings: tuple[int, ...]) -> tuple[str, str]:
    listed = ", ".join(str(digit) for digit in readings)
    return f"{listed}.", listed


def _of(name: str, *places: int) -> Solve:
    """What a kind of picture asks, of the digits at these places."""
    return lambda readings: KINDS[name].solve(tuple(readings[place] for place in places))


def _count(number_of: Callable[[tuple[int, ...]], int]) -> Solve:
    return lambda readings: (f"{number_of(readings)}.", str(number_of(readings)))


def _kind(name: str, solve: Solve, *wordings: str) -> Kind:
    return Kind(name, "video", NUM_SECONDS, solve, wordings)


_KINDS = (
    _kind("first", _digit_at(0), "Which digit is the first?"),
    _kind("second", _digit_at(1), "Which digit is the second?"),
    _kind("last", _digit_at(-1), "Which digit is the last?"),
    _kind("order", _order, "List the digits in the order in which they are shown."),
    _kind("first_two", pick(0, 1), *KINDS["first_sum"].wordings),
    _kind("last_two", pick(-2, -1), *KINDS["last_sum"].wordings),
    _kind("both_ends", pick(0, -1), *KINDS["outer_sum"].wordings),
    _kind("mean_of_ends", _of("mean", 0, -1), "What is the mean of the first and the last digit?"),
    _kind("number_plus", _of("number_plus", 0, 1, -1), *KINDS["number_plus"].wordings),
    _kind(
        "changes",
        _count(lambda readings: sum(before != after for before, after in pairwise(readings))),
        "How many times is a digit followed by another digit?",
    ),
    # Of these another order of the frames has the same answer.
    _kind("total", KINDS["sum"].solve, "What is the sum of all digits?"),
    _kind("spread", KINDS["range"].solve, *KINDS["range"].wordings),
    _kind("largest_and_smallest", KINDS["extremes"].solve, *KINDS["extremes"].wordings),
    _kind("different", _count(lambda readings: len(set(readings))), "How many different digits are shown?"),
)
VIDEO_KINDS: dict[str, Kind] = {kind.name: kind for kind in _KINDS}
# A digit that stays would be two digits to some readers: only these ask about it.
KINDS_OF_STYLE: dict[Style, tuple[str, ...]] = {
    "passing": tuple(name for name in VIDEO_KINDS if name not in ("changes", "different")),
    "lingering": ("changes", "different"),
}


def ask(scene: Scene, name: str, rng: np.random.Generator) -> DigitProblem:
    kind = VIDEO_KINDS[name]
    steps, answer = kind.solve(scene.readings)
    return DigitProblem(kind, scene.scans, scene.readings, int(rng.integers(len(kind.wordings))), steps, answer)
