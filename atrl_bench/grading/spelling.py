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
        (r"\*\s*°", "°"),
        (r"\\%|\\percent\b", "%"),
        (r"\\pi(?![a-z])", "π"),
        (r"(?<![A-Za-z\\])pi(?![A-Za-z])", "π"),
        (r"\\(?:times|cdot|ast)(?![a-z])", "*"),
        (r"(?<=\d)\s?[xX]\s?(?=10\s?\^)", "*"),
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
    r"""The text in one spelling: no layout commands, `\frac`, `√`, `π`, `*`, `°`, and set braces as ｛｝."""
    text = text.translate(_CHARACTERS)
    if not text.isprintable():
        text = "".join(char if char.isprintable() else " " for char in text)
    if _NEEDS_REWRITE.search(text):
        for pattern, replacement in _REWRITES:
            text = pattern.sub(replacement, text)
    # An exclamation mark after a number is a factorial.
    return re.sub(r"(?<=[A-Za-z])!+$", "", text.lstrip(" ,;:!*`\"'").rstrip(" .,;:*`\"'"))


_ARTICLES = re.compile(r"\b(?:the|an?)\s+|[^\w\s+\-*/^=<>|∞∪∩:≤≥±!∅]")


def fold(text: str) -> str:
    """Wording without case, articles, punctuation and spacing, for comparison."""
    return "".join(_ARTICLES.sub("", text.casefold()).split())


_ALONE = (*NUMBER_WORDS, *TENS)


def in_digits(number: str) -> str:
    """A number in digits where it is in words and above twelve or negative: "thirty-six", "negative eight"."""
    words = number.lower().replace("-", " ").split()
    sign = "-" * (words[:1] == ["negative"])
    *tens, last = words[len(sign) :] or [""]
    is_two_digits = len(tens) == 1 and tens[0] in TENS and last in NUMBER_WORDS[1:10]
    if (words[:1] == [last] and last in NUMBER_WORDS[:13]) or not (is_two_digits or (not tens and last in _ALONE)):
        return number
    value = 10 * TENS.index(last) + 20 if last in TENS else NUMBER_WORDS.index(last)
    return f"{sign}{value + sum(10 * TENS.index(word) + 20 for word in tens)}"
