r"""Numbers read and computed exactly: sums of q·√r·π^k with rational q, so that 2.004 never equals 2.

`\frac{2\sqrt{5}}{5}` and `2/\sqrt5` become the same number. Nothing is evaluated: a small grammar of sums, products,
powers, roots and fractions, without variables, within limits on depth, digits and terms.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import isqrt

MAX_DEPTH = 24
MAX_BITS = 4096  # of a numerator or denominator
MAX_EXPONENT = 64
MAX_RADICAND = 10**12
MAX_TERMS = 16

Surd = dict[tuple[int, int], Fraction]  # {(r, k): q} is the sum of q·√r·π^k, r without square factors


class UnreadableError(ValueError):
    """This text is no number, list or plain wording that the grammar covers."""


# Reading ----------------------------------------------------------------------------------------------------------

INTEGER = re.compile(r"[-+]?\d{1,40}\Z")
DECIMAL = re.compile(r"([-+]?)(\d{0,40})\.(\d{1,40})\Z")
THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?\Z")
_CLOSING = {"(": ")", "{": "}", "[": "]"}
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|\d+(?:\.\d*)?|\.\d+)|(?P<command>\\frac)|(?P<sign>[-+*/^(){}\[\]√π%]))"
)


def parse_number(text: str) -> Surd:
    """The number that a cleaned text without unit denotes; raises `UnreadableError` for anything else."""
    if INTEGER.match(text):
        value = int(text)
        return {(1, 0): Fraction(value)} if value else {}
    parser = _Parser(text)
    number = parser.sum(0)
    if parser.token is not None:
        raise UnreadableError(text)
    return number


class _Parser:
    """Recursive descent over sums, products, powers, roots and fractions of numbers, without variables."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        position = 0
        text = text.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise UnreadableError(text)
            self.tokens.append(match[0].strip())
            position = match.end()
        self.position = 0

    @property
    def token(self) -> str | None:
        return self.tokens[self.position] if self.position < len(self.tokens) else None

    def take(self, expected: str | None = None) -> str:
        token = self.token
        if token is None or (expected is not None and token != expected):
            raise UnreadableError(f"{expected or 'a number'} expected")
        self.position += 1
        return token

    def sum(self, depth: int) -> Surd:
        if depth > MAX_DEPTH:
            raise UnreadableError("nested too deeply")
        total: Surd = {}
        while True:
            sign = -1 if self.token in ("+", "-") and self.take() == "-" else 1
            total = _add(total, self.product(depth), sign)
            if self.token not in ("+", "-"):
                return total

    def product(self, depth: int) -> Surd:
        result = self.mixed(depth)
        while self.token in ("*", "/", "√", "π", "(", "{", "\\frac"):
            if self.token in ("*", "/"):
                # 1/2√3 is read as (1/2)√3, left to right.
                combine = _multiply if self.take() == "*" else _divide
                result = combine(result, self.power(depth))
            else:
                result = _multiply(result, self.power(depth))
        return result

    def mixed(self, depth: int) -> Surd:
        r"""A power, or a mixed number: an integer before a proper fraction, `2\frac{1}{3}` or "2 1/3"."""
        start = self.position
        whole = self.token
        if whole is not None and whole.isdecimal():
            rest = self.tokens[start + 1 : start + 8]
            if rest[:2] == ["\\frac", "{"] and rest[3:5] == ["}", "{"] and rest[6:7] == ["}"]:
                above, below, length = rest[2], rest[5], 8
            elif len(rest) > 1 and rest[0] == "\\frac" and len(rest[1]) == 2:  # \frac12
                above, below, length = rest[1][0], rest[1][1], 3
            elif len(rest) > 2 and rest[0].isdecimal() and rest[1] == "/":
                above, below, length = rest[0], rest[2], 4
            else:
                return self.power(depth)
            if above.isdecimal() and below.isdecimal() and 0 < int(above[:40]) < int(below[:40]):
                self.position += length
                return rational(Fraction(_integer(whole)) + Fraction(_integer(above), _integer(below)))
        return self.power(depth)

    def power(self, depth: int) -> Surd:
        base = self.atom(depth)
        if self.token == "^":
            self.take()
            exponent = self.atom(depth + 1) if self.token == "{" else self.signed_integer()
            if self.token == "^":
                raise UnreadableError("a tower of powers")
            base = _power(base, exponent)
        if self.token == "%":
            self.take()
            base = _multiply(base, rational(Fraction(1, 100)))
        return base

    def signed_integer(self) -> Surd:
        sign = -1 if self.token == "-" and self.take() else 1
        return rational(Fraction(sign * _integer(self.take())))

    def atom(self, depth: int) -> Surd:
        if depth > MAX_DEPTH:
            raise UnreadableError("nested too deeply")
        token = self.take()
        if token in _CLOSING:
            inner = self.sum(depth + 1)
            self.take(_CLOSING[token])
            return inner
        if token == "π":
            return {(1, 1): Fraction(1)}
        if token == "√":
            return self.root(depth)
        if token == "\\frac":
            above = self.argument(depth)
            return _divide(above, self.argument(depth))
        if token[0].isdecimal() or token[0] == ".":
            return rational(_decimal(token))
        raise UnreadableError(token)

    def root(self, depth: int) -> Surd:
        degree = 2
        if self.token == "[":
            self.take()
            degree = _integer(self.take())
            self.take("]")
        return _root(self.argument(depth, whole=True), degree)

    def argument(self, depth: int, whole: bool = False) -> Surd:
        r"""What a command applies to: a group, or without braces one digit as in `\frac12` (for √ the whole number)."""
        if (token := self.token or "").isdecimal() and len(token) > 1 and not whole:
            self.tokens[self.position : self.position + 1] = list(token[:40])
        return self.atom(depth + 1)


# Arithmetic -------------------------------------------------------------------------------------------------------


def _integer(token: str) -> int:
    if not token.isdecimal() or len(token) > 40:
        raise UnreadableError(token[:40])
    return int(token)


def _decimal(token: str) -> Fraction:
    token = token.replace(",", "")
    if len(token) > 80:
        raise UnreadableError("a number of many digits")
    return Fraction(token if token[-1] != "." else token[:-1])


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
    def terms() -> Iterator[tuple[tuple[int, int], Fraction]]:
        for ((r, k), p), ((s, j), q) in product(left.items(), right.items()):
            outside, inside = _split_square(r * s)
            yield (inside, k + j), p * q * outside

    return _collected(terms())


def _divide(left: Surd, right: Surd) -> Surd:
    if not right:
        raise UnreadableError("division by zero")
    if len(right) == 2 and len({k for _, k in right}) == 1:  # 1/(√3-1): multiply by the conjugate
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
        return _root(base, 2)
    if value.denominator != 1 or abs(value) > MAX_EXPONENT:
        raise UnreadableError("an exponent out of range")
    result = rational(Fraction(1))
    for _ in range(abs(int(value))):
        result = _multiply(result, base)
    return _divide(rational(Fraction(1)), result) if value < 0 else result


def _root(radicand: Surd, degree: int) -> Surd:
    if not radicand:
        return {}
    if set(radicand) != {(1, 0)}:
        raise UnreadableError("a root of a root")
    value = radicand[1, 0]
    if degree != 2:
        return rational(Fraction(_exact_root(value.numerator, degree), _exact_root(value.denominator, degree)))
    if value < 0:
        raise UnreadableError("a root of a negative number")
    outside, inside = _split_square(value.numerator * value.denominator)
    return {(inside, 0): Fraction(outside, value.denominator)}


def _exact_root(value: int, degree: int) -> int:
    if degree == 3 and abs(value) < MAX_RADICAND:
        root = round(abs(value) ** (1 / 3))
        if root**3 == abs(value):
            return root if value > 0 else -root
    raise UnreadableError("a root that is not a number of this grammar")


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
