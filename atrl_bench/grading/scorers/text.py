r"""How short answers about documents are scored: by edit distance, by ten annotators, or relaxed as for charts.

All three are defined for a bare answer and give a whole solution nothing, so they are asked about what `extract_answer`
found: the box, "the answer is …", or a short last line. A sentence that answers in passing ("The brand on the left is
Dakota Digital.") stays a sentence here and scores as one: taking the likeliest piece of it would be a guess.

`plain` undoes what a box does to an answer, which no annotator wrote: `\text{Dakota Digital}`, `25\%`, `1{,}200`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from fractions import Fraction

from rapidfuzz.distance import Levenshtein

from atrl_bench.grading.scorers.scored import Scored
from atrl_bench.grading.spelling import NUMBER_WORDS
from atrl_bench.results.records import Gold

THRESHOLD = 0.5  # of the similarity: below it an answer is another one, not a misspelled one
RELATIVE_ERROR = Fraction(5, 100)  # read off a chart
ENOUGH_ANNOTATORS = 3


def plain(text: str) -> str:
    """An answer without the layout commands and the bold type that a box puts around words."""
    text = re.sub(r"\\([%$&#_{}])", r"\1", text.replace("{,}", ",").replace("**", "").replace("\\ ", " "))
    before = ""
    while before != text:
        before, text = text, re.sub(r"\\(?:text|math|o)[a-z]*\s?\{([^{}]*)\}", r"\1", text)
    text = text.strip()
    return text[1:-1].strip() if re.fullmatch(r"\$[^$]+\$", text) else text


# ANLS: InfoVQA ----------------------------------------------------------------------------------------------------


def anls(answer: str, gold: Gold) -> Scored:
    """The similarity to the nearest reference where it is at least one half, else nothing.

    The similarity is 1 - d / m, with d the edit distance and m the length of the longer text, both lower-cased and with
    single spaces (Biten et al., 2019). An answer exactly half right keeps its half, as in the benchmark's own script;
    lmms-eval divides by the length before the spaces are removed.
    """
    references = gold.references or (gold.answer,)
    similarities = {reference: similarity(plain(answer), reference) for reference in references}
    nearest = max(similarities, key=lambda reference: similarities[reference])
    score = similarities[nearest] if similarities[nearest] >= THRESHOLD else Fraction(0)
    return Scored(float(score), f"{float(similarities[nearest]):.2f} like {nearest!r}")


def similarity(answer: str, reference: str) -> Fraction:
    """1 - edit distance / length of the longer text; 0 where it is certainly below one half."""
    left, right = _folded(answer), _folded(reference)
    longer = max(len(left), len(right))
    if longer == 0:
        return Fraction(0)  # nothing said about nothing known is no right answer
    distance = Levenshtein.distance(left, right, score_cutoff=longer // 2)
    return 1 - Fraction(distance, longer) if distance <= longer // 2 else Fraction(0)


# VQA accuracy: TextVQA --------------------------------------------------------------------------------------------


def vqa(answer: str, gold: Gold) -> Scored:
    """The mean, over leaving out one annotator at a time, of min(1, agreeing others / 3).

    `gold.references` are the annotators' answers. Of ten, four who agree make a full point and one makes 0.3, so a row
    on which the annotators disagree gives nobody a full point.
    """
    predicted = normalised(plain(answer))
    agreeing = [normalised(reference) == predicted for reference in gold.references]
    others = [sum(agreeing) - agrees for agrees in agreeing]
    points = sum(min(ENOUGH_ANNOTATORS, count) for count in others)
    score = points / (ENOUGH_ANNOTATORS * len(agreeing)) if agreeing else 0.0
    return Scored(score, f"{sum(agreeing)} of {len(agreeing)} annotators say {predicted!r}")


_MARKS = ';/[]"{}()=+\\_-><@`!'
_NUMBERS = {word: str(number) for number, word in enumerate(NUMBER_WORDS[:11])} | {"none": "0"}
_ARTICLES = {"a", "an", "the"}
# Without an apostrophe these are still contractions; "hell", "ill", "its", "shell", "well" and "were" are words.
_CONTRACTIONS = """
aint arent cant couldve couldnt didnt doesnt dont hadnt hasnt havent hed hes howd howll hows im isnt itd itll ive lets
maam mightnt mightve mustnt mustve neednt oclock oughtnt shant shouldve shouldnt somebodyll somebodys someoned someonell
someones somethingd somethingll thats thered therere theres theyd theyll theyre theyve twas wasnt weve werent whatll
whatre whats whatve whens whered wheres whereve whod wholl whos whove whyll whyre whys wont wouldve wouldnt yall youd
youll youre youve
"""
_CONTRACTED = frozenset(_CONTRACTIONS.split())


def normalised(text: str) -> str:
    """An answer as EvalAI compares it: lower case, no articles, digits for numbers, most punctuation gone.

    A mark that stands next to a space anywhere is dropped everywhere, any other becomes a space ("coca-cola"); a full
    stop stays only before a digit. Two of EvalAI's results are mended: with and without its apostrophe a contraction is
    the same word ("that's"), and an answer of which nothing is left ("A", "?") is compared as it stands.
    """
    written = _folded(text.replace("’", "'"))
    bare = written.replace(",", "").replace("?", "").strip()
    kept = bare
    for mark in _MARKS:
        beside_a_space = f"{mark} " in bare or f" {mark}" in bare
        kept = kept.replace(mark, "" if beside_a_space else " ")
    kept = re.sub(r"\.(?!\d)", "", kept)
    words: list[str] = []
    for word in kept.split():
        contracted = word.replace("'", "")
        words += [contracted] if contracted in _CONTRACTED else word.replace("'s", " 's").split()
    return " ".join(_NUMBERS.get(word, word) for word in words if word not in _ARTICLES) or written


def majority(answers: Sequence[str]) -> str:
    """The answer that most annotators gave, in the spelling that most of them used."""
    forms = [normalised(answer) for answer in answers]
    return max(answers, key=lambda answer: (forms.count(normalised(answer)), answers.count(answer)))


# Relaxed accuracy: ChartQAPro -------------------------------------------------------------------------------------


def relaxed(answer: str, gold: Gold) -> Scored:
    """The mean over the gold's elements of: a number within 5 %, a text by its similarity, or both exactly.

    The benchmark's paper wants the exact answer of a multiple-choice or fact-checking question, and an exact year. Its
    script works that flag out and then does not pass it on, so that "Unlikely" for "Likely" gets 0.75. The score here
    respects the flag and gives a bare negation nothing; `details["official"]` is what the script gives the same answer.
    Both read thousands separators, currency signs and a list without its brackets, which the script does not.
    `gold.rules` holds `exact` and the `years`, one flag an element.
    """
    rules = json.loads(gold.rules) if gold.rules else {}
    written = plain(answer)
    expected = _elements(gold.answer) or [_trimmed(gold.answer)]
    loose = _split(written) if len(expected) > 1 else []  # a box may lose the brackets of a list
    predicted = _elements(written) or (loose if len(loose) == len(expected) else [_trimmed(written)])
    flags = [bool(flag) for flag in rules.get("years", ())] or [False]
    is_year = [flags[index % len(flags)] for index in range(len(expected))]
    strict, official = Fraction(0), Fraction(0)
    for right, element, year in zip(expected, predicted, is_year, strict=False):
        near = _near(right, element)
        official += _exact(right, element) if year else near
        if rules.get("exact"):
            strict += _exact(right, element) or _names_option(right, element)
        else:
            strict += _exact(right, element) if year else Fraction(0) if _is_negation(right, element) else near
    count = max(len(expected), len(predicted))  # an element too many is as wrong as one too few
    why = f"{float(strict):g} of {count}" if count > 1 else f"compared with {gold.answer!r}"
    return Scored(float(strict / count), why, {"official": float(official / count)})


def _near(right: str, element: str) -> Fraction:
    expected, number = _number(right), _number(element)
    if expected is not None and number is not None:
        return Fraction(abs(number - expected) <= RELATIVE_ERROR * abs(expected))
    near = similarity(*(text.removesuffix("%").strip() for text in (element, right)))
    return near if near > THRESHOLD else Fraction(0)  # its script, unlike that of InfoVQA, gives half right nothing


def _exact(right: str, element: str) -> Fraction:
    return Fraction(_folded(element) == _folded(right) != "")


def _folded(text: str) -> str:
    return " ".join(text.lower().split())


def _names_option(right: str, element: str) -> Fraction:
    """1 where the gold is a letter and the answer names it as one: `(b)`, `b) 12 %`, `option B`."""
    named = re.match(r"(?:option\s|choice\s)?\s*[(\[]?([a-z])(?:[)\].:]|$)", element.lower())
    return Fraction(named is not None and named[1] == right.lower().strip("()"))


_NEGATING = ("un", "in", "im", "il", "ir", "dis", "non", "non-", "not ")


def _is_negation(right: str, element: str) -> bool:
    shorter, longer = sorted((right.lower(), element.lower()), key=len)
    return any(longer == prefix + shorter for prefix in _NEGATING)


# 12 · -3.5 · 1,200 · $5 · 25 % · ~5; "1990s" and "5G" are no numbers, "10-15" and "3:1" are two.
_NUMBER = re.compile(r"[~≈]?\s?([-−+]?)\s?[$€£¥]?\s?(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d*)?|\.\d+)\s?%?")


def _number(text: str) -> Fraction | None:
    """The number a text is, with its percent sign, currency sign and thousands separators read over."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None or len(match[2]) > 40:
        return None
    value = Fraction(match[2].replace(",", ""))
    return -value if match[1] in ("-", "−") else value


def _elements(text: str) -> list[str]:
    match = re.fullmatch(r"\s*\[(.*)\]\s*", text, re.S)
    return _split(match[1]) if match else []


# An element in quotation marks ends at one before a comma, so that 'Men's' is one; any other ends at a comma.
_ELEMENT = re.compile(r"""\s*(?:(['"])(.*?)\1\s*(?:,|$)|([^,]*)(?:,|$))""", re.S)


def _split(text: str) -> list[str]:
    parts = [match[2] if match[1] else match[3] for match in _ELEMENT.finditer(text)]
    return [element for element in map(_trimmed, parts) if element]


def _trimmed(text: str) -> str:
    return text.strip(" \t\r\n\"'").rstrip(".")
