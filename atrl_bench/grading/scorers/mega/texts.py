"""Texts compared with texts: exactly, nearly, with several references, and by their word groups (BLEU, GLEU)."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rapidfuzz.distance import DamerauLevenshtein

from atrl_bench.grading.scorers.mega.literals import as_text
from atrl_bench.grading.scorers.mega.metric import comparing
from atrl_bench.grading.scorers.mega.sequences import items_of

NEAR_ENOUGH = 0.9
LONGEST = 4  # words in a group
_TOKEN = re.compile(r"[A-Za-z0-9]+|[^\sA-Za-z0-9]")
_LETTER = re.compile(r"\(?([A-Za-z])\)?\s*(?:$|[.:,)])")
_IGNORED = re.compile(r"[ \-\n\t.]")
_FENCED = re.compile(r"```\w*\s*?\n?(.*?)(?:\n\s*)?```", re.S)


def exact(answer: Any, gold: Any) -> float:
    """1 for the same text. Where the gold is one letter, `(B)` and `B. a cat` name it too.

    The official script takes the first letter of any answer, so that "Because ..." is option B; a word is none here.
    """
    answer, gold = as_text(answer), as_text(gold)
    if len(gold) == 1 and gold.isalpha() and (letter := _LETTER.match(answer.strip())):
        answer = letter[1]
    return float(answer == gold)


def exact_code_result(answer: Any, gold: Any) -> float:
    gold = as_text(gold)
    fenced = _FENCED.search(gold)
    return exact(answer, fenced[1] if fenced else gold)


# The same text, in upper or lower case.
exact_ignoring_case = comparing(lambda side: as_text(side).lower(), exact)
# The same text without spaces, hyphens, full stops and case.
simple = comparing(lambda side: _IGNORED.sub("", as_text(side)).lower(), exact)


def any_reference(answer: Any, gold: Any) -> float:
    references = items_of(as_text(gold).replace("，", ","))
    return max((simple(answer, reference) for reference in references), default=0.0)


def similarity(answer: Any, gold: Any) -> float:
    """1 - distance / (length of the longer), with the unrestricted Damerau-Levenshtein distance.

    Letters may come between two that are swapped, at their own cost: from "ca" to "abc" are two edits, not three.
    """
    return DamerauLevenshtein.normalized_similarity(as_text(answer), as_text(gold))


def near(answer: Any, gold: Any) -> float:
    """The similarity without accents, articles and case where it is at least 0.9, else 0.

    Accents go by Unicode decomposition; the official script also writes other alphabets in Latin letters.
    """
    if not isinstance(answer, str):
        return 0.0
    answer, gold = _approximate(answer), _approximate(as_text(gold))
    longer = max(len(answer), len(gold))
    if abs(len(answer) - len(gold)) > (1 - NEAR_ENOUGH) * longer:
        return 0.0  # known from the lengths alone
    likeness = similarity(answer, gold)
    return likeness if likeness >= NEAR_ENOUGH else 0.0


def _approximate(text: str) -> str:
    return without_accents(" ".join(word for word in text.split(" ") if word.lower() not in ("the", "a"))).lower()


def without_accents(text: str) -> str:
    return "".join(part for part in unicodedata.normalize("NFKD", text) if not unicodedata.combining(part))


# Running text ------------------------------------------------------------------------------------------------------


def bleu(answer: Any, gold: Any) -> float:
    """sacreBLEU / 100, in the official direction: the gold is scored against the answer as its reference.

    The same text gets 1 here; sacreBLEU itself gives 0 to any text of less than four tokens.
    """
    if isinstance(answer, str) and isinstance(gold, str):
        answer, gold = [answer], [gold]
    if not _all_texts(answer) or not _all_texts(gold) or len(answer) != len(gold):
        return 0.0
    if list(answer) == list(gold):
        return 1.0
    import sacrebleu

    return float(sacrebleu.corpus_bleu(list(gold), [list(answer)]).score) / 100


def _all_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(item, str) for item in value)


def gleu(answer: Any, gold: Any) -> float:
    """GLEU: the common groups of one to four tokens, over the groups of the side that has more of them.

    A token is a Chinese character or a Latin word. The official script cuts Chinese into words with jieba's dictionary,
    so its scores of partly right translations differ; those of right and of unrelated ones do not.
    """
    if not isinstance(answer, str) or not isinstance(gold, str):
        return 0.0
    predicted, right = _groups(_TOKEN.findall(answer)), _groups(_TOKEN.findall(gold))
    most = max(predicted.total(), right.total())
    return (predicted & right).total() / most if most else float(answer == gold)


def _groups(tokens: Sequence[str]) -> Counter[tuple[str, ...]]:
    return Counter(
        tuple(tokens[start : start + length])
        for length in range(1, LONGEST + 1)
        for start in range(len(tokens) - length + 1)
    )
