"""Whether two formulas are equal, asked of sympy inside a worker process that can be killed.

Only `grading.GradingPool` imports this, and only in its workers. Formulas are read by latex2sympy2_extended's grammar;
no string reaches `parse_expr`, `sympify` or `eval`. A power tower can keep sympy busy for ever, deaf to signals, so
the pool kills the process; the limits set here are for the case that the pool itself is gone.
"""

from __future__ import annotations

import ctypes
import logging
import resource
import signal
import sys

CPU_GRACE_SECONDS = 5


def start_worker(memory_bytes: int) -> None:
    """Limit the memory of this process, tie its life to its parent's, and import sympy before the first question."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    from latex2sympy2_extended import latex2sympy2  # noqa: F401
    from math_verify import grader  # noqa: F401

    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def compare(gold: str, answer: str, seconds: float) -> str:
    """Return `equal`, `different`, or `unreadable` when the grammar does not cover the answer."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime + seconds) + CPU_GRACE_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    from math_verify.grader import sympy_expr_eq

    gold_formula = _read(gold)
    answer_formula = _read(answer)
    if gold_formula is None or answer_formula is None:
        return "unreadable"
    equal = sympy_expr_eq(gold_formula, answer_formula, float_rounding=6, numeric_precision=15)
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
