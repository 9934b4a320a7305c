r"""What an answer says, read exactly: numbers with roots and π, units, lists, words.

A small grammar of its own, because almost every answer is a number and because nothing a model writes may reach a
parser that evaluates. Numbers are sums of q·√r·π^k with rational q, so `\frac{2\sqrt{5}}{5}` equals `2/\sqrt5` exactly
and 2.004 never equals 2. What the grammar does not cover (`x^2+1`, `\log 3`, `a\cup b`) raises `UnreadableError`;
`symbolic` takes it from there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import isqrt, pi, sqrt

MAX_CHARS = 400  # longer texts are not answers that this grammar reads
MAX_DEPTH = 24
MAX_BITS = 4096  # of a numerator or denominator
MAX_EXPONENT = 64
MAX_RADICAND = 10**12
MAX_TERMS = 16

Surd = dict[tuple[int, int], Fraction]  # {(r, k): q} is the sum of q·√r·π^k, r without square factors


class UnreadableError(ValueError):
    """This text is no number, list or plain wording that the grammar covers."""


@dataclass(frozen=True)
class Quantity:
    """A number with what was written around it."""

    terms: tuple[tuple[tuple[int, int], Fraction], ...]
    unit: str = ""
    places: int | None = None  # decimal places, when it was written as one plain decimal number
    percent: bool = False

    @property
    def number(self) -> Surd:
        """The number as a dictionary of terms."""
        return dict(self.terms)

    @property
    def rational(self) -> Fraction | None:
        """The number as a fraction, or None for one with a root or π."""
        if not self.terms:
            return Fraction(0)
        return self.terms[0][1] if len(self.terms) == 1 and self.terms[0][0] == (1, 0) else None

    def __float__(self) -> float:
        return sum((float(q) * sqrt(r) * pi**k for (r, k), q in self.terms), start=0.0)  # zero has no terms


@dataclass(frozen=True)
class Group:
    """Several values: a tuple or interval with its brackets, a set `{}`, or a bare enumeration `""`.

    `names` are what the items were assigned to, "" for those that were not: `x=1, y=2`.
    """

    brackets: str
    items: tuple[Value, ...]
    names: tuple[str, ...] = ()

    @property
    def has_own_names(self) -> bool:
        """Whether every item has a name that no other has; `x=1 or x=2` is a set of values."""
        return "" not in self.names and len(set(self.names)) == len(self.items) > 1


@dataclass(frozen=True)
class Words:
    """Plain wording, folded: case, spacing, articles and punctuation do not matter."""

    text: str


Value = Quantity | Group | Words


# Cleaning ---------------------------------------------------------------------------------------------------------

_CHARACTERS = str.maketrans(
    {
        **{full: chr(ord(full) - 0xFEE0) for full in map(chr, range(0xFF01, 0xFF5F)) if full not in "｛｝"},
        **dict.fromkeys("−–—‒﹣", "-"),
        **dict.fromkeys("×·⋅∙∗", "*"),
        **dict.fromkeys("÷∕⁄", "/"),
        **dict.fromkeys("掳º˚", "°"),  # 掳 is the degree sign, once read in a Chinese code page
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad"),
        **dict.fromkeys("\t\n\r\f\v\u00a0\u2009\u202f\u3000", " "),
        "、": ",",
        "。": ".",
        "²": "^2",
        "³": "^3",
        "½": r"\frac{1}{2}",
        "⅓": r"\frac{1}{3}",
        "⅔": r"\frac{2}{3}",
        "¼": r"\frac{1}{4}",
        "¾": r"\frac{3}{4}",
        "≅": "≈",
        "≃": "≈",
        "𝜋": "π",
    }
)
_REWRITES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\begin\{[a-z]{1,12}\*?\}|\\end\{[a-z]{1,12}\*?\}|\\(?:display|text)style\b", " "),
        (r"\\(?:left|right|[bB]igg?[lr]?)(?=[\s()\[\]{}|.\\])\.?", ""),
        (r"\{\s*,\s*\}|(?<=\d)\\[,!](?=\d{3})", ""),  # thousands, as LaTeX spaces them
        (r"\\[,;:! ]|~|\\q?quad\b|&", " "),
        (r"\\?\$|\\[()\[\]]|\*\*|\\\\", " "),
        (r"\\(?:text|mathrm|mathbf|textbf|textit|textrm|mathit|mathsf|operatorname|bm|boldsymbol|mbox|underline)\s*"
         r"\{([^{}]*)\}", r" \1 "),
        (r"\\[dtc]frac(?![a-z])", r"\\frac"),
        (r"\^\s*\{?\s*\\circ\s*\}?|\\degree\b|\{degrees?\}|\^\s*\{?°\}?", "°"),
        (r"\\%|\\percent\b", "%"),
        (r"\\pi(?![a-z])", "π"),
        (r"(?<![A-Za-z\\])pi(?![A-Za-z])", "π"),
        (r"\\(?:times|cdot|ast)(?![a-z])", "*"),
        (r"\\div(?![a-z])", "/"),
        (r"\\approx(?![a-z])|\\simeq(?![a-z])", "≈"),
        (r"\\infty(?![a-z])", "∞"),
        (r"(?:\\sqrt|(?<![A-Za-z\\])sqrt)(?![a-z])", "√"),
        (r"\\\{", "｛"),
        (r"\\\}", "｝"),
        (r"\^\{([23])\}", r"^\1"),
        (r"\^([23])\^", r"^\1"),  # cm^2^, as GeoQA writes square centimetres
        (r"\s{2,}", " "),
    )
)  # fmt: skip
_NEEDS_REWRITE = re.compile(r"[\\$~&{}]|\*\*|pi|sqrt|\^|\s\s")


def clean(text: str) -> str:
    r"""Return the text in one spelling: no layout commands, `\frac`, `√`, `π`, `*`, `°`, and set braces as ｛｝."""
    text = text.translate(_CHARACTERS)
    if not text.isprintable():
        text = "".join(char if char.isprintable() else " " for char in text)
    if _NEEDS_REWRITE.search(text):
        for pattern, replacement in _REWRITES:
            text = pattern.sub(replacement, text)
    # An exclamation mark after a number is a factorial.
    return re.sub(r"(?<=[A-Za-z])!+$", "", text.lstrip(" ,;:!*`\"'").rstrip(" .,;:*`\"'"))


# Units ------------------------------------------------------------------------------------------------------------

# Canonical names, so that "5 metres" and "5 m" say the same; the factor only converts within one dimension.
_SPELLINGS = {
    "mm": "mm millimeter millimeters millimetre millimetres 毫米",
    "cm": "cm cms centimeter centimeters centimetre centimetres 厘米",
    "dm": "dm decimeter decimeters 分米",
    "m": "m meter meters metre metres 米",
    "km": "km kms kilometer kilometers kilometre kilometres 千米 公里",
    "in": "in inch inches",
    "ft": "ft foot feet 英尺",
    "yd": "yd yard yards",
    "mi": "mi mile miles 英里",
    "nmi": "nmi 海里",
    "mg": "mg milligram milligrams 毫克",
    "g": "g gram grams 克",
    "kg": "kg kilogram kilograms 千克 公斤",
    "lb": "lb lbs pound pounds",
    "ms": "ms millisecond milliseconds 毫秒",
    "s": "s sec secs second seconds 秒",
    "min": "min mins minute minutes 分钟 分",
    "h": "h hr hrs hour hours 小时 时",
    "day": "day days 天 日",
    "week": "week weeks 周",
    "month": "month months 月",
    "year": "year years 年 岁",
    "mL": "mL ml milliliter milliliters millilitre millilitres 毫升",
    "L": "L l liter liters litre litres 升",
    "°": "° deg degs degree degrees 度",
    "rad": "rad rads radian radians 弧度",
    "°C": "°C ℃ celsius 摄氏度",
    "°F": "°F ℉ fahrenheit",
    "K": "K kelvin",
    "N": "N newton newtons 牛",
    "J": "J joule joules 焦耳",
    "kJ": "kJ",
    "W": "W watt watts 瓦",
    "kW": "kW",
    "V": "V volt volts 伏",
    "A": "A amp amps ampere amperes 安",
    "Ω": "Ω ohm ohms 欧",
    "Hz": "Hz hertz 赫兹",
    "Pa": "Pa pascal pascals",
    "kPa": "kPa",
    "mol": "mol mols moles",
    "$": "$ dollar dollars usd",
    "cent": "cent cents",
    "元": "元 yuan",
    "unit": "unit units 单位",
    "个": "个 人 只 条 块 次 种 本 张 支",
}
_UNIT_NAMES = {spelling: unit for unit, spellings in _SPELLINGS.items() for spelling in spellings.split()}
_FACTORS = {
    "length": {"mm": "1/1000", "cm": "1/100", "dm": "1/10", "m": "1", "km": "1000"}
    | {"in": "0.0254", "ft": "0.3048", "yd": "0.9144", "mi": "1609.344", "nmi": "1852"},
    "mass": {"mg": "1/1000", "g": "1", "kg": "1000", "lb": "453.59237"},
    "time": {"ms": "1/1000", "s": "1", "min": "60", "h": "3600", "day": "86400", "week": "604800"},
    "calendar": {"month": "1", "year": "12"},  # neither is a fixed number of days
    "volume": {"mL": "1/1000", "L": "1"},
    "energy": {"J": "1", "kJ": "1000"},
    "power": {"W": "1", "kW": "1000"},
    "pressure": {"Pa": "1", "kPa": "1000"},
    "money": {"cent": "1/100", "$": "1"},
}
_CONVERSION = {
    unit: (dimension, Fraction(factor)) for dimension, units in _FACTORS.items() for unit, factor in units.items()
}
_ONE_UNIT = "|".join(sorted(map(re.escape, _UNIT_NAMES), key=len, reverse=True))
_AREA_WORDS = r"(?:square|sq\.?|cubic|cu\.?|平方|立方)"
_POWER = r"(?:\s?\^\s?\{?\s?-?[1-4]\s?\}?)?"
_UNIT = re.compile(
    rf"(?<=[\d)}}π°%.\s])\s*(?P<area>{_AREA_WORDS})?\s*(?<![A-Za-z])(?P<unit>{_ONE_UNIT})(?P<power>{_POWER})"
    rf"(?P<per>(?:\s?(?:/|per|\*)\s?(?:{_ONE_UNIT}){_POWER})*)(?![A-Za-z])(?:\s(?:squared|cubed|old|long|wide|high|tall))?\s*$",
)
# After a number, up to three ordinary words name what is counted ("12 red apples"); these words mean something else.
_COUNTED = re.compile(
    r"(?<=[\d)}π%])\s+(?!(?:or|and|not|to|is|are|plus|minus|times|over|by|if|when|but|hundred|thousand|million|billion"
    r"|dozen|dozens|squared|cubed|half|halves|thirds?|quarters?|more|less|fewer|than|at|least|most|am|pm|a\.m|p\.m)\b)"
    r"[A-Za-z]{2,}(?:\s(?!(?:or|and|not|is|are|plus|minus|times|than)\b)[A-Za-z]{2,}){0,2}\s*$",
    re.I,
)


def split_unit(text: str) -> tuple[str, str]:
    """Return a cleaned text without the unit at its end, and the unit's canonical name ("" for none)."""
    match = _UNIT.search(text)
    # "5, cm" is a length; "5, A" may be two answers.
    if match and match.start() > 0 and not (len(match["unit"]) == 1 and text[: match.start()].rstrip().endswith(",")):
        power = re.sub(r"[^\d-]", "", match["power"])
        area = match["area"] or ""
        if area:
            power = "3" if area.startswith(("cu", "立")) else "2"
        unit = _UNIT_NAMES[match["unit"]] + power + match["per"].replace(" ", "")
        return text[: match.start()].rstrip(" ,"), unit
    return text, ""


_SIMPLE_UNIT = re.compile(rf"(?P<sign>/|per|\*|)(?P<unit>{_ONE_UNIT})\^?\{{?(?P<power>[1-4]?)\}}?(?=/|per|\*|$)")


def unit_factor(unit: str) -> tuple[str, Fraction] | None:
    """Return the dimension of a unit and what one of it is in the dimension's base, where the two are known.

    A quotient such as km/h has the dimension "length1/time1".
    """
    dimensions, total, place = "", Fraction(1), 0
    while place < len(unit):
        match = _SIMPLE_UNIT.match(unit, place)
        if match is None or (place == 0) != (match["sign"] == ""):
            return None
        known = _CONVERSION.get(_UNIT_NAMES[match["unit"]])
        if known is None:
            return None
        power = int(match["power"] or 1)
        divides = match["sign"] in ("/", "per")
        dimensions += ("/" if divides else "*" if place else "") + f"{known[0]}{power}"
        total *= known[1] ** (-power if divides else power)
        place = match.end()
    return (dimensions, total) if unit else None


# Numbers ----------------------------------------------------------------------------------------------------------

_INTEGER = re.compile(r"[-+]?\d{1,40}\Z")
_DECIMAL = re.compile(r"([-+]?)(\d{0,40})\.(\d{1,40})\Z")
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?\Z")
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|\d+(?:\.\d*)?|\.\d+)|(?P<command>\\frac)|(?P<sign>[-+*/^(){}\[\]√π%]))"
)


def parse_number(text: str) -> Surd:
    """Return the number that a cleaned text without unit denotes; raises `UnreadableError` for anything else."""
    if _INTEGER.match(text):
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
        place = 0
        text = text.rstrip()
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                raise UnreadableError(text)
            self.tokens.append(match[0].strip())
            place = match.end()
        self.place = 0

    @property
    def token(self) -> str | None:
        return self.tokens[self.place] if self.place < len(self.tokens) else None

    def take(self, expected: str | None = None) -> str:
        token = self.token
        if token is None or (expected is not None and token != expected):
            raise UnreadableError(f"{expected or 'a number'} expected")
        self.place += 1
        return token

    def sum(self, depth: int) -> Surd:
        if depth > MAX_DEPTH:
            raise UnreadableError("nested too deeply")
        total: Surd = {}
        sign = 1
        if self.token in ("+", "-"):
            sign = -1 if self.take() == "-" else 1
        while True:
            total = _add(total, self.product(depth), sign)
            if self.token not in ("+", "-"):
                return total
            sign = -1 if self.take() == "-" else 1

    def product(self, depth: int) -> Surd:
        result = self.mixed(depth)
        while True:
            token = self.token
            if token == "*":
                self.take()
                result = _multiply(result, self.signed(depth))
            elif token == "/":
                self.take()
                # 1/2√3 is read as (1/2)√3, left to right.
                result = _divide(result, self.signed(depth))
            elif token is not None and (token in ("√", "π", "(", "{", "\\frac")):
                result = _multiply(result, self.power(depth))
            else:
                return result

    def signed(self, depth: int) -> Surd:
        if self.token in ("+", "-"):
            return _add({}, self.power(depth), -1 if self.take() == "-" else 1)
        return self.power(depth)

    def mixed(self, depth: int) -> Surd:
        r"""A power, or a mixed number: an integer before a proper fraction, `2\frac{1}{3}` or "2 1/3"."""
        start = self.place
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
                self.place += length
                return _rational(Fraction(_integer(whole)) + Fraction(_integer(above), _integer(below)))
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
            base = _multiply(base, _rational(Fraction(1, 100)))
        return base

    def signed_integer(self) -> Surd:
        sign = -1 if self.token == "-" and self.take() else 1
        return _rational(Fraction(sign * _integer(self.take())))

    def atom(self, depth: int) -> Surd:
        if depth > MAX_DEPTH:
            raise UnreadableError("nested too deeply")
        token = self.take()
        if token in ("(", "{", "["):
            inner = self.sum(depth + 1)
            self.take({"(": ")", "{": "}", "[": "]"}[token])
            return inner
        if token == "π":
            return {(1, 1): Fraction(1)}
        if token == "√":
            return self.root(depth)
        if token == "\\frac":
            above = self.argument(depth)
            return _divide(above, self.argument(depth))
        if token[0].isdecimal() or token[0] == ".":
            return _rational(_decimal(token))
        raise UnreadableError(token)

    def root(self, depth: int) -> Surd:
        degree = 2
        if self.token == "[":
            self.take()
            degree = _integer(self.take())
            self.take("]")
        radicand = self.argument(depth, whole=True)
        return _root(radicand, degree)

    def argument(self, depth: int, whole: bool = False) -> Surd:
        r"""What a command applies to: a group, or without braces one digit as in `\frac12` (for √ the whole number)."""
        token = self.token
        if token is not None and token.isdecimal() and len(token) > 1 and not whole:
            self.tokens[self.place : self.place + 1] = list(token[:40])
        return self.atom(depth + 1)


def _integer(token: str) -> int:
    if not token.isdecimal() or len(token) > 40:
        raise UnreadableError(token[:40])
    return int(token)


def _decimal(token: str) -> Fraction:
    token = token.replace(",", "")
    if len(token) > 80:
        raise UnreadableError("a number of many digits")
    return Fraction(token if token[-1] != "." else token[:-1])


def _rational(value: Fraction) -> Surd:
    return {(1, 0): value} if value else {}


def _checked(number: Surd) -> Surd:
    if len(number) > MAX_TERMS:
        raise UnreadableError("a sum of many roots")
    for value in number.values():
        if value.numerator.bit_length() > MAX_BITS or value.denominator.bit_length() > MAX_BITS:
            raise UnreadableError("a number of many digits")
    return number


def _add(left: Surd, right: Surd, sign: int = 1) -> Surd:
    total = dict(left)
    for key, value in right.items():
        total[key] = total.get(key, Fraction(0)) + sign * value
    return _checked({key: value for key, value in total.items() if value})


def _multiply(left: Surd, right: Surd) -> Surd:
    total: Surd = {}
    for (r, k), p in left.items():
        for (s, j), q in right.items():
            outside, inside = _split_square(r * s)
            key = inside, k + j
            total[key] = total.get(key, Fraction(0)) + p * q * outside
    return _checked({key: value for key, value in total.items() if value})


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
    result = _rational(Fraction(1))
    for _ in range(abs(int(value))):
        result = _multiply(result, base)
    return _divide(_rational(Fraction(1)), result) if value < 0 else result


def _root(radicand: Surd, degree: int) -> Surd:
    if not radicand:
        return {}
    if set(radicand) != {(1, 0)}:
        raise UnreadableError("a root of a root")
    value = radicand[1, 0]
    if degree != 2:
        return _rational(Fraction(_exact_root(value.numerator, degree), _exact_root(value.denominator, degree)))
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
    """Return (a, b) with value = a²·b and b without square factors."""
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


# Values -----------------------------------------------------------------------------------------------------------

_CLOSING = {"(": ")", "[": "]", "｛": "｝"}
_LEADING = re.compile(
    r"(?:(?:is|are|equals?|about|approximately|approx\.?|around|roughly|exactly|only|the|answer|a total of)\s+"
    r"|≈\s*|=\s*|约\s*)+",
    re.I,
)
_NAME = re.compile(
    r"(?:[∠△]|\\angle|\\triangle|angle|length|area|perimeter)?\s?[A-Za-z]{1,12}'?(?:_\{?\w{1,8}\}?)?(?:\s?[A-Za-z]{1,12}){0,4}(?:\([a-z]\))?\s*\Z"
)
_AND = re.compile(r"\s+(?:and|or)\s+|[;；]\s*", re.I)
_DASHED = re.compile(r"\d+(?:-\d+)+")  # "5-4-3-2-1", "2014-2016": an order or a span, not a difference
_HAS_VALUE = re.compile(r"[\dπ]")
_NUMBER_WORDS = dict(
    zip(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"], range(11), strict=True)
) | {"eleven": 11, "twelve": 12}
_ARTICLES = re.compile(r"\b(?:the|an?)\s+|[^\w\s+\-*/^=<>|∞∪∩:≤≥±!∅]")


@lru_cache(maxsize=8192)
def read(text: str) -> Value:
    """Return what an answer says; raises `UnreadableError` when it is mathematics beyond this grammar."""
    if len(text) > MAX_CHARS:
        raise UnreadableError("longer than an answer")
    cleaned = clean(text)
    if not cleaned:
        raise UnreadableError("empty")
    return _read(cleaned, 0)


def _read(text: str, depth: int) -> Value:
    if depth > 4:
        raise UnreadableError("nested too deeply")
    text = _LEADING.sub("", text.strip(), count=1) if _LEADING.match(text.strip()) else text.strip()
    text = _right_side(text)
    quantity = _quantity(text)
    if quantity is not None:
        return quantity
    group = _group(text, depth)
    if group is not None:
        return group
    if _is_wording(text):
        words = fold(text)
        if words in _NUMBER_WORDS:
            return Quantity(tuple(_rational(Fraction(_NUMBER_WORDS[words])).items()), "", 0)
        if words:
            return Words(words)
    raise UnreadableError(text)


def _right_side(text: str) -> str:
    """Return what follows the last "=": `x=12`, `∠ABC = 50°` and `AB = 1.8*9/1.5 = 10.8` end with the answer."""
    if _AND.search(text):
        return text
    if "=" not in text or any(sign in text for sign in "<>≤≥,;\\｛"):
        parts = text.rsplit("=", 1)
        if len(parts) < 2 or not (_NAME.match(parts[0].strip()) and not any(sign in parts[1] for sign in "<>≤≥;")):
            return text
        return parts[1].strip() if _HAS_VALUE.search(parts[1]) else text
    left, _, right = text.rpartition("=")
    return right.strip() if _HAS_VALUE.search(right) and left.strip(" =") and "=" not in right else text


def _quantity(text: str) -> Quantity | None:
    decimal = _DECIMAL.match(text)
    if decimal:
        sign = -1 if decimal[1] == "-" else 1
        value = Fraction(sign * int(decimal[2] + decimal[3]), 10 ** len(decimal[3]))
        return Quantity(tuple(_rational(value).items()), "", len(decimal[3]))
    if _DASHED.fullmatch(text):
        return None
    bare, unit = split_unit(text)
    if not unit:
        bare = _COUNTED.sub("", text)
        unit = "counted" if bare != text else ""
    if not bare or not any(char.isdecimal() or char == "π" for char in bare):
        return None
    percent = bare.endswith("%")
    if percent:
        bare = bare[:-1].rstrip()
    if "," in bare and not _THOUSANDS.match(bare) and not re.search(r"\d,\d{3}(?!\d)", bare):
        return None
    if bare[:1] in "([" and bare[-1:] in ")]" and "," in bare:
        return None
    try:
        number = parse_number(bare)
    except (UnreadableError, ValueError, RecursionError):
        return None
    plain = _DECIMAL.match(bare.replace(",", ""))
    places = len(plain[3]) if plain else 0 if _INTEGER.match(bare.replace(",", "")) else None
    return Quantity(tuple(sorted(number.items())), unit, places, percent)


def _group(text: str, depth: int) -> Group | None:
    text, _ = split_unit(text)
    brackets = ""
    inner = text
    if text[:1] in _CLOSING and text[-1:] in ")]｝" and _encloses(text):
        brackets, inner = text[0] + text[-1], text[1:-1]
    parts = _split_commas(inner if brackets else _AND.sub(",", inner))
    if len(parts) < 2 and not (brackets and brackets != "()" and parts):
        return None
    if any(not part for part in parts):
        return None
    items = []
    for part in parts:
        items.append(Words(part) if part in ("∞", "-∞", "+∞") else _read(part, depth + 1))
    return Group("{}" if brackets == "｛｝" else brackets, tuple(items), tuple(map(_name, parts)))


def _name(part: str) -> str:
    """Return what a part of an enumeration is assigned to, "" for none."""
    left, equals, _ = part.partition("=")
    return "".join(left.split()) if equals and _NAME.match(left.strip()) else ""


def _encloses(text: str) -> bool:
    depth = 0
    for place, char in enumerate(text):
        depth += (char in "([｛{") - (char in ")]｝}")
        if depth == 0 and place < len(text) - 1:
            return False
    return depth == 0


def _split_commas(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for place, char in enumerate(text):
        if char in "([｛{":
            depth += 1
        elif char in ")]｝}":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    return [*parts, text[start:].strip()]


def _is_wording(text: str) -> bool:
    """Whether the text is words, not a formula: no LaTeX, no operators, and no letters that are variables."""
    if any(sign in text for sign in "\\^√=<>≤≥{}｛｝∪∩±|_∞"):
        return False
    return not re.search(r"\d\s*[A-Za-z]\b|[-+*/(]\s*[A-Za-z]\b|\b[A-Za-z]\s*[-+*/(]", text)


def squeeze(text: str) -> str:
    """Return an answer in its one spelling without spaces: equal means typographically the same."""
    return "".join(clean(text).split())


def fold(text: str) -> str:
    """Return wording without case, articles, punctuation and spacing, for comparison."""
    return "".join(_ARTICLES.sub("", text.casefold()).split())
