"""Whether two formulas are equal, asked of sympy inside a worker process that can be killed.

Only `grading.GradingPool` imports this, and only in its workers. Formulas are read by latex2sympy2_extended's grammar;
no string reaches `parse_expr`, `sympify` or `eval`. A power tower can keep sympy busy for ever, deaf to handlers and
threads, so the kernel ends the process: the limit is on computing time, which a busy machine does not shorten.
"""

from __future__ import annotations

import fcntl
import logging
import math
import multiprocessing
import os
import resource
import select
import signal
from typing import Any

PRELOADED = ("latex2sympy2_extended.latex2sympy2", "math_verify.grader")  # once, for all workers


def start_worker(memory_bytes: int) -> None:
    """Limit the memory of this process and tie its life to its parent's."""
    _end_with_parent()
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _end_with_parent() -> None:
    """Let the kernel end this process when the one that owns the pool is gone, however that one ended.

    Its death closes the pipe behind the sentinel. A thread could not wait for that: sympy may never let it run.
    """
    parent = multiprocessing.parent_process()
    if parent is None or not hasattr(fcntl, "F_SETOWN"):
        return
    sentinel = int(parent.sentinel)
    signal.signal(signal.SIGIO, signal.SIG_DFL)  # terminates the process
    fcntl.fcntl(sentinel, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(sentinel, fcntl.F_SETFL, fcntl.fcntl(sentinel, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([sentinel], [], [], 0)[0]:  # gone already
        os._exit(1)


def work(gold: str, answer: str, metric: str, seconds: float) -> Any:
    """Return what `compare` says or, for another metric than `equal`, what that metric's slow half gives."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = math.ceil(used.ru_utime + used.ru_stime + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    if metric == "equal":
        return compare(gold, answer)
    from atrl_bench.grading.scorers import score_slow

    return score_slow(gold, answer, metric)


def compare(gold: str, answer: str) -> str:
    """Return `equal`, `different`, or `unreadable` when the grammar does not cover the answer.

    `gold` is a formula, or several, one a line: any of them counts.
    """
    from math_verify.grader import sympy_expr_eq

    gold_formulas = [formula for line in gold.splitlines() if (formula := _read(line)) is not None]
    answer_formula = _read(answer)
    if not gold_formulas or answer_formula is None:
        return "unreadable"
    equal = any(sympy_expr_eq(one, answer_formula, float_rounding=6, numeric_precision=15) for one in gold_formulas)
    return "equal" if equal else "different"


def _read(latex: str) -> object | None:
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy
    from latex2sympy2_extended.math_normalization import NormalizationConfig

    try:
        return latex2sympy(
            latex,
            normalization_config=NormalizationConfig(),
            conversion_config=ConversionConfig(lowercase_symbols=False),
        )
    except MemoryError:
        raise
    except Exception:  # the grammar's own errors have no common base class
        return None
