"""Whether two formulas are equal, asked of sympy inside a worker process that can be killed (`pool`).

Formulas are read by latex2sympy2_extended's grammar; no string reaches `parse_expr`, `sympify` or `eval`. A power tower
can keep sympy busy for ever, deaf to handlers and threads: never call this in a process that has to go on.
"""

from __future__ import annotations

from typing import Literal

PRELOADED = ("latex2sympy2_extended.latex2sympy2", "math_verify.grader")  # once, for all workers


def compare_formulas(gold: str, answer: str) -> Literal["equal", "different", "unreadable"]:
    """Whether the answer is equal to the gold, or that the grammar does not cover them.

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
