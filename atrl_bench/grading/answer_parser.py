r"""What an answer says, read once and exactly: a number with its unit, several values, words, or a formula for sympy.

A small grammar of its own, because almost every answer is a number and because nothing a model writes may reach a
parser that evaluates. What the grammar does not cover (`x^2+1`, `\log 3`, `a\cup b`) has no value, only a formula;
`sympy_worker` takes it from there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from math import pi, sqrt

from atrl_bench.grading.exact_numbers import DECIMAL, THOUSANDS, UnreadableError, parse_number, rational
from atrl_bench.grading.numbers_in_text import sole_number
from atrl_bench.grading.spelling import clean, fold, spelled_number
from atrl_bench.grading.units import split_counted, split_unit, unit_factor

MAX_CHARS = 400  # longer texts are not answers that this grammar reads


@dataclass(frozen=True)
class Quantity:
    """A number with what was written around it."""

    terms: tuple[tuple[tuple[int, int], Fraction], ...]  # ((r, k), q) for each q·√r·π^k of its sum
    unit: str = ""
    decimals: int | None = None  # decimal places, when it was written as one plain decimal number
    percent: bool = False

    @property
    def rational(self) -> Fraction | None:
        """The number as a fraction, or None for one with a root or π."""
        if not self.terms:
            return Fraction(0)
        return self.terms[0][1] if len(self.terms) == 1 and self.terms[0][0] == (1, 0) else None

    def __float__(self) -> float:
        return sum((float(q) * sqrt(r) * pi**k for (r, k), q in self.terms), start=0.0)  # zero has no terms


@dataclass(frozen=True)
class Bracketed:
    """Several values: a tuple or interval with its brackets, a set `{}`, a ratio `:`, or a bare enumeration `""`.

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


Value = Quantity | Bracketed | Words


@dataclass(frozen=True)
class ParsedAnswer:
    """An answer in every form that a comparison may need, each worked out when it is first wanted, and only then."""

    text: str

    @cached_property
    def cleaned(self) -> str:
        return clean(self.text)

    @cached_property
    def squeezed(self) -> str:
        """The text in its one spelling without spaces but those in "1 2/3": equal means typographically the same."""
        return _SPACE.sub("", self.cleaned) if " " in self.cleaned else self.cleaned

    @cached_property
    def folded(self) -> str:
        return fold(self.cleaned)

    @cached_property
    def value(self) -> Value | None:
        """What the text says; None for mathematics beyond this grammar, for nothing, and for a long text."""
        if len(self.text) > MAX_CHARS or not self.cleaned:
            return None
        try:
            return _value(self.cleaned)
        except (UnreadableError, RecursionError):
            return None

    @cached_property
    def values(self) -> tuple[Value, ...]:
        r"""What the text says, as one value, or as the two at the ends of `16\pi ≈ 50.27`."""
        parts = [self]
        if "≈" in self.cleaned:
            sides = self.cleaned.split("≈")
            parts = [parse(sides[0]), parse(sides[-1])]
        return tuple(part.value for part in parts if part.value is not None)

    @cached_property
    def is_unsolved(self) -> bool:
        """Whether it has an equation in terms, `2x - y = 3`, and not only values of what is named, `AB = 3`."""
        if "=" not in self.cleaned:
            return False
        equations = (part.split("=") for part in _split_commas(_AND.sub(",", self.cleaned)))
        return any(len(sides) == 2 and _TERMS.search(sides[0]) for sides in equations)

    @cached_property
    def sole_number(self) -> Value | None:
        number = sole_number(self.text)
        return parse(number).value if number else None

    @cached_property
    def formula(self) -> str | None:
        """The text as LaTeX for sympy, or None when it is prose."""
        text = self.cleaned
        if _NAMES_A_THING.fullmatch(text):
            return None
        if not _FORMULA.search(text) or len(_LONG_WORD.findall(text)) > 1 or not text.isprintable():
            return None
        text, _ = split_unit(text)
        for root in _ROOTS:
            text = root.sub(r"\\sqrt\1{\2}", text)
        return text.translate(_TO_LATEX)


@lru_cache(maxsize=8192)
def parse(text: str) -> ParsedAnswer:
    """The answer that a text is; for the same text the same one, so that no text is read twice."""
    return ParsedAnswer(text)


# Of the spaces between digits only those before groups of three go: 1 000 000.
_SPACE = re.compile(r"(?<!\d)\s+|\s+(?!\d)|(?<=\d)\s(?=\d{3}(?:\s\d{3})*(?!\S))")
_TERMS = re.compile(r"[A-Za-z)|]\s?[-+*/^]|[-+*/^]\s?[A-Za-z(|∠\\]|\d\s?[A-Za-z(]")
_FORMULA = re.compile(r"[\d\\^=<>≤≥∞∪∩√π+*/]|\b[A-Za-z]\b")
_NAMES_A_THING = re.compile(r"n ?/ ?a|[\w ./-]{1,100}\.(?:png|jpe?g|gif|bmp|webp|svg)", re.I)  # no question for sympy
_LONG_WORD = re.compile(r"(?<!\\)\b[A-Za-z]{4,}\b")
_ROOTS = (  # the second may hold the first
    re.compile(r"√(\[\w\])?\s?(\d+|π|[A-Za-z])"),
    re.compile(r"√(\[\w\])?\s?\(([^()]*)\)"),
)
_LATEX = (r"\sqrt", r"\pi ", r"\infty ", r"\{", r"\}", "", r"\le ", r"\ge ", r"\cup ", r"\cap ", r"\pm ", r"\cdot ")
_TO_LATEX = str.maketrans(dict(zip("√π∞｛｝°≤≥∪∩±*", _LATEX, strict=True)))


_LEADING = re.compile(
    r"(?:(?:is|are|equals?|about|approximately|approx\.?|around|roughly|exactly|only|the|answer|a total of)\s+"
    r"|≈\s*|=\s*|约\s*)+",
    re.I,
)
_NAME = re.compile(
    r"(?:[∠△]|\\angle|\\triangle|angle|length|area|perimeter)?\s?[A-Za-z]{1,12}'?(?:_\{?\w{1,8}\}?)?(?:\s?[A-Za-z]{1,12}){0,4}(?:\([a-z]\))?\s*\Z"
)
# (x, y) = (1, 2), and the point P(1, 2)
_NAMED_TUPLE = re.compile(r"\([A-Za-z]\w?(?: ?, ?[A-Za-z]\w?){1,5}\) ?= ?(?=\()|\A[A-Z]'? ?(?=\([^()]*,[^()]*\)\Z)")
_AND = re.compile(r"\s+(?:and|or)\s+|[;；]\s*", re.I)
_DASHED = re.compile(r"\d+(?:-\d+)+")  # "5-4-3-2-1", "2014-2016": an order or a span, not a difference
_HAS_VALUE = re.compile(r"[\dπ]")


def _value(text: str) -> Value:
    text = _LEADING.sub("", text.strip(), count=1) if _LEADING.match(text.strip()) else text.strip()
    text = _NAMED_TUPLE.sub("", _right_side(text))
    value = _quantity(text) or _in_two_units(text) or _ratio(text) or _bracketed(text)
    if value is not None:
        return value
    if (number := spelled_number(text)) is not None:
        return Quantity(tuple(rational(Fraction(number)).items()), "", 0)
    if _is_wording(text) and (words := fold(text)):
        return Words(words)
    raise UnreadableError(text)


def _right_side(text: str) -> str:
    """What follows the last "=": `x=12`, `∠ABC = 50°` and `AB = 1.8*9/1.5 = 10.8` end with the answer."""
    left, equals, right = text.rpartition("=")
    if not equals or not left.strip(" =") or _AND.search(text) or not _HAS_VALUE.search(right):
        return text
    is_plain = not any(sign in text for sign in "<>≤≥,;\\｛")
    is_named = _NAME.match(left.strip()) and not any(sign in right for sign in "<>≤≥;")
    return right.strip() if is_plain or is_named else text


def _quantity(text: str) -> Quantity | None:
    if _DASHED.fullmatch(text):
        return None
    bare, unit = split_unit(text)
    if not unit:
        bare, unit = split_counted(text)
    if not bare or not any(char.isdecimal() or char == "π" for char in bare):
        return None
    percent = bare.endswith("%")
    if percent:
        bare = bare[:-1].rstrip()
    if "," in bare and not THOUSANDS.match(bare) and not re.search(r"\d,\d{3}(?!\d)", bare):
        return None
    if bare[:1] in "([" and bare[-1:] in ")]" and "," in bare:
        return None
    try:
        number = parse_number(bare)
    except (UnreadableError, ValueError, RecursionError):
        return None
    plain = DECIMAL.match(bare.replace(",", ""))
    decimals = len(plain[1] or "") if plain else None
    return Quantity(tuple(sorted(number.items())), unit, decimals, percent)


_TWO_UNITS = re.compile(r"(\d[\d.]*\s?[^\W\d_]+),?\s(?:and\s)?(\d[\d.]*\s?[^\W\d_]+)")


def _in_two_units(text: str) -> Quantity | None:
    """What `1 hour 30 minutes` is in the smaller of its units."""
    match = _TWO_UNITS.fullmatch(text)
    larger, smaller = map(_quantity, match.groups()) if match else (None, None)
    if larger is None or smaller is None or larger.rational is None or smaller.rational is None:
        return None
    of_larger, of_smaller = unit_factor(larger.unit), unit_factor(smaller.unit)
    if of_larger is None or of_smaller is None or of_larger[0] != of_smaller[0] or of_larger[1] <= of_smaller[1]:
        return None
    total = larger.rational * of_larger[1] / of_smaller[1] + smaller.rational
    return Quantity(tuple(rational(total).items()), smaller.unit, smaller.decimals)


def _ratio(text: str) -> Bracketed | None:
    """`3:2` and `1:√3:2`, but no time of day: "4:05"."""
    parts = text.split(":")
    if len(parts) == 1 or any(part.lstrip().startswith("0") for part in parts):
        return None
    items = [item for part in parts if (item := _quantity(part)) is not None and not item.unit]
    return Bracketed(":", tuple(items)) if len(items) == len(parts) else None


def _bracketed(text: str) -> Bracketed | None:
    text, _ = split_unit(text)
    brackets, inner = "", text
    inside = depths(text)
    if text[:1] in tuple("([｛") and text[-1:] in ")]｝" and inside[-1] == 0 and 0 not in inside[:-1]:
        brackets, inner = text[0] + text[-1], text[1:-1]
    parts = _split_commas(inner if brackets else _AND.sub(",", inner))
    if not all(parts) or (len(parts) < 2 and brackets in ("", "()")):
        return None
    items = [Words(part) if part in ("∞", "-∞", "+∞") else _value(part) for part in parts]
    return Bracketed("{}" if brackets == "｛｝" else brackets, tuple(items), tuple(map(_name, parts)))


def _name(part: str) -> str:
    """What a part of an enumeration is assigned to, "" for none."""
    left, equals, _ = part.partition("=")
    return "".join(left.split()) if equals and _NAME.match(left.strip()) else ""


def _split_commas(text: str) -> list[str]:
    commas = [
        place for place, (char, depth) in enumerate(zip(text, depths(text), strict=True)) if (char, depth) == (",", 0)
    ]
    return [text[start + 1 : end].strip() for start, end in pairwise([-1, *commas, len(text)])]


def _is_wording(text: str) -> bool:
    """Whether the text is words, not a formula: no LaTeX, no operators, and no letters that are variables."""
    if any(sign in text for sign in "\\^√=<>≤≥{}｛｝∪∩±|_∞"):
        return False
    return not re.search(r"\d\s*[A-Za-z]\b|[-+*/(]\s*[A-Za-z]\b|\b[A-Za-z]\s*[-+*/(]|π\s?[A-Za-z]\b", text)


def depths(text: str) -> list[int]:
    """In how many brackets each character of a text stands; a closing one is outside of its own."""
    return list(accumulate((char in "([｛{") - (char in ")]｝}") for char in text))
