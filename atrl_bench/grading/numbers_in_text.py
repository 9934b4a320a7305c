r"""Numbers as they stand in a text: `1,234.5`, `2√3`, `\frac{3}{4}`, `3 × 10^5`, `2 1/2`."""

from __future__ import annotations

import re

_NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
_GROUP = r"\{(?:[^{}]|\{[^{}]{0,20}\}){1,40}\}"
_ATOM = (
    rf"(?:\\?sqrt\s?[({{]\s?(?:{_NUMBER})\s?[)}}]|√\s?[({{]?\s?(?:{_NUMBER})\s?[)}}]?"
    rf"|\\[dt]?frac\s?{_GROUP}\s?{_GROUP}|\\?pi\b|π|{_NUMBER})"
)
_POWER = r"(?:\s?\^\s?(?:\{-?\d{1,3}\}|-?\d{1,3}))?"
EXPRESSION = re.compile(
    rf"(?<![A-Za-z0-9_.\\^])(?<!\^\{{)(?<!\b[A-Za-z]\()[-−]?{_ATOM}{_POWER}"
    rf"(?:\s?(?:[*/·×]|\\times|\\cdot|x(?=\s?10\s?\^)|(?<=[\dπ])\s?:(?=\s?[\dπ]))\s?{_ATOM}{_POWER}"
    rf"|(?<!\d){_ATOM}|(?=[√π\\s]){_ATOM})*(?:\s?%)?"
)
_MIXED = r"(?<![\w.,/^])\d{1,3}\s\d{1,3}/\d{1,3}(?![\d.])"  # 2 1/2
EXPRESSION_OR_MIXED = re.compile(rf"{_MIXED}|{EXPRESSION.pattern}")
HAS_VALUE = re.compile(r"\d|π|pi\b")
_CHANGES_A_NUMBER = re.compile(
    r"\b(?:not|no|never|or|and|minus|negative|than|half|hundred|thousand|[mb]illion|dozen|squared|cubed|by|to"
    r"|at\s+(?:least|most))\b|\b(?:over|under|below|above|beyond)\s+[$≈]?\s?(?=[\d.√π\\-])|n't",
    re.I,
)
# Neither formula, code nor a list. One class, not a group in a group: that takes time 2^n over a row of dots.
_PLAIN_WORDING = re.compile(r"(?:[^\W\d_]|[\s.,:'°%$≈*-])*")


def sole_number(text: str) -> str | None:
    numbers = list(EXPRESSION.finditer(text))
    if len(numbers) != 1 or _CHANGES_A_NUMBER.search(text):
        return None
    around = text[: numbers[0].start()] + text[numbers[0].end() :]
    return numbers[0][0].strip() if _PLAIN_WORDING.fullmatch(around) else None
