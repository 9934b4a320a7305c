r"""Numbers as they stand in a text, `1,234.5`, `2√3`, `\frac{3}{4}`, `3 × 10^5`, `2 1/2`, and which one it states."""

from __future__ import annotations

import re

from atrl_bench.grading.spelling import NUMBER_WORDS, TENS, in_digits

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
_EXPRESSION_OR_MIXED = re.compile(rf"{_MIXED}|{EXPRESSION.pattern}")
_HAS_VALUE = re.compile(r"\d|π|pi\b")
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


_SPELLED = re.compile(
    rf"(?<!\bthe\s)(?<!\bthis\s)(?<!\bwhich\s)\b(?:negative\s)?"
    rf"(?:(?:{'|'.join(TENS)})(?:[-\s](?:{'|'.join(NUMBER_WORDS[1:10])}))?|{'|'.join(NUMBER_WORDS)})\b(?!-)"
    r"(?!(?<=one)\s+of)(?!\s+(?:hundred|thousand|million))",
    re.I,
)
# What stands before a number that a sentence states ...
_STATES = re.compile(
    r"(?:\b(?:is|are|was|were|be|equals?|gets?|gives?|has|have|contains?|shows?|measures?|becomes?|makes?|see|count|counted"
    r"|find|obtain|yields?|leaves|total of|answer|so|therefore|thus|hence|namely|approaches|costs?"
    r"|(?:clos\w+|equal|rounds?|comes?|came|amount\w*|add\w* up|sum\w*|simplif\w+|correspond\w*) to)\b|[=≈:]"
    r"|等于|[为是有约得多少])"
    r"[\s*$(]*(?:(?:about|approximately|around|roughly|exactly|only|just|a total of)\s+|≈\s*|\\\(\s*)*[\s*$(]*\Z",
    re.I,
)
# ... and before one that only says where, when, of what or beside what.
_BESIDE = re.compile(
    r"(?:\b(?:above|below|over|under|than|beyond|from|out of|out of every|negative|minus|to|between|at least|at most"
    r"|not|figure|step|question|point|row|part|column|page|angle|after|before|in|per|up to|(?<!, )or|every|each|buy"
    r"|between\s\S{1,20}\sand|\d[\d.]{0,9}\S?,?\sand)|[∠△#+/×·]|\d\s?\*|[-−]\s)[\s$*]*\Z",
    re.I,
)
# What follows a number that is a part of a formula or of a list.
_UNFINISHED = re.compile(
    r"\s?°?\s?[-−+*/×·=]\s?[$]?[\d(√\\]|[°%]?\s?(?:and|or|to|out of|out of every)\s[$]?\d|[°%]?,\s\d"
    r"|(?<=\d)[abknxyz](?![A-Za-z])"
)
_UNSOLVED = re.compile(r"(?:\d[a-z]|[a-z]\s?[-+]\s?[\d.]+(?:°|\^\s?\\circ|\^\{\\circ\})?)\s?=\s*\Z")  # 2x + 6 = 20


def stated_number(sentence: str) -> str | None:
    """The number that a sentence states: the last after a verb or "=", else its last; None for "5 or 6"."""
    stated: list[re.Match[str]] = []
    other: list[re.Match[str]] = []
    matches = [*_SPELLED.finditer(sentence)]
    if _HAS_VALUE.search(sentence):
        matches += (match for match in _EXPRESSION_OR_MIXED.finditer(sentence) if _HAS_VALUE.search(match[0]))
    for match in sorted(matches, key=lambda match: match.start()):
        before = sentence[max(0, match.start() - 30) : match.start()]
        if _UNFINISHED.match(sentence, match.end()) or _UNSOLVED.search(before):
            continue
        if _STATES.search(before):
            stated.append(match)
        elif not _BESIDE.search(before):
            other.append(match)
    numbers = stated or other
    if not numbers or re.match(r"[^,]*?\bor\s[^,]*\d", sentence[numbers[-1].end() :]):
        return None
    return in_digits(numbers[-1][0].strip())
