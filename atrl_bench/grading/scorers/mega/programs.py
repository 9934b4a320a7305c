"""Programs judged by their output: each of the row's test cases runs in isolation, never in this process (D14)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atrl_bench.errors import AtrlBenchError
from atrl_bench.grading.scorers.mega.literals import as_text
from atrl_bench.grading.scorers.mega.metric import CannotScoreError
from atrl_bench.sandbox.execution import Limits
from atrl_bench.sandbox.isolation import run_program

SECONDS = 2.0  # for a test case, as officially
MAX_CASES = 20
MEMORY_BYTES = 512 << 20

# Runs inside: the input comes from a file, and what is printed goes to one.
_RUNNER = b"""
import contextlib, runpy, sys
sys.stdin = open("input.txt", encoding="utf-8")
with open("output.txt", "w", encoding="utf-8") as output, contextlib.redirect_stdout(output):
    runpy.run_path("answer.py", run_name="__main__")
"""


def passes_tests(answer: Any, context: Mapping[str, Any]) -> float:
    """The share of the row's test cases whose expected output the program prints.

    Without permission to run programs (`--allow-code`) or without isolation on this machine there is no score.
    """
    cases = context["test_case"]
    cases = [cases] if isinstance(cases, Mapping) else list(cases)
    if not cases or len(cases) > MAX_CASES:
        raise CannotScoreError(f"the row has {len(cases)} test cases")
    program = as_text(answer)
    if not program.strip():
        return 0.0
    return sum(_prints(program, case) for case in cases) / len(cases)


def _prints(program: str, case: Mapping[str, Any]) -> bool:
    lines = case["input"]
    typed = "\n".join([lines] if isinstance(lines, str) else map(str, lines)) + "\n"
    try:
        result = run_program(
            _RUNNER,
            files={"answer.py": program.encode("utf-8", "replace"), "input.txt": typed.encode()},
            outputs=["output.txt"],
            limits=Limits(
                wall_seconds=SECONDS + 1, cpu_seconds=int(SECONDS), memory_bytes=MEMORY_BYTES, num_processes=4
            ),
        )
    except AtrlBenchError as error:
        raise CannotScoreError(error.what) from error
    printed = result.files.get("output.txt", b"").decode("utf-8", "replace")
    return result.state == "finished" and printed.rstrip() == as_text(case["expected"]).rstrip()
