"""Texts compared with texts: exactly, nearly, with several references, and as move lists of chess."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from atrl_bench.grading.scorers.mega.literals import as_text
from atrl_bench.grading.scorers.mega.sequences import items_of

NEAR_ENOUGH = 0.9
_LETTER = re.compile(r"\(?([A-Za-z])\)?\s*(?:$|[.:,)])")
_IGNORED = re.compile(r"[ \-\n\t.]")
_FENCED = re.compile(r"```\w*\s*?\n?(.*?)(?:\n\s*)?```", re.S)


def exact(answer: Any, gold: Any) -> float:
    """Return 1 for the same text. Where the gold is one letter, `(B)` and `B. a cat` name it too.

    The official script takes the first letter of any answer, so that "Because ..." is option B; a word is none here.
    """
    answer, gold = as_text(answer), as_text(gold)
    if len(gold) == 1 and gold.isalpha() and (letter := _LETTER.match(answer.strip())):
        answer = letter[1]
    return float(answer == gold)


def exact_ignoring_case(answer: Any, gold: Any) -> float:
    """Return 1 for the same text in upper or lower case."""
    return exact(as_text(answer).lower(), as_text(gold).lower())


def exact_code_result(answer: Any, gold: Any) -> float:
    """Return 1 when the answer is what stands in the gold's code block, spaces included."""
    gold = as_text(gold)
    fenced = _FENCED.search(gold)
    return exact(answer, fenced[1] if fenced else gold)


def simple(answer: Any, gold: Any) -> float:
    """Return 1 for the same text without spaces, hyphens, full stops and case."""
    return exact(_IGNORED.sub("", as_text(answer)).lower(), _IGNORED.sub("", as_text(gold)).lower())


def any_reference(answer: Any, gold: Any) -> float:
    """Return 1 when the answer is, simply compared, one of the gold's references."""
    references = items_of(as_text(gold).replace("，", ","))
    return max((simple(answer, reference) for reference in references), default=0.0)


def similarity(answer: Any, gold: Any) -> float:
    """Return 1 - distance / (length of the longer), with the Damerau-Levenshtein distance."""
    answer, gold = as_text(answer), as_text(gold)
    longer = max(len(answer), len(gold))
    return 1.0 - damerau_levenshtein(answer, gold) / longer if longer else 1.0


def near(answer: Any, gold: Any) -> float:
    """Return the similarity without accents, articles and case where it is at least 0.9, else 0.

    Accents go by Unicode decomposition; the official script also writes other alphabets in Latin letters.
    """
    if not isinstance(answer, str):
        return 0.0
    answer, gold = _approximate(answer), _approximate(as_text(gold))
    longer = max(len(answer), len(gold))
    if abs(len(answer) - len(gold)) > (1 - NEAR_ENOUGH) * longer:
        return 0.0  # known from the lengths alone
    found = similarity(answer, gold)
    return found if found >= NEAR_ENOUGH else 0.0


def _approximate(text: str) -> str:
    words = " ".join(word for word in text.split(" ") if word.lower() not in ("the", "a"))
    return "".join(part for part in unicodedata.normalize("NFKD", words) if not unicodedata.combining(part)).lower()


def damerau_levenshtein(left: str, right: str) -> int:
    """Return the fewest insertions, deletions, substitutions and swaps of neighbours that make one of the other.

    Lowrance and Wagner's recurrence: letters may come between two that are swapped, at their own cost.
    """
    while left and right and left[0] == right[0]:
        left, right = left[1:], right[1:]
    while left and right and left[-1] == right[-1]:
        left, right = left[:-1], right[:-1]
    if not left or not right:
        return len(left) + len(right)
    far = len(left) + len(right)
    rows = [[far] * (len(right) + 2), [far, *range(len(right) + 1)]]  # one row and column of `far` around the table
    last_row: dict[str, int] = {}  # of each letter, in the rows so far
    for i, a in enumerate(left, 1):
        row = [far, i]
        last_match = 0  # the last column of this row with the same letter
        above = rows[i]
        for j, b in enumerate(right, 1):
            k = last_row.get(b, 0)
            swapped = rows[k][last_match] + (i - k - 1) + 1 + (j - last_match - 1)
            row.append(min(above[j] + (a != b), row[j] + 1, above[j + 1] + 1, swapped))
            if a == b:
                last_match = j
        last_row[a] = i
        rows.append(row)
    return rows[-1][-1]
