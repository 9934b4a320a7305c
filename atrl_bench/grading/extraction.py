r"""Where in a response the answer is: the last balanced `\boxed{}`, or what the response offers instead.

The paper (appendix, evaluation protocol) takes the last `\boxed{}` and falls back to a search of the whole text for an
option letter or a number. Here that search is for the sentence that states the answer (`prose`), and between the two
stand `<answer>` tags. Every search reads the text once, so even a megabyte of braces is quick.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from atrl_bench.grading import prose
from atrl_bench.grading.answer_parser import Bracketed, Quantity, Words, parse
from atrl_bench.grading.options import lone_letter, named_options
from atrl_bench.grading.prose import SENTENCE_END, Guarded

SEARCHED_CHARS = 100_000  # 4,096 tokens are a fifth of it
MAX_WORDS = 12  # a longer last line is a sentence about the answer
MAX_OPTION_CHARS = 400  # no option is longer
MAX_LABEL_CHARS = 16  # around an option: "The option (B): "
MAX_FORMULA_CHARS = 200  # in a sentence
MAX_BARE_WORDS = 3  # a longer text is prose
FALLBACK_CHARS = 4000  # without a box, the answer stands near the end or nowhere


def extract_answer(
    response: str, *, choices: Sequence[str] = (), num_choices: int = 0, words: bool = False
) -> str | None:
    """The answer a response gives; with `num_choices`, the first so many letters can be one.

    The order: the last balanced box with something in it, the last `<answer>` tag, then what the prose states. Prose
    that goes on to a next question, which nobody asked, is read up to there. Where the answer is to be `words`, it is
    the text after the last "answer is" or a short last line.
    """
    tail = response[-FALLBACK_CHARS:]
    marked = last_boxed(response[-SEARCHED_CHARS:])
    if marked is None:
        marked = _last_tagged(tail)
    if marked is not None:
        return _ITEM_OF_LIST.sub(r"\2", marked) if choices else marked
    if words:
        return _last_stated(tail) or _short_last_line(tail)
    options = _Choices(choices, num_choices)
    cut_box = _CUT_BOX.search(tail) if "box" in tail else None
    if cut_box:
        content = cut_box[1].strip(_PADDING + "$.")
        is_whole = cut_box[1].rstrip().endswith((".", "$")) or options.letter(content)
        return content if content and is_whole else None
    own, rest = prose.continuation(tail)
    is_short = len(response) <= 60
    return _read_prose(own, options, is_short) or (_read_prose(rest, options, is_short=False) if rest else None)


class _Choices(NamedTuple):
    """The options of a question, or only how many there are, and what names one of them."""

    choices: Sequence[str]
    num_choices: int

    def letter(self, text: str) -> bool:
        return lone_letter(parse(text), self.num_choices) is not None

    def are_named_by(self, text: str) -> bool:
        """Whether a text names an option, and does nothing else."""
        answer = parse(text)
        parsed = [parse(choice) for choice in self.choices]
        letter, matching = named_options(answer, parsed, self.num_choices)
        return (
            letter is not None or bool(matching) or answer.value in [choice.value for choice in parsed if choice.value]
        )


def _read_prose(text: str, options: _Choices, is_short: bool) -> str | None:
    text = prose.without_echo(text, options.choices)
    prefix = _PREFIX.match(text) if "A:" in text else None
    if prefix:
        answer = _read(text[prefix.end() :], options, is_short)
        if not options.num_choices or (answer and options.are_named_by(answer)):
            return answer
    return _read(text, options, is_short)


def _read(text: str, options: _Choices, is_short: bool) -> str | None:
    return _read_option(text, options, is_short) if options.num_choices else _read_value(text, is_short)


def _read_option(text: str, options: _Choices, is_short: bool) -> str | None:
    """What names an option: after "the answer is", else in the last sentence that names one."""
    stated = _last_stated(text)
    if stated:
        stated = _ITEM_OF_LIST.sub(r"\2", stated)
        if options.are_named_by(stated):
            return stated
        named = prose.stated_option(stated, options.choices) or prose.last_letter(stated, options.num_choices)
        if named:
            return named
    explained = "\n" in text and _EXPLAINED.match(text)
    if explained and options.are_named_by(explained[1]):
        return explained[1]
    bare = text.strip(_PADDING + "$")
    longest = MAX_LABEL_CHARS + max(map(len, options.choices), default=0)
    is_option = len(bare) <= longest or _BEGINS_WITH_LETTER.match(bare)
    if is_option and 0 < len(bare) <= MAX_OPTION_CHARS and not _SAYS_WHAT_IS.match(bare) and options.are_named_by(bare):
        return bare
    for sentence in prose.sentences(text):
        if prose.refuses(sentence):
            return prose.stated_option(sentence, [choice for choice in options.choices if prose.refuses(choice)])
        named = prose.last_letter(sentence, options.num_choices) or prose.stated_option(sentence, options.choices)
        if named:
            return named
    return stated or _bare(text, is_short) or _last_number(text)


def _read_value(text: str, is_short: bool) -> str | None:
    stated = _last_stated(text)
    if stated:
        return (_stated_value(stated) or stated) if _is_sentence(stated) else stated
    explained = "\n" in text and _EXPLAINED.match(text)
    if explained and _is_value(explained[1]):
        return explained[1]
    return _bare(text, is_short) or _last_number(text)


def _bare(text: str, is_short: bool) -> str | None:
    bare = text.strip(" \t\r\n*$`")
    if not is_short or "\n" in bare or not any(map(str.isalnum, bare)) or bare.endswith(":"):
        return None
    is_sentence = len(bare.split()) > MAX_BARE_WORDS or (_TWO_WORDS.match(bare) and prose.stated_number(bare))
    return None if is_sentence or _CHINESE_SENTENCE.search(bare) else bare


def _short_last_line(text: str) -> str | None:
    lines = [line.strip(_PADDING) for line in text.splitlines() if line.strip(_PADDING)]
    return lines[-1] if lines and len(lines[-1].split()) <= MAX_WORDS else None


def _last_number(text: str) -> str | None:
    stating = (
        sentence
        for sentence in prose.sentences(text)
        if not prose.is_hypothetical(sentence) and not prose.refuses(sentence)
    )
    return next(filter(None, map(_stated_value, stating)), None)


def _stated_value(sentence: str) -> str | None:
    """What a sentence states: all that follows its verb where that is mathematics, else its number."""
    return next(filter(None, map(_value_of, prose.clauses(sentence))), None)


def _value_of(clause: str) -> str | None:
    clause = _DELIMITER.sub(" ", clause)
    left, _, right = clause.partition(" or ")
    if right and left.endswith(right.strip(_PADDING + "$.")):
        clause = left  # said twice
    complement = ((")" in clause or "]" in clause) and _TUPLE.fullmatch(clause)) or _COMPLEMENT.fullmatch(clause)
    rest = (complement[1] if complement else clause).strip(_PADDING + "$.</")
    if len(rest) > MAX_FORMULA_CHARS or not _DIGIT.search(rest) or not _MATHEMATICS.fullmatch(rest):
        if "=" not in rest and _DIFFERENCE.search(rest) and isinstance(parse(rest).value, Quantity):
            return rest  # 16 − 4π square units
        return prose.stated_number(clause)
    if _is_value(rest) or _INEQUALITY.search(rest):
        return rest
    return prose.stated_number(clause) or (rest if "=" in rest else None)


def _is_value(text: str) -> bool:
    value = parse(text).value
    values = value.items if isinstance(value, Bracketed) and len(value.items) > 1 else (value,)
    return all(isinstance(item, Quantity) for item in values)


def _is_sentence(stated: str) -> bool:
    """Whether what follows "the answer is" is wording around a number, and no value, formula or list."""
    if len(stated.split()) <= MAX_BARE_WORDS or len(_LONG_WORD.findall(stated)) < 2 or _NO_SENTENCE.search(stated):
        return False
    answer = parse(stated)
    return answer.sole_number is None and (answer.value is None or isinstance(answer.value, Words))


# Boxes ------------------------------------------------------------------------------------------------------------

_BRACE = re.compile(r"\\(?:boxed|fbox)\s{0,8}(?P<open>\{)|\\[{}\\]|[{}]")


def last_boxed(text: str) -> str | None:
    r"""What the last balanced, non-empty `\boxed{}` or `\fbox{}` holds; of nested boxes the innermost.

    A box that the token limit cut off is not balanced and counts for nothing. `\{` and `\}` are braces of sets, not of
    groups.
    """
    if "box" not in text:
        return None
    open_groups: list[int] = []  # where a box's content starts; -1 for any other group
    best: tuple[int, int] | None = None
    for match in _BRACE.finditer(text):
        if match["open"]:
            open_groups.append(match.end())
        elif match[0] == "{":
            open_groups.append(-1)
        elif match[0] == "}" and open_groups:
            start = open_groups.pop()
            if start >= 0 and (best is None or start > best[0]) and text[start : match.start()].strip(" \n\t$*"):
                best = start, match.start()
    return text[best[0] : best[1]].strip() if best else None


# Fallbacks --------------------------------------------------------------------------------------------------------

_TAG = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.S | re.I)
_UNCLOSED_TAG = re.compile(r"<answer>([^<]*)\Z", re.I)
_CUT_BOX = re.compile(r"\\boxed\s?\{([^{}]{0,200})\Z")
_PREFIX = re.compile(r"\s*(?:Q:[^\n]{0,400}\n\s*)?A:\s+(?=\S)")
# An answer alone on the first line, then why, and no other conclusion.
_EXPLAINED = re.compile(
    r"\s*(?:[a-z] ?= ?)?([^\n=:]{1,60})\n\s*(?:since|because|explanation|the reason)\b"
    r"(?!.*\b(?:so|therefore|thus|hence)\b)",
    re.S | re.I,
)
_ITEM_OF_LIST = re.compile(r"\A\[\s?(['\"])(.*?)\1\s?\]\Z")
_CHINESE_SENTENCE = re.compile(r"[为是有约得选]|正确|错误|[一-鿿]{4}.*\d|[一-鿿].*[，：；∴=]|[，：；∴=].*[一-鿿]")
_COMPLEMENT = re.compile(
    r".*(?:\b(?:is|are|was|were|be|equals|at|an?\s\w+\sof)\s+(?:at\s+)?|[为是]\s?)(.+)", re.S | re.I
)
_TUPLE = re.compile(r".*(?<![A-Za-z])([(\[][^()\[\]]{1,60},[^()\[\]]{1,60}[)\]])[\s.$*]*", re.S)
_DELIMITER = re.compile(r"\\[()\[\]]")
_INEQUALITY = re.compile(r"[<>≤≥∈]|\\(?:[lg]eq?|in)\b")
_MATHEMATICS = re.compile(r"(?:\\[A-Za-z]+|[A-Za-z](?![A-Za-z])|[^A-Za-z\n一-鿿])+")  # no word of two letters
_TWO_WORDS = re.compile(r"[A-Za-z]{2,}\s[a-z]{2,}\s")  # "Ellen needs $5."
_BEGINS_WITH_LETTER = re.compile(r"\W*(?:(?:option|choice|answer)\W*)?[A-P]\b", re.I)
_SAYS_WHAT_IS = re.compile(r"[A-P] is\b")  # "D is the midpoint of AC."
_DIFFERENCE = re.compile(r"\s[-−+]\s")
_DIGIT = re.compile(r"\d")
_LONG_WORD = re.compile(r"[A-Za-z]{4,}")
_NO_SENTENCE = re.compile(r"[\\()\[\]{}｛｝≈]|\b(?:or|and)\b")
_PHRASE = Guarded(
    r"\banswers?\b(?:\s+to\s[^.\n]{1,60}?)??[\s*_]{0,4}(?:is|are|was|would\s+be|should\s+be|must\s+be|[:=：])+[\s*_:：]{0,4}"
    r"|\b(?:correct|right|best)\s+(?:option|choice|figure|letter|one|image|picture)(?:\s+letter)?\b[\s*_]{0,4}(?:is|[:=：])+[\s*_:：]{0,4}"
    r"|(?:答案|选项|选)\s{0,4}(?:是|为|：|:)+[\s*]{0,4}",
    words="answer|correct|right|best|答案|选",
)
_DISPLAY = re.compile(r"(?:\\\[|\$\$)\s*(.{1,200}?)\s*(?:\\\]|\$\$)", re.S)
_PADDING = " \t\r\n*_`\"'"


def _last_tagged(text: str) -> str | None:
    if "<" not in text:
        return None
    tagged = _TAG.findall(text) or _UNCLOSED_TAG.findall(text)
    texts = [inner.strip(_PADDING) for inner in tagged]
    return next((inner for inner in reversed(texts) if inner), None)


def _last_stated(text: str) -> str | None:
    for match in reversed(list(_PHRASE.finditer(text))):
        # "The answer is:" and the answer on the next line, perhaps between \[ and \].
        rest = text[match.end() :].lstrip(_PADDING)
        display = _DISPLAY.match(rest)
        if display:
            return display[1]
        end = SENTENCE_END.search(rest)
        stated = rest[: end.start() if end else None].strip(_PADDING)
        if stated and any(map(str.isalnum, stated)):
            return stated[:400]
    return None
