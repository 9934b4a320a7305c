r"""Numbers read and computed exactly: sums of q·√r·π^k with rational q, so that 2.004 never equals 2.

`\frac{2\sqrt{5}}{5}` and `2/\sqrt5` become the same number. Python's grammar reads them, as a tree that is never run,
in which each number is a name; a small arithmetic without variables, within limits on digits and terms, computes it.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from itertools import product
from math import isqrt

MAX_DIGITS = 80  # of a number
MAX_BITS = 4096  # of a numerator or denominator
MAX_EXPONENT = 64
MAX_RADICAND = 10**12
MAX_TERMS = 16

Surd = dict[tuple[int, int], Fraction]  # {(r, k): q} is the sum of q·√r·π^k, r without square factors


class UnreadableError(ValueError):
    """This text is no number, list or plain wording that the grammar covers."""


DECIMAL = re.compile(r"[-+]?(?:\d{1,40}|\d{0,40}\.(\d{1,40}))\Z")  # or an integer
THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?\Z")
_NUMERIC = re.compile(r"(?:\\frac|[\d\s.,+*/^(){}\[\]√π%-])*")
_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|\d+(?:\.\d*)?|\.\d+")


def _mixed(match: re.Match[str]) -> str:
    """An integer before a proper fraction, `2\\frac{1}{3}` or "2 1/3", is a sum."""
    whole, above, below = match.groups()
    return f"({whole}+{above}/{below})" if int(above) < int(below) else match[0]


_TO_PYTHON: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = tuple(
    (re.compile(pattern), python)
    for pattern, python in (
        (r"(?<![\d.,*/^√)}π])(?<![*/^√)}π]\s)(\d+)\s*\\frac\s*\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}", _mixed),
        (r"(?<![\d.,*/^√)}π])(?<![*/^√)}π]\s)(\d+)\s+(\d+)\s*/\s*(\d+)(?![\d.])", _mixed),
        (r"\}\s*\{", " , "),  # no comma of thousands
        (r"\\frac\s*", "frac"),
        (r"\{", "("),
        (r"\}", ")"),
        (r"(?<=[\d.%)π])\s*(?=[(√π]|frac)", "*"),  # 2√3; 1/2√3 is (1/2)√3, left to right
        ("√", "~"),  # a prefix
        (r"\^", "**"),
        ("%", "*percent"),
    )
)


def parse_number(text: str) -> Surd:
    """The number that a cleaned text without unit denotes; raises `UnreadableError` for anything else."""
    if DECIMAL.match(text):
        return rational(Fraction(text))
    if not _NUMERIC.fullmatch(text):
        raise UnreadableError(text)
    for pattern, python in _TO_PYTHON:
        text = pattern.sub(python, text)
    numbers: dict[str, Surd] = {"π": {(1, 1): Fraction(1)}, "percent": rational(Fraction(1, 100))}

    def name(match: re.Match[str]) -> str:
        if len(match[0]) > MAX_DIGITS:
            raise UnreadableError("a number of many digits")
        numbers[f"n{len(numbers)}"] = rational(Fraction(match[0].replace(",", "")))
        return f" n{len(numbers) - 1} "

    try:
        return _computed(ast.parse(_NUMBER.sub(name, text).strip(), mode="eval").body, numbers)
    except (SyntaxError, MemoryError, RecursionError):
        raise UnreadableError(text) from None


def _computed(node: ast.expr, numbers: Mapping[str, Surd]) -> Surd:
    match node:
        case ast.Name(name) if name in numbers:
            return numbers[name]
        case ast.List([inner]):
            return _computed(inner, numbers)
        case ast.UnaryOp(op, operand) if type(op) in _PREFIXES:
            return _PREFIXES[type(op)](_computed(operand, numbers))
        case ast.BinOp(left, op, right) if type(op) in _OPERATIONS:
            return _OPERATIONS[type(op)](_computed(left, numbers), _computed(right, numbers))
        case ast.Call(ast.Name("frac"), [above, below]):
            return _divide(_computed(above, numbers), _computed(below, numbers))
    raise UnreadableError("no number")


def rational(value: Fraction) -> Surd:
    return {(1, 0): value} if value else {}


def _collected(terms: Iterable[tuple[tuple[int, int], Fraction]]) -> Surd:
    total: defaultdict[tuple[int, int], Fraction] = defaultdict(Fraction)
    for key, value in terms:
        total[key] += value
    number = {key: value for key, value in total.items() if value}
    if len(number) > MAX_TERMS:
        raise UnreadableError("a sum of many roots")
    if any(max(q.numerator.bit_length(), q.denominator.bit_length()) > MAX_BITS for q in number.values()):
        raise UnreadableError("a number of many digits")
    return number


def _add(left: Surd, right: Surd, sign: int = 1) -> Surd:
    return _collected([*left.items(), *((key, sign * value) for key, value in right.items())])


def _multiply(left: Surd, right: Surd) -> Surd:
    terms = []
    for ((r, k), p), ((s, j), q) in product(left.items(), right.items()):
        outside, inside = _split_square(r * s)
        terms.append(((inside, k + j), p * q * outside))
    return _collected(terms)


def same_ratio(left: Sequence[Surd], right: Sequence[Surd]) -> bool:
    """Whether the numbers stand to one another as the others do, none of them too large to say."""
    if not left or len(left) != len(right):
        return False
    try:
        return all(
            _multiply(one, right[0]) == _multiply(other, left[0]) for one, other in zip(left, right, strict=True)
        )
    except UnreadableError:
        return False


def _divide(left: Surd, right: Surd) -> Surd:
    if not right:
        raise UnreadableError("division by zero")
    if len(right) == 2 and len({k for _, k in right}) == 1:  # 1/(√3-1): _multiply by the conjugate
        (first, p), (second, q) = right.items()
        conjugate = {first: p, second: -q}
        return _divide(_multiply(left, conjugate), _multiply(right, conjugate))
    if len(right) > 1:
        raise UnreadableError("division by a sum of roots")
    (((r, k), q),) = right.items()
    return _multiply(left, {(r, -k): 1 / (q * r)})


def _power(base: Surd, exponent: Surd) -> Surd:
    value = exponent.get((1, 0), Fraction(0)) if set(exponent) <= {(1, 0)} else None
    if value is None:
        raise UnreadableError("an irrational exponent")
    if value.denominator == 2 and value.numerator == 1:
        return _root(base)
    if value.denominator != 1 or abs(value) > MAX_EXPONENT:
        raise UnreadableError("an exponent out of range")
    result = rational(Fraction(1))
    for _ in range(abs(int(value))):
        result = _multiply(result, base)
    return _divide(rational(Fraction(1)), result) if value < 0 else result


def _root(radicand: Surd) -> Surd:
    if not radicand:
        return {}
    if set(radicand) != {(1, 0)}:
        raise UnreadableError("a root of a root")
    value = radicand[1, 0]
    if value < 0:
        raise UnreadableError("a root of a negative number")
    outside, inside = _split_square(value.numerator * value.denominator)
    return {(inside, 0): Fraction(outside, value.denominator)}


@lru_cache(maxsize=4096)
def _split_square(value: int) -> tuple[int, int]:
    """(a, b) with value = a²·b and b without square factors."""
    if value > MAX_RADICAND:
        raise UnreadableError("a root of a large number")
    outside, inside, factor = 1, 1, 2
    while factor**3 <= value:
        while value % (factor * factor) == 0:
            value //= factor * factor
            outside *= factor
        if value % factor == 0:
            value //= factor
            inside *= factor
        factor += 1
    # What is left has at most two prime factors: a square of one, or no square at all.
    root = isqrt(value)
    return (outside * root, inside) if root * root == value else (outside, inside * value)


_PREFIXES: Mapping[type[ast.unaryop], Callable[[Surd], Surd]] = {
    ast.UAdd: partial(_add, {}),
    ast.USub: partial(_add, {}, sign=-1),
    ast.Invert: _root,
}
_OPERATIONS: Mapping[type[ast.operator], Callable[[Surd, Surd], Surd]] = {
    ast.Add: _add,
    ast.Sub: partial(_add, sign=-1),
    ast.Mult: _multiply,
    ast.Div: _divide,
    ast.Pow: _power,
}
