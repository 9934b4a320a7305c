r"""What prose states where there is no box: its sentences, the last first, and the option that one of them names.

Sentences are asked from the last to the first. One that refuses ("cannot be determined") or that the token limit cut
off ends the search without an answer; one that asks, plans or supposes is passed over. A sentence that names two
options names none. An option's own text is looked for as it is written, and a letter inside it is that text. Every
search reads a text once.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from atrl_bench.models.templates import LETTERS

# Sentences --------------------------------------------------------------------------------------------------------

# "Dr. Pepper", "e.g. 3" and "5 in. tall" go on; "No." is an answer, and ends there.
_NO_END = "".join(
    rf"(?<!\b{word}\.)" for word in ("Dr", "Mr", "Mrs", "Ms", "St", "Mt", "vs", r"e\.g", r"i\.e", "Fig", "approx")
)
SENTENCE_END = re.compile(  # begins with one class of characters, which is what `re` looks for fast
    rf"[\n.!?。！？；<](?:(?<=[\n。！？；])|(?<=[.!?])(?=\s|$|\*)(?!\s[a-z]{{2}}){_NO_END}|(?<=<)/)"
)
_LABEL = re.compile(r"\s*(?:[(*]{0,3}[A-Pa-p][)*]{0,3}|\d{1,2})\Z")  # "D." and "2." begin a sentence
_ITEM = re.compile(r"\A\s*\d{1,2}[.)]\s+(?=\S)")
_REFUSAL = re.compile(
    r"\b(?:cannot|can ?not|can[’']t|could ?n(?:o|[’'])t"
    r"|not (?:be )?(?:possible|able) to|(?:imp|un|hard|difficult)\w* to)"
    r"\s+(?:be\s+)?(?:\w+ly\s+)?(?:determin|answer|see|tell|told|solv|calculat|comput|find|found|infer|view"
    r"|access|provid|identif|decid|say\b|know|look|assist|help|read|conclud|deduc|ascertain)"
    r"|(?:\bnot|n[’']t|no)\s(?:\w+\s){0,3}(?:enough|sufficient|access|information|details|context|data|sure|certain)\b"
    r"|\b(?:insufficient|without|needs?|needed|requires?)\s(?:\w+\s){0,2}(?:information|details|context|data)\b"
    r"|\bI(?:[’']m|\sam)?\s(?:sorry|unable|not able|cannot|can ?not|can[’']t|could ?n(?:o|[’'])t)\b"
    r"|\b(?:image|picture|figure|chart|graph|diagram)\b[^.]{0,30}\b(?:does|did)(?:\snot|n[’']t)\s(?:\w+\s){0,3}(?:contain|provide|include|give)\b"
    r"|(?:\b(?:would|will)|[’']d) (?:have to|need)\b|\bunclear\b|\bsorry\b|\b(?:could|can) you\b"
    r"|\bplease (?:provid|describ|shar|clarif|upload|giv|specif|attach|send)"
    r"|\b(?:is|are) (?:missing|unknown|not (?:provided|given|shown|visible|available|specified|clear))\b"
    r"|请问|无法|不能确定|不能判断|请提供|信息不足|不确定",
    re.I,
)
_NO_LAST_WORD = re.compile(
    r"(?:\b(?:the|an?|of|to|and|or|with|by|equals|be|for|then|so|get|that)"
    r"|(?<!\bit )(?<!they )(?<!there )\b(?:is|are|was)|[=+/×(,:−-]|\s\*)\s*\Z"
)
_PLANS = re.compile(
    r"[?？]\s*\Z|\b(?:might|could|perhaps|let[’']?s|let us|suppose|assume|need to|have to|has to)\b"
    r"|\bmay(?! (?:is|has|was)\b)|\A\W*(?:[Ff]irst|[Hh]ere|[Nn]ote|(?:[Tt]h[ia][st]|[Ii]t) is (?:because|since|due))\b"
)
_RESULT = re.compile(
    r"[=≈]|\b(?:so|therefore|thus|hence|total|result|equals?|yields?|gives?|gets?|answer|choose)\b|所以|因此|故|答案|选(?!项)",
    re.I,
)
_SUPPOSES = re.compile(r"\b(?:if|whether|when|unless|depending)\b", re.I)
HYPOTHETICAL = re.compile(r"\b(?:if|when|where|unless)\b.*\bwould\b|\Anone of\b", re.I)  # no number in it is the answer
# What only says under which condition, why, or beside what.
_BESIDES = re.compile(
    r"(?:\b(?:if|whether|since|because|when|where|assuming|so that|although|unless|depending|followed by|than)\b"
    r"|,\s(?:which|as|not)\b)(?:[^,;]|,(?=\d))*(?:[,;]|\Z)|\((?:which|not)\b[^)]*\)",
    re.I,
)
_SO = re.compile(
    r"\b(?:so|therefore|thus|hence|but)\b,?|\bi\.e\.|[;，；∴]|所以|因此|故"
    r"|,\s(?:which\s(?:makes|gives|means|leaves)|making|giving|leaving)\b",
    re.I,
)


@lru_cache(maxsize=256)
def clauses(sentence: str) -> tuple[str, ...]:
    """What a sentence may state, the most binding first: what follows "so", its main clause, all of it."""
    found = [_BESIDES.sub(" ", part) for part in (_SO.split(sentence)[-1], sentence)]
    return tuple(dict.fromkeys(found if _SUPPOSES.search(sentence) else [*found, sentence]))


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text that state something, the last first, up to one that refuses or was cut off.

    After a refusal only a conclusion counts: "Without the picture I cannot tell. So I choose B."
    """
    pieces = _pieces(text)
    *_, before, last = "", "", *pieces
    if len(last.split()) > 1 and _NO_LAST_WORD.search(last.rstrip(" $")):
        return
    if before.rstrip("*\"')").endswith((".", "!", "?")) and last[-1].isalpha() and last.isascii():
        pieces = [last]  # "... is 540°. Step 3: Add": only what stands in the last sentence, or nothing
    has_refused = refuses(text)
    for piece in reversed(pieces):
        if has_refused and refuses(piece):
            yield piece
            return
        plan = max((match.end() for match in _PLANS.finditer(piece)), default=0)
        is_conclusion = _RESULT.search(piece, plan)
        if (is_conclusion and not _SUPPOSES.search(piece)) if has_refused else (not plan or is_conclusion):
            yield _ITEM.sub("", piece, count=1)


def _pieces(text: str) -> list[str]:
    starts = [0, *(match.end() for match in SENTENCE_END.finditer(text)), len(text)]
    pieces: list[str] = []
    for start, end in itertools.pairwise(starts):
        piece = text[start:end].strip()
        if pieces and pieces[-1][-1] == "." and _LABEL.fullmatch(pieces[-1][-12:].rstrip(".")):
            pieces[-1] += " " + piece
        elif piece:
            pieces.append(piece)
    return pieces


@lru_cache(maxsize=256)
def refuses(text: str) -> bool:
    return _REFUSAL.search(text) is not None


# Options ----------------------------------------------------------------------------------------------------------

# An option's letter stands in brackets, in bold, alone on its line or before its text there, or after a word for it.
_NOUN = r"(?i:option|choice|letter|figure|answer|image|picture|diagram|shape|statement|graph|solution|response|result)"
_LETTER = re.compile(
    "|".join(
        (
            rf"{_NOUN}\s{{0,2}}(?i:letter\s{{1,2}}|is\s{{1,2}}|(?:w|sh)ould\s{{1,2}}be\s{{1,2}})?:?\s{{0,2}}[(*]{{0,3}}([A-P])\b(?!\s[a-z]+ed\b)",
            r"(?i:select|choose|pick|\bis|[’']s|\bbe|\bby|with|but|leaves|leaving|namely|\bball|which)\s{0,2}:?\s{0,2}[(*]{0,3}([A-P])(?=[)*.\s]{0,6}\Z|[，。])",
            r"^\s{0,4}[(*\[]{0,3}([A-P])[)*\].:]{0,3}\s{0,4}$",
            r"^\s{0,4}\(?([A-P])(?:[.:)]\s|\)?,?\s{1,2}(?:because|since)\b)",
            r"(?:^|,\s)([A-P])\s(?:matches|agrees|works|satisfies|represents|corresponds|fits|it is|shows)\b",
            r"(?:^|\s)\(([A-P])\)(?!\w)",
            r"\b([A-P])[)*]{0,3}\s{1,2}(?:it\sis\b|(?:is|as|would\s{1,2}be|must\s{1,2}be)\s{1,2}(?:the\s{1,2})?(?:most\s{1,2})?(?:correct|right|best|answer)\b)",
            r"([A-P])\s?(?:选项)?(?:正确|符合)",
            r"(?:[是为]|选项|选择|选|答案)\s{0,2}[是为:：]{0,2}\s{0,2}[(（*]{0,3}([A-P])(?![A-Za-z])",
        )
    ),
    re.M,
)
_REJECTED = re.compile(  # or named beside another
    r"[)）*.:]{0,3}\s{0,2}(?:(?:is|are|was)\s{1,2}(?:not|in(?:correct|valid)|wrong|false|too)\b|isn[’']t|错误|不"
    r"|(?:,|、|和|或|and|or|/|&)\s{0,2}(?:option\s)?[(*]{0,3}[A-P]\b)"
)
_REJECTS = re.compile(
    r"(?:\b(?-i:[A-P])[)*]{0,3}\s{0,2}(?:,|、|和|或|and|or|/|&)|\b(?:not|neither|nor|than|except|unlike)|不)\s{0,2}(?:\w+\s{1,2})?[(*]{0,3}\Z",
    re.I,
)
_YES_NO = re.compile(
    r"\b(yes|no)\b(?=\s?[,.:;!?–—*\"'-]|\s*\Z|\s(?:it|they|the|there|this|that|these|both|he|she|you|we)\b)|\A(是|否|不是)的?(?=\W|\Z)",
    re.I,
)
_TIME = re.compile(r"\d:\d\d")
_ARTICLE = re.compile(r"\A(?:the|an?)\s+(?=\w{2})", re.I)


def stated_option(sentence: str, choices: Sequence[str], num_choices: int) -> str | None:
    """The letter or the text of the one option that a sentence names; None where it names none, "" where several."""
    if yes_no := _YES_NO.search(sentence):
        word = (yes_no[1] or yes_no[2].replace("不是", "否")).lower()
        if choice := next((choice for choice in choices if choice.strip(" .").lower() == word), None):
            return choice
    named = (_option_of(clause, choices, num_choices) for clause in clauses(sentence))
    return next((option for option in named if option is not None), None)


def _option_of(clause: str, choices: Sequence[str], num_choices: int) -> str | None:
    wordings = sorted(filter(_is_wording, choices), key=len, reverse=True)
    texts = list(_texts(tuple(wordings)).finditer(clause)) or list(_texts(tuple(wordings), True).finditer(clause))
    masked = clause
    for match in texts:
        masked = masked[: match.start()] + "·" * len(match[0]) + masked[match.end() :]
    letters = {
        match[match.lastindex or 0]
        for match in _LETTER.finditer(masked)
        if not _REJECTED.match(masked, match.end(match.lastindex or 0))
        and not _rejects(masked, match.start(match.lastindex or 0))
    } & set(LETTERS[:num_choices])
    if letters:
        return letters.pop() if len(letters) == 1 else ""
    named = {wordings[(match.lastindex or 1) - 1] for match in texts if not _rejects(clause, match.start())}
    is_one = len(named) == 1 and not re.search(r"\bor\b", _texts(tuple(named), True).sub("", clause))
    return named.pop() if is_one else None


def _rejects(text: str, at: int) -> bool:
    return _REJECTS.search(text[max(0, at - 30) : at]) is not None


@lru_cache(maxsize=1024)
def _texts(wordings: tuple[str, ...], in_any_case: bool = False) -> re.Pattern[str]:
    """The texts of options, each a group: as they are written, or whatever their case, article and plural."""

    def pattern(wording: str) -> str:
        text = wording.strip(" .")
        if in_any_case:
            text = _ARTICLE.sub("", text.lower())
            if text[-2:].isalpha():
                return re.escape(text.removesuffix("s")) + "s?"
        return re.escape(text)

    any_of = "|".join(f"({pattern(wording)})" for wording in wordings) or "(?!)"
    return re.compile(rf"(?<![A-Za-z0-9])(?:{any_of})(?![A-Za-z0-9])", re.I if in_any_case else 0)


@lru_cache(maxsize=1024)
def _is_wording(choice: str) -> bool:
    is_formula = any(sign in choice for sign in "\\=<>≤≥^")
    return not is_formula and (sum(map(str.isalpha, choice)) > 1 or bool(_TIME.search(choice)))
