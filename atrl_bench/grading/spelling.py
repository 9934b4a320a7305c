r"""One spelling for what can be typed in many: `\dfrac`, `\frac` and ½; `\cdot` and ×; full-width digits; bold type."""

from __future__ import annotations

import re

NUMBER_WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_CHARACTERS = str.maketrans(
    {
        **{full: chr(ord(full) - 0xFEE0) for full in map(chr, range(0xFF01, 0xFF5F)) if full not in "｛｝"},
        **dict.fromkeys("−–—‒﹣", "-"),
        **dict.fromkeys("×·⋅∙∗", "*"),
        **dict.fromkeys("÷∕⁄", "/"),
        **dict.fromkeys("掳º˚", "°"),  # 掳 is the degree sign, once read in a Chinese code page
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad"),
        **dict.fromkeys("\t\n\r\f\v\u00a0\u2009\u202f\u3000", " "),
        **dict(zip("、。≅≃𝜋∶", ",.≈≈π:", strict=True)),
        **{power: f"^{digit}" for power, digit in zip("²³", "23", strict=True)},
        **{char: rf"\frac{{{above}}}{{{below}}}" for char, above, below in zip("½⅓⅔¼¾", "11213", "23344", strict=True)},
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
        (r"\*\s*°", "°"),
        (r"\\%|\\percent\b", "%"),
        (r"\\pi(?![a-z])", "π"),
        (r"(?<![A-Za-z\\])pi(?![A-Za-z])", "π"),
        (r"\\frac\s*([\dA-Za-zπ])", r"\\frac{\1}"),  # \frac12, \frac{\sqrt2}2
        (r"(\\frac\s*\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})\s*([\dA-Za-zπ])", r"\1{\2}"),
        (r"\\langle(?![a-z])", "("),
        (r"\\rangle(?![a-z])", ")"),
        (r"\\(?:times|cdot|ast)(?![a-z])", "*"),
        (r"(?<=\d)\s?[xX]\s?(?=10\s?\^)", "*"),
        (r"(?<![\w.])(\d+(?:\.\d+)?)[eE]([-+]?\d{1,3})(?![\w.])", r"\1*10^{\2}"),
        (r"\\div(?![a-z])", "/"),
        (r"\\approx(?![a-z])|\\simeq(?![a-z])", "≈"),
        (r"\\infty(?![a-z])|(?<![A-Za-z\\])infinity(?![A-Za-z])", "∞"),
        (r"\\(?:varnothing|emptyset)(?![a-z])|\\\{\s?\\\}", "∅"),
        (r"(?:\\sqrt|(?<![A-Za-z\\])sqrt)(?![a-z])", "√"),
        (r"\\\{", "｛"),
        (r"\\\}", "｝"),
        (r"\^\{([23])\}", r"^\1"),
        (r"\^([23])\^", r"^\1"),  # cm^2^, as GeoQA writes square centimetres
        (r"\s{2,}", " "),
    )
)  # fmt: skip
_NEEDS_REWRITE = re.compile(r"[\\$~&{}]|\*\*|pi|sqrt|infinity|\d[eE][-+\d]|\^|\s\s")


def clean(text: str) -> str:
    r"""The text in one spelling: no layout commands, `\frac`, `√`, `π`, `*`, `°`, and set braces as ｛｝."""
    text = text.translate(_CHARACTERS)
    if not text.isprintable():
        text = "".join(char if char.isprintable() else " " for char in text)
    if _NEEDS_REWRITE.search(text):
        for pattern, replacement in _REWRITES:
            text = pattern.sub(replacement, text)
    # An exclamation mark after a number or a variable is a factorial.
    return re.sub(r"(?<=[A-Za-z]{2})!+$", "", text.lstrip(" ,;:!*`\"'").rstrip(" .,;:*`\"'"))


_ARTICLES = re.compile(r"\b(?:the|an?)\s+|[^\w\s+\-*/^=<>|∞∪∩:≤≥±!∅]")


def fold(text: str) -> str:
    """Wording without case, articles, punctuation and spacing, for comparison."""
    return "".join(_ARTICLES.sub("", text.casefold()).split())


NUMBER_VALUES = {word: value for value, word in enumerate(NUMBER_WORDS)} | {
    f"{tens} {one}".strip(): 10 * place + value
    for place, tens in enumerate(TENS, start=2)
    for value, one in enumerate(("", *NUMBER_WORDS[1:10]))
}


def spelled_number(text: str) -> int | None:
    """The number that is all of a text, in words: "thirty-six"."""
    return NUMBER_VALUES.get(" ".join(_ARTICLES.sub("", text.casefold().replace("-", " ")).split()))


def in_digits(number: str) -> str:
    """A number in digits where it is in words and above twelve or negative: "thirty-six", "negative eight"."""
    words = " ".join(number.lower().replace("-", " ").split())
    value = NUMBER_VALUES.get(words.removeprefix("negative "))
    if value is None or words in NUMBER_WORDS[:13]:
        return number
    return f"-{value}" if words.startswith("negative ") else str(value)
