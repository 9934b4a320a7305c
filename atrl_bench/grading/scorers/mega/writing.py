"""Constrained generation: texts that must contain words, keep to a length or begin their lines with given letters.

The row's `eval_context` names the constraints, and all of them have to hold. A word counts in singular and plural; the
official script asks WordNet for that and counts parts of words too ("cat" in "category"), which is not done here.
Syllables, rhymes and metre need a pronouncing dictionary: such a text can be found wrong here, but not right.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from atrl_bench.grading.scorers.mega.literals import as_text
from atrl_bench.grading.scorers.mega.metric import CannotScoreError

NEEDS_PRONUNCIATION = ("syllables", "rhyming_scheme", "poetry_meter")


def keeps_constraints(answer: Any, context: Mapping[str, Any]) -> float:
    text = as_text(answer)
    undecided = []
    for name, requirement in context.items():
        try:
            if not _keeps(text, str(name).lower(), as_text(requirement)):
                return 0.0
        except CannotScoreError as error:
            undecided.append(str(error))
    if undecided:
        raise CannotScoreError("; ".join(undecided))
    return 1.0


def _keeps(text: str, name: str, requirement: str) -> bool:
    if not requirement.strip():
        return True  # a placeholder
    kind = re.sub(r"\d+$", "", name.split("##")[0])
    if kind.startswith("contain"):
        return _contains(text.replace("**", ""), name, requirement)
    if kind == "length":
        return _has_length(text, requirement.strip())
    if kind.startswith("acrostic"):
        return _is_acrostic(text.replace("**", ""), requirement.lower(), every_word="alliteration" in kind)
    if kind in NEEDS_PRONUNCIATION:
        if kind == "rhyming_scheme" and len(text.strip().split("\n")) != len(requirement):
            return False
        raise CannotScoreError(f"{kind} needs a pronouncing dictionary")
    raise CannotScoreError(f"the constraint {name[:40]!r} is not known")


def _has_length(text: str, requirement: str) -> bool:
    limit = requirement[1:].strip()
    if requirement[0] not in "<>" or not limit.isdecimal():
        raise CannotScoreError(f"the length {requirement[:20]!r} is not known")
    words = len(re.findall(r"\b\w+\b", text))
    return words < int(limit) if requirement[0] == "<" else words > int(limit)


def _is_acrostic(text: str, letters: str, *, every_word: bool) -> bool:
    lines = [line.strip() for line in text.strip().lower().split("\n")]
    if len(lines) != len(letters):
        return False
    for line, letter in zip(lines, letters, strict=True):
        words = line.split() if every_word else line[:1]
        if bool(line) == (letter == " ") or any(word[0] != letter for word in words):
            return False
    return True


# Words ------------------------------------------------------------------------------------------------------------


def _contains(text: str, name: str, requirement: str) -> bool:
    """Check `contain##position`: "[robot, android]##2" wants one of the words in the second sentence."""
    keys = [re.sub(r"\d+$", "", key) for key in name.split("##")]
    values = [value.strip().strip('"').strip() for value in requirement.split("##")]
    if len(keys) != len(values):
        raise CannotScoreError(f"the constraint {name[:40]!r} does not fit its value")
    constraint = dict(zip(keys, values, strict=True))
    groups = [_phrases(group) for group in re.findall(r"\[([^\[\]]*)\]", values[0])] or [_phrases(values[0])]
    sentences = [_words(sentence) for sentence in re.split(r"(?<=[.!?])[\"')\]]*\s+|\n{2,}", text.strip())]
    there = [counts for group in groups if any(counts := _counts(sentences, group))]
    if not there or ("contain_only" in constraint and len(there) != 1):
        return False
    counts = there[0]  # how often one of the phrases stands in each sentence
    if "position_only" in constraint:
        return [number for number, count in enumerate(counts, 1) if count] == [_count(constraint["position_only"])]
    if "times" in constraint:
        return sum(counts) == _count(constraint["times"])
    if "position" in constraint:
        return any(number == _count(constraint["position"]) for number, count in enumerate(counts, 1) if count)
    return True


def _count(text: str) -> int:
    if not text.isdecimal():
        raise CannotScoreError(f"{text[:20]!r} is no count")
    return int(text)


def _phrases(text: str) -> list[list[str]]:
    return [words for phrase in text.split(",") if (words := _words(phrase))]


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+(?:['’-][^\W_]+)*", text.lower())


def _counts(sentences: list[list[str]], phrases: list[list[str]]) -> list[int]:
    longest = max(map(len, phrases), default=0)
    return [
        sum(_begins(sentence[start : start + longest], phrases) for start in range(len(sentence)))
        for sentence in sentences
    ]


def _begins(words: list[str], phrases: list[list[str]]) -> bool:
    """Whether one of the phrases stands here; "[child, children]" is still one word of the text."""
    return any(len(phrase) <= len(words) and all(map(_same_noun, words, phrase)) for phrase in phrases)


_PLURALS = (("ies", "y"), ("ves", "f"), ("ves", "fe"), ("men", "man"), ("es", ""), ("s", ""))
_IRREGULAR = {"children": "child", "people": "person", "feet": "foot", "teeth": "tooth", "geese": "goose"}
_IRREGULAR |= {"mice": "mouse", "oxen": "ox", "leaves": "leaf"}


def _same_noun(left: str, right: str) -> bool:
    return left == right or right in _singulars(left) or left in _singulars(right)


def _singulars(word: str) -> set[str]:
    singulars = {word.removesuffix("'s").removesuffix("’s"), _IRREGULAR.get(word, word)}
    return singulars | {word[: -len(end)] + single for end, single in _PLURALS if word.endswith(end) and len(word) > 3}
