"""Which option an answer names: by its letter (`C`, `(C)`, `C. 12`, `Option C because`) or by the option's own text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from atrl_bench.grading.answer_parser import ParsedAnswer, parse
from atrl_bench.models.templates import LETTERS

# A run without end on either side of another would be tried in all ways.
_BEFORE = r"[(\[{\s]{0,8}(?:(?i:option|choice|answer)\s{0,4}:?\s{0,4})?[(\[{]{0,8}"
_LONE = re.compile(rf"{_BEFORE}(?P<letter>[A-P])[)\]}}\s.:,]*|(?:(?i:option|choice)\s+)?[(\[]?(?P<lower>[a-p])[)\].]?")
_OPTION = re.compile(
    rf"{_BEFORE}(?P<letter>[A-P])[)\]}}\s]*"
    r"(?:$|[.:,)\]]|(?:because|since|as|is(?!\s+(?:not|wrong|incorrect|false))|which|from|with|for|\(|-|=)(?![a-z]))",
)
_ANOTHER = re.compile(r"[\s.,:;/&+)\]}(\[{-]*(?:and|or)?[\s(\[{]*(?P<letter>[A-P])\s*(?:$|[.,;:/&+)\]}-]|(?:and|or)\b)")
_WITH_TEXT = (
    re.compile(rf"{_BEFORE}(?P<letter>[A-Pa-p])[)\]}}\s.:,-]+(?P<text>.+)"),
    re.compile(rf"{_BEFORE}(?P<letter>[A-Pa-p])\s*[(\[](?P<text>.+)[)\]]"),
    re.compile(r"(?P<text>.*[^\s,:-])[\s,:-]*[(\[]\s*(?P<letter>[A-Pa-p])\s*[)\]]"),
)


def named_options(
    answer: ParsedAnswer, choices: Sequence[ParsedAnswer], num_choices: int
) -> tuple[str | None, list[str]]:
    """The letter by which an answer names an option, or else the letters of those whose own text it is.

    An option may begin like another's letter ("C-14" as option B), so whole texts are looked for before letters.
    """
    letter = lone_letter(answer, num_choices)
    spelled_out = _spelled_out(answer, choices) if letter is None else []
    if letter is None and not spelled_out:
        letter = option_letter(answer, num_choices)
    return letter, spelled_out


def lone_letter(answer: ParsedAnswer, num_choices: int) -> str | None:
    """The letter of an answer that is nothing else: `C`, `(C)`, `c.`, `Option C`; not `C = 5`."""
    match = _LONE.fullmatch(answer.cleaned)
    letter = (match["letter"] or match["lower"]).upper() if match else None
    return letter if letter and LETTERS.index(letter) < num_choices else None


def option_letter(answer: ParsedAnswer, num_choices: int) -> str | None:
    """The letter with which an answer names an option: `C. 12`, `C because`; not `A triangle`, not `A, C`."""
    match = _OPTION.match(answer.cleaned)
    if match is None or LETTERS.index(match["letter"]) >= num_choices:
        return lone_letter(answer, num_choices)
    letter = match["letter"]
    other = _ANOTHER.match(answer.cleaned, match.end("letter"))
    if other and other["letter"] != letter and LETTERS.index(other["letter"]) < num_choices:
        return None
    return letter


def _spelled_out(answer: ParsedAnswer, choices: Sequence[ParsedAnswer]) -> list[str]:
    """The letters of the options whose own text this is, alone or with their letter: `Cello`, `Cello (B)`."""
    letters = [letter for letter, choice in zip(LETTERS, choices, strict=False) if choice.squeezed == answer.squeezed]
    for pattern in _WITH_TEXT if not letters else ():
        match = pattern.fullmatch(answer.cleaned)
        index = LETTERS.find(match["letter"].upper()) if match else -1
        if match and index < len(choices):
            text = parse(match["text"]).squeezed
            if choices[index].squeezed.casefold() == text.casefold():
                letters.append(LETTERS[index])
    return letters
