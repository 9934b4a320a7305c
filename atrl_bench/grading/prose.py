r"""What prose states: the number, letter or option text of its last sentence that states one.

Sentences are asked from the last to the first, and of each what follows "so", then its main clause, then all of it
(`clauses`). One that refuses ("cannot be determined", "please provide") or that the token limit cut off ends the search
without an answer; one that asks, plans or only supposes is passed over. A clause that names two options or two numbers
states neither. Every search reads the text once.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from atrl_bench.grading.spelling import NUMBER_WORDS, TENS, in_digits
from atrl_bench.models.templates import LETTERS


class Guarded:
    """A pattern without regard to case that is tried only on a text with one of its words: a look costs a hundredth."""

    def __init__(self, pattern: str, words: str) -> None:
        self._pattern = re.compile(pattern, re.I)
        self._words = words.split("|")

    def may_match(self, text: str) -> bool:
        """Whether a text has one of the words, without one of which the pattern matches nothing."""
        lowered = text.lower()
        for word in self._words:  # noqa: SIM110 -- `any` over a generator takes twice as long
            if word in lowered:
                return True
        return False

    def search(self, text: str, start: int = 0) -> re.Match[str] | None:
        return self._pattern.search(text, start) if self.may_match(text) else None

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        return self._pattern.finditer(text) if self.may_match(text) else iter(())

    def sub(self, replacement: str, text: str) -> str:
        return self._pattern.sub(replacement, text) if self.may_match(text) else text

    def split(self, text: str, maxsplit: int = 0) -> list[str]:
        return self._pattern.split(text, maxsplit) if self.may_match(text) else [text]


# Sentences --------------------------------------------------------------------------------------------------------

# "Dr. Pepper", "e.g. 3" and "5 in. tall" go on; "No." is an answer, and ends there.
_NO_END = "".join(
    rf"(?<!\b{word}\.)" for word in ("Dr", "Mr", "Mrs", "Ms", "St", "Mt", "vs", r"e\.g", r"i\.e", "Fig", "approx")
)
SENTENCE_END = re.compile(  # begins with one class of characters, which is what `re` looks for fast
    r"[\n.!?。！？；<,，](?:(?<=[\n。！？；])"
    rf"|(?<=[.!?])(?=\s|$|\*)(?!\s[a-z]{{2}}){_NO_END}|(?<=<)/|(?<=[,，])(?=所以|因|故))"
)
_LABEL = re.compile(r"\s*(?:[(*]{0,3}[A-Pa-p][)*]{0,3}|\d{1,2})\Z")  # "D." and "2." begin a sentence
_ITEM = re.compile(r"\A\s*\d{1,2}[.)]\s+(?=\S)")
_REFUSAL = Guarded(
    r"(?:\bcannot|\bcan ?not|can[’']t|\bcould ?n(?:o|[’'])t"
    r"|\bnot (?:be )?(?:possible|able) to|\bimpossible to|\bunable to|\bhard to|\bdifficult to)"
    r"\s+(?:be\s+)?(?:\w+ly\s+)?(?:determin|answer|see\b|seen|tell|told|solv|calculat|comput|find|found|infer|view|access"
    r"|provid|identif|decid|say\b|know|look|assist|help|read|conclud|deduc|ascertain)"
    r"|(?:\bnot|n[’']t)\s(?:\w+\s){0,3}(?:enough|sufficient)\b|\b(?:no|n[’']t have|not have) access\b"
    r"|\b(?:insufficient|no|without|needs?|needed|requires?)\s(?:\w+\s){0,2}(?:information|details|context|data)\b"
    r"|\bI(?:[’']m|\sam)?\s(?:sorry|unable|not able|cannot|can ?not|can[’']t|could ?n(?:o|[’'])t)\b"
    r"|\b(?:image|picture|figure|chart|graph|diagram)\b[^.]{0,30}\b(?:does|did)(?:\snot|n[’']t)\s(?:\w+\s){0,3}(?:contain|provide|include|give)\b"
    r"|(?:\b(?:would|will)|[’']d) (?:have to|need)\b|\bnot (?:\w+\s)?(?:sure|certain)\b|\bunclear\b"
    r"|\bplease (?:provid|describ|shar|clarif|upload|giv|specif|attach|send)|\b(?:could|can) you\b|\bsorry\b"
    r"|\b(?:is|are) (?:missing|unknown|not (?:provided|given|shown|visible|available|specified|clear))\b"
    r"|请问|无法|不能确定|不能判断|请提供|信息不足|不确定",
    words="not|no |can you|'t|’t|could you|unable|impossible|hard to|difficult to|sorry|have to|need|requir"
    "|insufficient|without|unclear|please|missing|unknown|请|无法|不|信息",
)
_NO_LAST_WORDS = {
    *("is", "are", "was", "the", "a", "an", "of", "to", "and", "or", "with", "by", "equals", "be", "for", "then"),
    *("so", "get", "that"),
}
_NO_LAST_CHARS = tuple("=+/×(,:−-")
_ENDED = re.compile(r"[.!?][*\"')]*\Z")
_PLANS = Guarded(
    r"[?？]\s*\Z"
    r"|\b(?:might|may(?! (?:is|has|was)\b)|could|perhaps|let[’']?s|let us|suppose|assume|need to|have to|has to)\b",
    words="?|？|might|may|could|perhaps|let|suppose|assume|need to|have to|has to",
)
_OPENS_PLAN = re.compile(r"\W*(?:first|here|note|(?:this|that|it) is (?:because|since|due))\b", re.I)
_RESULT = Guarded(
    r"[=≈]|\b(?:so|therefore|thus|hence|total|result|equals?|yields?|gives?|gets?)\b|所以|因此|故|答案|选(?!项)",
    words="=|≈|so|therefore|thus|hence|total|result|equal|yield|give|get|所以|因此|故|答案|选",
)
_CONCLUSION = Guarded(
    r"\b(?:so|therefore|thus|hence|answer|choose)\b|所以|因此|故|答案|选(?!项)",
    words="so|therefore|thus|hence|answer|choose|所以|因此|故|答案|选",
)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text that state something, the last first, up to one that refuses or was cut off.

    After a refusal only a conclusion counts: "Without the picture I cannot tell. So I choose B."
    """
    pieces = _pieces(text)
    if pieces and _is_cut_off(pieces[-1]):
        return
    if len(pieces) > 1 and _ENDED.search(pieces[-2]) and pieces[-1][-1].isalpha() and pieces[-1].isascii():
        pieces = pieces[-1:]  # "... is 540°. Step 3: Add": only what stands in the last sentence, or nothing
    has_refused = refuses(text)
    for piece in reversed(pieces):
        if has_refused and refuses(piece):
            yield piece
            return
        plans = [*filter(None, [_OPENS_PLAN.match(piece)]), *_PLANS.finditer(piece.replace("May", "..."))]
        if has_refused:
            states = bool(_CONCLUSION.search(piece)) and not _SUPPOSES.search(piece)
        else:
            states = not plans or bool(_RESULT.search(piece, plans[-1].end()))
        if states:
            yield _ITEM.sub("", piece, count=1) if piece[0].isdecimal() else piece


def _is_cut_off(sentence: str) -> bool:
    words = sentence.rstrip(" $\t").rsplit(maxsplit=2)
    if len(words) < 2:
        return False
    is_copula = words[-2].lower() in ("it", "they", "there")  # "that is what it is"
    return words[-1].endswith(_NO_LAST_CHARS) or words[-1] == "*" or (words[-1] in _NO_LAST_WORDS and not is_copula)


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


def is_hypothetical(sentence: str) -> bool:
    """Whether a sentence says what would be if something else were: no number in it is the answer."""
    return _SUPPOSES.search(sentence) is not None and re.search(r"\bwould\b", sentence) is not None


@lru_cache(maxsize=256)
def refuses(text: str) -> bool:
    return _REFUSAL.search(text) is not None


_SUBORDINATE = Guarded(
    r"(?:\b(?:if|whether|since|because|when|while|where|given|assuming|so that|although|unless|depending)\b"
    r"|,\s(?:which|as)\b)(?:[^,;]|,(?=\d))*(?:[,;]|\Z)",
    words="if|whe|since|because|while|given|assuming|so that|although|unless|depending|, which|, as",
)
_PURPOSE = re.compile(r"\W*(?:as|(?:in order )?to|for)\s(?:[^,;]|,(?=\d))*(?:[,;]|\Z)", re.I)
_SUPPOSES = Guarded(r"\b(?:if|whether|when|where|unless|depending)\b", words="if|whe|unless|depending")
_SO = Guarded(
    r"\b(?:so|therefore|thus|hence)\b,?|[;，]|所以|因此|故"
    r"|\bi\.e\.,?|\b(?:that is|in other words),"
    r"|,\s(?:which\s(?:makes|gives|means|leaves|yields)|making|giving|leaving|yielding)\b",
    words="so|therefore|thus|hence|;|，|所以|因此|故|i.e|that is|in other words|which|making|giving|leaving|yielding",
)


@lru_cache(maxsize=256)
def clauses(sentence: str) -> tuple[str, ...]:
    """What a sentence may state, the most binding first: what follows "so", its main clause, all of it."""
    parts = dict.fromkeys((_SO.split(sentence)[-1], sentence))
    found = [_SUBORDINATE.sub(" ", _without_purpose(part)) for part in parts]
    return tuple(dict.fromkeys(found if _SUPPOSES.search(sentence) else [*found, sentence]))


def _without_purpose(clause: str) -> str:
    purpose = _PURPOSE.match(clause)
    return clause[purpose.end() :] if purpose else clause


# Letters ----------------------------------------------------------------------------------------------------------

# An option stands in brackets, in bold, alone on its line or before its text there, or after a word that announces it.
_NOUN = r"(?i:option|choice|letter|figure|answer|image|picture|diagram|shape|statement|graph|solution|response|result)"
_LETTER_PATTERNS = (
    rf"{_NOUN}\s{{0,2}}(?i:letter\s{{1,2}})?(?i:(?:is|(?:w|sh)ould\s{{1,2}}be|must\s{{1,2}}be)\s{{1,2}})?:?\s{{0,2}}[(*]{{0,3}}([A-P])\b(?!\s[a-z]+ed\b)",
    r"(?i:option|choice)\s{1,2}([a-p])\b(?=\W*\Z)",
    r"(?i:select|choose|pick)\s{0,2}:?\s{0,2}[(*]{0,3}([A-P])\b(?!\s[a-z])",
    r"(?:is|[’']s|be|with|but|leaves|leaving|namely)\s{1,2}[(*]{0,3}([A-P])(?:[)*.\s]|，|。){0,6}\Z",
    r"^\s{0,4}\(?([A-P])\)?,?\s{1,2}(?:because|since)\b",
    r"(?:\A|,\s)([A-P])\s(?:matches|fits|agrees|works|satisfies|represents|corresponds|shows)\b",
    r"\b([A-P])\sit\sis\b",
    r"\*\*\(?([A-P])\)?[.:)]?\*\*",
    r"^\s{0,4}[(*\[]{0,3}([A-P])[)*\].:]{0,3}\s{0,4}$",
    r"^\s{0,4}([A-P])[.:)]\s",
    r"(?:^|\s)\(([A-P])\)(?!\w)",
    r"\b(?i:so|therefore|thus|hence),?\s{1,2}([B-HJ-P])(?:[.:)]\s|[.\s]*$)",
    r"\b([A-P])[)*]{0,3}\s{1,2}(?:is|as|would\s{1,2}be|must\s{1,2}be)\s{1,2}(?:the\s{1,2})?(?:most\s{1,2})?(?:correct|right|best|answer)\b",
    r"([A-P])\s?(?:选项)?(?:正确|符合)",
    r"[是为]\s?([A-P])(?=选项|\W*\Z)",
    r"(?:选项|选择|选|答案)\s{0,2}[是为:：]{0,2}\s{0,2}[(（*]{0,3}([A-P])(?![A-Za-z])",
)
_LETTER = tuple(re.compile(pattern) for pattern in _LETTER_PATTERNS)
_LONE_LETTER = re.compile(r"[A-P](?![A-Za-z])(?<![A-Za-z][A-P])")
_LABELLED_LETTER = Guarded(r"(?:option|choice)\s{1,2}[a-p]\b", words="option|choice")
_REJECTED = re.compile(
    r"[)）*.:]{0,3}\s{0,2}(?:(?:is|are|was)\s{1,2}(?:not|in(?:correct|valid)|wrong|false|too)\b|isn[’']t|错误|不"
    r"|(?:,|、|和|或|and|or|/|&)\s{0,2}(?:option\s)?[(*]{0,3}[A-P]\b)"  # beside another one
)
_REJECTS = re.compile(
    r"(?:\b[A-P][)*]{0,3}\s{0,2}(?:,|、|和|或|and|or|/|&)|\b(?:not|neither|nor|than|except|unlike)|不)\s{0,2}(?:\w+\s{1,2})?[(*]{0,3}\Z",
    re.I,
)


def last_letter(text: str, num_choices: int) -> str | None:
    return next(filter(None, (_letter_of(clause, num_choices) for clause in clauses(text))), None)


def _letter_of(text: str, num_choices: int) -> str | None:
    if not _LONE_LETTER.search(text) and not _LABELLED_LETTER.search(text):
        return None
    named = []
    for match in (match for pattern in _LETTER for match in pattern.finditer(text)):
        before = text[max(0, match.start(1) - 30) : match.start(1)]
        if not _REJECTED.match(text, match.end(1)) and not _REJECTS.search(before):
            named.append((match.end(1), match[1].upper()))
    return max((end for end in named if end[1] in LETTERS[:num_choices]), default=(0, None))[1]


# Texts of options -------------------------------------------------------------------------------------------------

_WORD = re.compile(r"[\u4e00-\u9fff]|[^\W_\u4e00-\u9fff]+")  # in Chinese, a character
_ARTICLES = ("a", "an", "the")
_CONTRASTS = {
    *("not", "than", "nor", "neither", "except", "unlike", "cannot", "t", "compared", "between", "versus", "followed"),
    *("不", "比"),
}
_COPULAS = {"is", "are", "was", "were", "be", "answer", "namely", "called", "是", "为"}
_YES_NO = Guarded(
    r"\b(yes|no)\b(?=\s?[,.:;!?–—*\"'-]|\s*\Z|\s(?:it|they|the|there|this|that|these|both|he|she|you|we)\b)"
    r"|\A(是|否|不是)的?(?=\W|\Z)",
    words="yes|no|是|否",
)


_RELATION = re.compile(r"[=<>≤≥]")
_NOT = re.compile(r"\bnot\b|n[’']t\b", re.I)
_COMPARED = Guarded(
    r",\snot\b|\b(?:than|followed by|compared (?:to|with)|instead of|ahead of|unlike)\b",
    words="than|not|followed by|compared|instead of|ahead of|unlike",
)
_AND = re.compile(r"\b(?:and|or)\b", re.I)


def stated_option(sentence: str, choices: Sequence[str]) -> str | None:
    """The text of the one option that a sentence names without rejecting it; None where it names several."""
    yes_no = _YES_NO.search(sentence)
    if yes_no:
        word = (yes_no[1] or yes_no[2].replace("不是", "否")).lower()
        choice = next((choice for choice in choices if _words(choice) == (word,)), None)
        if choice:
            return choice
    named = next(filter(None, (_option_of(clause, choices) for clause in clauses(sentence))), None)
    return named or _formula_at_end(sentence, choices)


def _formula_at_end(sentence: str, choices: Sequence[str]) -> str | None:
    """The option that is a relation and ends a sentence: "PA = PB < AB"."""
    text = "".join(sentence.split()).rstrip(".$*")
    texts = {choice: "".join(choice.split()).strip("$") for choice in choices if _RELATION.search(choice)}
    ending = [choice for choice in texts if text.rstrip(")$").endswith(texts[choice].rstrip(")"))]
    return max(ending, key=len) if ending and not _EITHER.search(sentence) else None


def _option_of(clause: str, choices: Sequence[str]) -> str | None:
    """The option that a clause names before what it compares it with, and after "not ... but"."""
    clause = clause.split(" but ")[-1] if _NOT.search(clause) else clause
    parts = _COMPARED.split(clause, maxsplit=1)
    return next(filter(None, (_sole_option(part, choices) for part in dict.fromkeys((parts[0], clause)))), None)


def _sole_option(clause: str, choices: Sequence[str]) -> str | None:
    targets = {choice: _words(choice) for choice in choices if _is_wording(choice)}
    words = _words(clause) if targets else ()
    ends: dict[int, tuple[int, str]] = {}  # by where an option starts; no shorter option is named inside a longer one
    taken: set[int] = set()
    for choice in sorted(targets, key=lambda choice: -len(targets[choice])):
        for start in _occurrences(targets[choice], words):
            if start not in taken:
                ends[start] = start + len(targets[choice]), choice
                taken.update(range(start, ends[start][0]))
    if not ends:
        return None
    if "or" in words and not any("or" in target for target in targets.values()):
        return None
    named = {start: end for start, end in ends.items() if not _CONTRASTS & set(words[max(0, start - 2) : start])}
    if len({choice for _, choice in named.values()}) > 1:
        if "both" in words:
            return None
        last = clause.rpartition(",")[2]
        if "," in clause and len(_words(last)) > 3 and not _AND.search(last):  # "Among A, B and C, the smallest is B"
            return _sole_option(last, choices)
        named = {
            start: end
            for start, end in named.items()
            if start and words[start - 1] in _COPULAS and end[0] not in ends and words[end[0] : end[0] + 1] != ("and",)
        }
    options = {targets[choice]: choice for _, choice in named.values()}
    return next(iter(options.values())) if len(options) == 1 else None


@lru_cache(maxsize=1024)
def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in _WORD.findall(text.casefold()) if word not in _ARTICLES)


@lru_cache(maxsize=1024)
def _is_wording(choice: str) -> bool:
    is_number = _RELATION.search(choice) or "\\" in choice or choice[:1].isdigit() or sum(map(str.isalpha, choice)) < 2
    return not is_number and _words(choice) not in (("yes",), ("no",))


def _occurrences(target: tuple[str, ...], words: tuple[str, ...]) -> list[int]:
    size = len(target)
    return [start for start in range(len(words) - size + 1) if size and words[start : start + size] == target]


# Numbers ----------------------------------------------------------------------------------------------------------

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
_SPELLED = Guarded(
    rf"(?<!\bthe\s)(?<!\bthis\s)(?<!\bwhich\s)\b(?:negative\s)?"
    rf"(?:(?:{'|'.join(TENS)})(?:[-\s](?:{'|'.join(NUMBER_WORDS[1:10])}))?|{'|'.join(NUMBER_WORDS)})\b(?!-)"
    r"(?!(?<=one)\s+of)(?!\s+(?:hundred|thousand|million))",
    words="|".join((*NUMBER_WORDS[:13], "teen", *TENS)),
)
# What stands before a number that the clause states ...
_STATES = re.compile(
    r"(?:\b(?:is|are|was|were|be|equals?|equal to|gets?|gives?|has|have|contains?|shows?|measures?|becomes?|makes?|see"
    r"|count|counted|find|obtain|yields?|leaves|total of|answer|so|therefore|thus|hence|namely|approaches"
    r"|(?:clos\w+|equal|rounds?|comes?|came|amount\w*|add\w* up|sum\w*|simplif\w+|correspond\w*) to)\b"
    r"|[=≈:]|等于|[为是有约得多少])"
    r"[\s*$(]*(?:(?:about|approximately|around|roughly|exactly|only|just|a total of)\s+|≈\s*|\\\(\s*)*[\s*$(]*\Z",
    re.I,
)
# ... and before one that only says where, when, of what or beside what.
_BESIDE = re.compile(
    r"(?:\b(?:above|below|over|under|than|beyond|from|out of|out of every|negative|minus|to|between|at least|at most"
    r"|not|figure|step|question|point|row|part|column|page|angle|after|before|in|per|up to|(?<!, )or|every|each"
    r"|between\s\S{1,20}\sand|\d[\d.]{0,9}\S?,?\sand)|[∠△#+/×·]|\d\s?\*|[-−]\s)[\s$*]*\Z",
    re.I,
)
# What follows a number that is a part of a formula or of a list.
_UNFINISHED = re.compile(
    r"\s?°?\s?[-−+*/×·=]\s?[$]?[\d(√\\]|[°%]?\s?(?:and|or|to|out of|out of every)\s[$]?\d|[°%]?,\s\d"
    r"|(?<=\d)[abknxyz](?![A-Za-z])"
)
_UNSOLVED = re.compile(r"(?:\d[a-z]|[a-z]\s?[-+]\s?[\d.]+(?:°|\^\s?\\circ|\^\{\\circ\})?)\s?=\s*\Z")  # 2x + 6 = 20
_SUBJECT_BEFORE = re.compile(r"(?:\A|,)[\s*]*\Z")  # "4 boxes had exactly 32 toys"
_SUBJECT_AFTER = re.compile(r"\s(?:[^\W\d]+\s){1,3}(?:have|has|had|are|were|is|was|scored)\b(?!\s\S*\d)")
_EITHER = re.compile(r"\bor\b|或")
_OR_ANOTHER = re.compile(r"[^,]*?\bor\s[^,]*\d")
_NEGATED = Guarded(
    r"(?:\b(?:not|never|neither)|n[’']t)\s(?:\w+\s){0,2}\W*\Z|不\Z", words="not|never|neither|n't|n’t|不"
)
_REJECTED_NUMBER = re.compile(r"\W*\b(?:is|are)\s(?:not|incorrect|wrong|false)\b")
_IN_YEAR = re.compile(
    r"\b(?:peak\w*|most|least|\w+est|cross\w*|intersect\w*|occur\w*|happen\w*)\b"
    r".*\bin ((?:19|20)\d\d)\W*\Z"
)
_NOTHING_DOES = re.compile(r"\A\W*(?:none|neither|nothing|nobody)\b", re.I)
_RATIO_IN_WORDS = re.compile(r"(?<=\d)\sto\s(?=\d)")


def stated_number(clause: str) -> str | None:
    """The number that a clause states: one after its verb, else its last; None for none and for several."""
    if _NOTHING_DOES.match(clause):
        return None
    if "ratio" in clause:
        clause = _RATIO_IN_WORDS.sub(":", clause)
    stated, other = [], []
    matches = _numbers(clause)
    for match in matches:
        before = clause[max(0, match.start() - 30) : match.start()]
        is_part = _UNFINISHED.match(clause, match.end()) or _REJECTED_NUMBER.match(clause, match.end())
        if is_part or _NEGATED.search(before) or ("=" in before and _UNSOLVED.search(before)):
            continue
        is_subject = _SUBJECT_BEFORE.search(before) and _SUBJECT_AFTER.match(clause, match.end())
        if is_subject or _STATES.search(before):
            stated.append(match)
        elif not _BESIDE.search(before):
            other.append(match)
    in_year = _IN_YEAR.search(clause) if len(matches) == 1 else None
    if in_year:
        return in_year[1]
    numbers = stated or other
    if not numbers or _OR_ANOTHER.match(clause, numbers[-1].end()):
        return None
    several = len({match[0].lower() for match in numbers}) > 1
    if several and (_EITHER.search(clause) or (stated and not _RESULT.search(clause))):
        return None
    return in_digits(numbers[-1][0].strip())


def _numbers(clause: str) -> list[re.Match[str]]:
    matches = [*_SPELLED.finditer(clause)]
    if _HAS_VALUE.search(clause):
        matches += (match for match in _EXPRESSION_OR_MIXED.finditer(clause) if _HAS_VALUE.search(match[0]))
    return sorted(matches, key=lambda match: match.start())


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


# Echoes -----------------------------------------------------------------------------------------------------------

_LISTED = re.compile(r"(?:^|(?<=\s))(?:\(([A-P])\)|([A-P])[.:)])\s{1,4}", re.M)
_CONTINUATION = re.compile(r"\n\s{0,4}(?:Question|Q|Choices|Options|Hint|User|Human)\s?:", re.I)


def without_echo(text: str, choices: Sequence[str]) -> str:
    """A text without the list of the options, where it repeats two or more of them from A on."""
    if sum(choice in text for choice in choices) < 2:
        return text
    labels = [
        (match.start(), match.end() + len(choices[index]), index)
        for match in _LISTED.finditer(text)
        if (index := LETTERS.index(match[1] or match[2])) < len(choices)
        and text.startswith(choices[index], match.end())
    ]
    kept, position = [], 0
    for (start, _, index), (_, end, following) in itertools.pairwise(labels):
        if following == index + 1:
            kept.append(text[position : max(position, start)])
            position = end
    return "".join([*kept, text[position:]])


def continuation(text: str) -> tuple[str, str]:
    """A text before the next question that the model went on to write, and from there on."""
    match = _CONTINUATION.search(text.lstrip()) if "\n" in text else None
    if match is None:
        return text, ""
    text = text.lstrip()
    return text[: match.start()], text[match.end() :]
