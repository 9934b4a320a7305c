"""What is right about a row, from what the row says: a letter, an option's text, one of several answers.

Without the answer parser, which takes a second to import and which nobody needs before there are responses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from atrl_bench.models.templates import LETTERS
from atrl_bench.results.records import NUM_UNKNOWN_CHOICES, Gold


def choice_gold(answer: str, options: Sequence[str]) -> Gold:
    """The gold of a multiple-choice row: a letter, whether the row names the letter, "(C)" or the option's text.

    What is neither (MathVerse has `False`, `C` above `D`, and letters without options) is compared as it stands.
    """
    answer = answer.strip()
    letter = re.fullmatch(r"\(?([A-P])\)?\.?", answer)
    if letter and LETTERS.index(letter[1]) < (len(options) or NUM_UNKNOWN_CHOICES):
        return Gold(letter[1], tuple(options), kind="choice")
    if answer in options:
        return Gold(LETTERS[list(options).index(answer)], tuple(options), kind="choice")
    return Gold(answer, tuple(options))


def own_gold(answers: Sequence[str], options: Sequence[str]) -> Gold:
    """The gold of a row of the user's own; raises `ValueError` where it has no answer, or none of its options."""
    if len(answers) > 1:
        return Gold(answers[0], references=tuple(answers))
    [text] = answers
    if not text:
        raise ValueError("it has no answer")
    if not options:
        return Gold(text)
    chosen = choice_gold(text, options)
    named = re.fullmatch(r"\(?([A-Za-z])[.):]*(?:\s+(.+))?", text, flags=re.DOTALL)  # "b", "B) blue"
    if chosen.kind != "choice" and named is not None:
        letter = named[1].upper()
        if named[2] in (None, dict(zip(LETTERS, options, strict=False)).get(letter)):
            chosen = choice_gold(letter, options)
    if chosen.kind != "choice":
        raise ValueError(f"its answer {text[:40]!r} is neither a letter of its options nor one of them")
    return chosen
