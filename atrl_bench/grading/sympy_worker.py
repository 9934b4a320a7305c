"""Whether two formulas are equal, asked of sympy inside a worker process that can be killed (`pool`).

Formulas are read by latex2sympy2_extended's grammar; no string reaches `parse_expr`, `sympify` or `eval`. A power tower
can keep sympy busy for ever, deaf to handlers and threads: never call this in a process that has to go on.
"""

from __future__ import annotations

from math import comb, inf, prod
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from sympy import Basic

MAX_TERMS = 1024  # of an expanded formula; sympy takes seconds over more
MAX_BITS = 1 << 16  # of an integer
MAX_FACTORIAL = 5000

PRELOADED = ("latex2sympy2_extended.latex2sympy2", "math_verify.grader")  # once, for all workers


def compare_formulas(gold: str, answer: str) -> Literal["equal", "different", "unreadable", "too large"]:
    """Whether the answer is equal to the gold formula, or to one of several, one a line."""
    from math_verify.grader import sympy_expr_eq

    gold_formulas = [formula for line in gold.splitlines() if (formula := read_formula(line)) is not None]
    answer_formula = read_formula(answer)
    if not gold_formulas or answer_formula is None:
        return "unreadable"
    if any(expanded_terms(formula) > MAX_TERMS for formula in (*gold_formulas, answer_formula)):
        return "too large"
    equal = any(sympy_expr_eq(one, answer_formula, float_rounding=6, numeric_precision=15) for one in gold_formulas)
    return "equal" if equal else "different"


def expanded_terms(formula: Basic) -> float:
    """At most how many terms a formula has when it is multiplied out; infinite for a number too long to write down."""
    from sympy import Add, Integer, Mul, Pow, factorial

    terms = [expanded_terms(part) for part in formula.args]
    if max(terms, default=1) > MAX_TERMS:
        return inf
    if isinstance(formula, Add):
        return sum(terms)
    if isinstance(formula, Mul):
        return prod(terms)
    if isinstance(formula, factorial) and isinstance(formula.args[0], Integer):
        return 1 if formula.args[0] <= MAX_FACTORIAL else inf
    if not isinstance(formula, Pow):
        return max(terms, default=1)
    base, exponent = formula.args
    power = exponent.doit() if isinstance(exponent, Pow) and exponent.is_number else exponent
    if not isinstance(power, Integer):
        return max(terms)
    if isinstance(base, Integer):
        return 1 if int(base).bit_length() * abs(int(power)) <= MAX_BITS else inf
    size, degree = int(terms[0]), abs(int(power))
    return 1 if size == 1 else comb(size + degree - 1, degree) if degree < MAX_TERMS else inf


def read_formula(latex: str) -> Basic | None:
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
