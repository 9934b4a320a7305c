r"""How much a chart drawn by a model's program resembles the chart drawn by the benchmark's: ChartMimic's low level.

Both programs run in isolation (`sandbox`), each by itself; what they draw is described by a harness of
ours (`harness`), and the score is the mean of four F1 values, each 2·common / (given + expected):

- text: the strings that are drawn, as often as they are drawn
- layout: for each pair of axes the grid it lies in and the cells it covers
- type: for each pair of axes the kinds of plot called on it (`bar`, `hist`, `pie`, ...)
- colour: the colours that the data is drawn in, paired so that similarity is greatest

A program that does not run to its end, or draws nothing, scores 0. The official scorer differs (ChartMimic's tracing
evaluators): it counts every call of a plotting function, where a type counts once for each pair of axes here, so a loop
of five `plot` calls and one call with five lines are the same; it compares colours separately for each type of chart;
it draws to PDF with matplotlib 3.8.4, where the installed version draws to PNG here, so ticks may be chosen otherwise.
Random numbers are seeded the same for both programs. Only fonts that matplotlib brings are there; no part of the
score looks at their shapes.
"""

from __future__ import annotations

import io
import os
import re
import struct
import textwrap
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from atrl_bench.grading.scorers.charts.description import (
    Description,
    InvalidDescriptionError,
    read_description,
    similarities,
)
from atrl_bench.results.records import Gold, State, Verdict
from atrl_bench.sandbox.execution import Limits
from atrl_bench.sandbox.isolation import require_isolation, run_program

HARNESS = Path(__file__).with_name("harness.py")
LIMITS = Limits(wall_seconds=120, cpu_seconds=60)  # the official limit is 120 s
ENVIRONMENT = {"MPLBACKEND": "Agg", "MPLCONFIGDIR": "/sandbox/work/.matplotlib"} | dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)
MAX_PARALLEL = 8
MAX_PIXELS = 50_000_000
MAX_PROGRAM_CHARS = 100_000
_FENCED = re.compile(r"^[ \t]*```([^\n]*)\n(.*?)(?:```|\Z)", re.S | re.M)
_MARKED, _UNMARKED = ("python", "py", "python3"), ("",)
_IMPORT = re.compile(r"^(?:import|from) +(?:matplotlib|numpy|seaborn|pandas)\b", re.M)


def find_program(response: str) -> str | None:
    """The last fenced block marked as Python, else the last without a mark, else what follows the first import.

    The last, because a response that reasons ends with what it has arrived at; the official scorer takes the first. A
    fence that is never closed, as in a response that was cut off, reaches to the end.
    """
    blocks = [(mark.strip().lower(), body) for mark, body in _FENCED.findall(response)]
    for accepted in (_MARKED, _UNMARKED):
        bodies = [body for mark, body in blocks if mark in accepted and body.strip()]
        if bodies:
            return _checked(bodies[-1])
    start = None if blocks else _IMPORT.search(response)
    return _checked(response[start.start() :]) if start else None


def _checked(program: str) -> str | None:
    return textwrap.dedent(program) if len(program) <= MAX_PROGRAM_CHARS else None


class DrawnChart(NamedTuple):
    """What a program drew, described and as a PNG file; without a description `why` says what went wrong."""

    description: Description | None
    picture: bytes
    why: str
    timed_out: bool = False


@lru_cache(maxsize=512)
def draw(program: str) -> DrawnChart:
    """What a program draws, run in isolation; the same program runs once."""
    result = run_program(
        HARNESS.read_bytes(),
        files={"chart.py": program.encode("utf-8", "replace")},
        outputs=("chart.json", "chart.png"),
        environment=ENVIRONMENT,
        limits=LIMITS,
    )
    if result.state != "finished":
        return DrawnChart(None, b"", result.why, result.state == "timed out")
    try:
        description = read_description(result.files.get("chart.json", b""))
    except InvalidDescriptionError as error:
        return DrawnChart(None, b"", str(error))
    picture = result.files.get("chart.png", b"")
    if not _is_picture(picture):
        return DrawnChart(None, b"", "its picture is no PNG file")
    return DrawnChart(description, picture, "")


def _is_picture(content: bytes) -> bool:
    """Whether these bytes, which a program can replace, are a PNG file that a judge can be shown."""
    from PIL import Image

    if content[:8] != b"\x89PNG\r\n\x1a\n" or len(content) < 24:
        return False
    width, height = struct.unpack(">II", content[16:24])
    if width * height > MAX_PIXELS:  # before Pillow looks: it only warns, and warnings are not for threads to change
        return False
    try:
        Image.open(io.BytesIO(content), formats=["PNG"]).verify()
    except (OSError, SyntaxError, ValueError):
        return False
    return True


def draw_many(programs: Sequence[str]) -> list[DrawnChart]:
    """What each program draws, several at a time. Raises when programs may not run on this machine."""
    require_isolation()
    programs = [program.strip() for program in programs]
    different = list(dict.fromkeys(programs))
    with ThreadPoolExecutor(min(MAX_PARALLEL, os.cpu_count() or 1)) as threads:
        drawn = dict(zip(different, threads.map(draw, different), strict=True))
    return [drawn[program] for program in programs]


def score_many(answers: Sequence[tuple[str, Gold]]) -> list[Verdict]:
    """The verdicts on (response, gold) pairs; all their programs run side by side."""
    pairs = [(find_program(response), gold.answer) for response, gold in answers]
    programs = list(dict.fromkeys(each for program, right in pairs if program for each in (right, program)))
    drawn = dict(zip(programs, draw_many(programs), strict=True))
    return [_verdict(program, drawn[right], drawn[program]) if program else NO_PROGRAM for program, right in pairs]


def _verdict(program: str, expected: DrawnChart, drawn: DrawnChart) -> Verdict:
    extracted = program[:2000]
    if expected.description is None:
        # Nothing the model wrote could score here, so this is no wrong answer.
        return _unscored("unparseable", extracted, f"the gold's program does not run: {expected.why}")
    if drawn.description is None:
        state: State = "timed out" if drawn.timed_out else "wrong"
        return _unscored(state, extracted, f"the program does not run: {drawn.why}")
    parts = similarities(drawn.description, expected.description)
    score = sum(parts.values()) / len(parts)
    why = ", ".join(f"{part} {value:.2f}" for part, value in parts.items())
    return Verdict("correct" if score >= 1 else "wrong", extracted, "chart", why, score, {"executed": 1.0, **parts})


def _unscored(state: State, extracted: str | None, why: str) -> Verdict:
    return Verdict(state, extracted, "chart", why, 0.0, {"executed": 0.0, **dict.fromkeys(Description._fields, 0.0)})


NO_PROGRAM = _unscored("unparseable", None, "no Python program in the response")
