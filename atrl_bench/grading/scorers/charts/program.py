"""The program in a response that should hold one."""

from __future__ import annotations

import re
import textwrap

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
