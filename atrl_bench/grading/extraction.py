r"""Where in a response the answer is: the last balanced `\boxed{}`, or what the response offers instead.

The paper (appendix, evaluation protocol) takes the last `\boxed{}` and falls back to a search of the whole text for an
option letter or a number. The order here: the box; an `<answer>` tag; what follows the last "the answer is", "correct
option:", "答案是"; the option that the last statement names, by letter or text; the number of the last statement, with
its unit; else none, and the judge's turn, where there is one. Every search reads the text once, so even a megabyte of
braces is quick.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from atrl_bench.grading.answer_parser import Bracketed, Quantity, parse
from atrl_bench.grading.numbers_in_text import stated_number
from atrl_bench.grading.options import lone_letter, named_options
from atrl_bench.grading.prose import HYPOTHETICAL, SENTENCE_END, clauses, refuses, sentences, stated_option
from atrl_bench.grading.spelling import in_digits
from atrl_bench.models.templates import LETTERS

SEARCHED_CHARS = 100_000  # 4,096 tokens are a fifth of it
FALLBACK_CHARS = 4000  # without a box, the answer stands near the end or nowhere
MAX_WORDS = 12  # a longer last line is a sentence about the answer
MAX_BARE_WORDS = 3  # a longer text is prose
MAX_OPTION_CHARS = 400  # no option is longer
MAX_LABEL_CHARS = 16  # around an option: "The option (B): "
MAX_FORMULA_CHARS = 200  # in a sentence


def extract_answer(
    response: str, *, choices: Sequence[str] = (), num_choices: int = 0, words: bool = False
) -> str | None:
    """The answer a response gives: in `words`, or also one of the first `num_choices` letters."""
    tail = response[-FALLBACK_CHARS:]
    marked = last_boxed(response[-SEARCHED_CHARS:]) or _last_tagged(tail)
    if marked is not None:
        return _ITEM_OF_LIST.sub(r"\2", marked) if choices else marked
    if words:
        return _last_stated(tail) or _short_last_line(tail)
    if cut_box := _CUT_BOX.search(tail):
        content = cut_box[1].strip(_PADDING + "$.")
        is_whole = cut_box[1].rstrip().endswith((".", "$")) or lone_letter(parse(content), num_choices)
        return content if content and is_whole else None
    for text in _parts(tail):
        answer = _read_option(_without_echo(text, choices), choices, num_choices) if num_choices else _read_value(text)
        if answer:
            return answer
    return None


# `\{` and `\}` are braces of sets, not of groups.
_BRACE = re.compile(r"\\(?:boxed|fbox)\s{0,8}(?P<open>\{)|\\[{}\\]|[{}]")


def last_boxed(text: str) -> str | None:
    r"""What the last balanced, non-empty box holds, of nested ones the innermost; one that was cut off is no box."""
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


def _parts(text: str) -> list[str]:
    """Beside a question, once more or the next one, the part that says what the answer is; both, where neither does."""
    match = _QUESTION.search(text.lstrip())
    if match is None:
        return [text]
    own, rest = text.lstrip()[: match.start()], text.lstrip()[match.end() :]
    if _last_stated(own) or len(own.split()) <= MAX_BARE_WORDS:
        return [own]
    return [rest] if _last_stated(rest) else [own, rest]


def _read_option(text: str, choices: Sequence[str], num_choices: int) -> str | None:
    parsed = [parse(choice) for choice in choices]

    def names_one(text: str) -> bool:
        answer = parse(text)
        letter, matching = named_options(answer, parsed, num_choices)
        return letter is not None or bool(matching) or answer.value in [c.value for c in parsed if c.value]

    stated = _last_stated(text)
    if stated:
        stated = _ITEM_OF_LIST.sub(r"\2", stated)
        if names_one(stated):
            return stated
        if named := stated_option(stated, choices, num_choices):
            return named
    prefix = _PREFIX.match(text)
    if prefix and (answer := _read_option(text[prefix.end() :], choices, num_choices)) and names_one(answer):
        return answer
    bare = text.strip(_PADDING + "$")
    longest = MAX_LABEL_CHARS + max(map(len, choices), default=0)
    is_option = len(bare) <= longest or _BEGINS_WITH_LETTER.match(bare)
    if is_option and 0 < len(bare) <= MAX_OPTION_CHARS and not _SAYS_WHAT_IS.match(bare) and names_one(bare):
        return bare
    for sentence in sentences(text):
        if refuses(sentence):
            return stated_option(sentence, [choice for choice in choices if refuses(choice)], 0)
        if (named := stated_option(sentence, choices, num_choices)) is not None:
            return named or None
    return stated or _last_number(text)


def _read_value(text: str) -> str | None:
    if stated := _last_stated(text):
        is_whole = len(stated.split()) <= MAX_BARE_WORDS or _NO_SENTENCE.search(stated) or parse(stated).sole_number
        return stated if is_whole else _stated_value(stated) or stated
    bare = text.strip(" \t\r\n*$`")
    if _is_bare(bare):
        return in_digits(bare)
    return _last_number(text)


def _is_bare(text: str) -> bool:
    """Whether a text is an answer and nothing else: at most three words, no sentence around a number."""
    if len(text.split()) > MAX_BARE_WORDS or "\n" in text or not any(map(str.isalnum, text)) or text[-1] == ":":
        return False
    return not _DIGIT.search(text) or isinstance(parse(text).value, Quantity) or not _LONG_WORD.search(text)


def _last_number(text: str) -> str | None:
    stating = (sentence for sentence in sentences(text) if not refuses(sentence) and not HYPOTHETICAL.search(sentence))
    return next(filter(None, map(_stated_value, stating)), None)


def _stated_value(sentence: str) -> str | None:
    """What a sentence states: all that follows its verb where that is mathematics, else its number."""
    return next(filter(None, map(_value_of, clauses(sentence))), None)


def _value_of(sentence: str) -> str | None:
    sentence = _DELIMITER.sub(" ", sentence)
    complement = ((")" in sentence or "]" in sentence) and _TUPLE.fullmatch(sentence)) or _COMPLEMENT.fullmatch(
        sentence
    )
    rest = (complement[1] if complement else sentence).strip(_PADDING + "$.</")
    if len(rest) <= MAX_FORMULA_CHARS and _DIGIT.search(rest) and _MATHEMATICS.fullmatch(rest):
        if _UNSOLVED.search(rest):
            return None
        if _CALCULATION.match(rest):
            rest = rest.rpartition("=")[2].strip(" $")
        value = parse(rest).value
        items = value.items if isinstance(value, Bracketed) and len(value.items) > 1 else (value,)
        if all(isinstance(item, Quantity) for item in items) or _INEQUALITY.search(rest):
            return rest
        return stated_number(sentence) or (rest if _EQUATION.match(rest) else None)
    is_sum = "=" not in rest and _SUM.search(rest) and isinstance(parse(rest).value, Quantity)  # 16 − 4π square units
    return rest if is_sum else stated_number(sentence)


def _short_last_line(text: str) -> str | None:
    lines = [line.strip(_PADDING) for line in text.splitlines() if line.strip(_PADDING)]
    return lines[-1] if lines and len(lines[-1].split()) <= MAX_WORDS else None


def _without_echo(text: str, choices: Sequence[str]) -> str:
    """A text without the list of the options, where it repeats two or more of them from A on."""
    if sum(choice in text for choice in choices) < 2:
        return text
    first, second, *others = (
        rf"(?:\({letter}\)|{letter}[.:)])\s{{1,4}}{re.escape(choice)}"
        for letter, choice in zip(LETTERS, choices, strict=False)
    )
    between = r"\s{0,9}(?:\S{1,9}\s{1,9})?"  # "and" at most
    more = ""
    for option in reversed(others):
        more = f"(?:{between}{option}{more})?"
    return re.sub(rf"(?<!\S){first}{between}{second}{more}", "", text)


def _last_tagged(text: str) -> str | None:
    if "<" not in text:
        return None
    texts = [inner.strip(_PADDING) for inner in _TAG.findall(text) or _UNCLOSED_TAG.findall(text)]
    return next((inner for inner in reversed(texts) if inner), None)


def _last_stated(text: str) -> str | None:
    for match in reversed(list(_PHRASE.finditer(text))):
        # "The answer is:" and the answer on the next line, perhaps between \[ and \].
        rest = text[match.end() :].lstrip(_PADDING)
        if display := _DISPLAY.match(rest):
            return display[1]
        end = SENTENCE_END.search(rest)
        stated = rest[: end.start() if end else None].strip(_PADDING)
        if stated and any(map(str.isalnum, stated)):
            return stated[:400]
    return None


_PADDING = " \t\r\n*_`\"'"
_TAG = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.S | re.I)
_UNCLOSED_TAG = re.compile(r"<answer>([^<]*)\Z", re.I)
_CUT_BOX = re.compile(r"\\boxed\s?\{([^{}]{0,200})\Z")
_QUESTION = re.compile(r"\n\s{0,4}(?:Question|Q|Choices|Options|Hint|User|Human)\s?:", re.I)
_PREFIX = re.compile(r"\s*(?:Q:[^\n]{0,400}\n\s*)?(?:A:\s+)+(?=\S)")
_ITEM_OF_LIST = re.compile(r"\A\[\s?(['\"])(.*?)\1\s?\]\Z")
_BEGINS_WITH_LETTER = re.compile(r"\W*(?:(?:option|choice|answer)\W*)?[A-P]\b", re.I)
_SAYS_WHAT_IS = re.compile(r"[A-P] is\b")  # "D is the midpoint of AC."
_COMPLEMENT = re.compile(
    r".*(?:\b(?:is|are|was|were|be|equals|at|an?\s\w+\sof)\s+(?:at\s+)?|[为是]\s?)(.+)", re.S | re.I
)
_TUPLE = re.compile(r".*(?<![A-Za-z])([(\[][^()\[\]]{1,60},[^()\[\]]{1,60}[)\]])[\s.$*]*", re.S)
_DELIMITER = re.compile(r"\\[()\[\]]")
_INEQUALITY = re.compile(r"[<>≤≥∈]|\\(?:[lg]eq?|in)\b")
_MATHEMATICS = re.compile(r"(?:\\[A-Za-z]+|[A-Za-z](?![A-Za-z])|[^A-Za-z\n一-鿿])+")  # no word of two letters
_UNSOLVED = re.compile(r"(?:[a-z]\s?\^|[a-z]\s?[-+*]|\d[a-z])[^=]*=\s?[\d.]+\Z")  # x^2 + y^2 = 16
_CALCULATION = re.compile(r"[^A-Za-z=]*\d[^A-Za-z=]*[-−+*/×÷][^A-Za-z]*=")  # $1,485 − $171 = $1,314
_SUM = re.compile(r"\s[-−+]\s")
_EQUATION = re.compile(r"[A-Za-z]\w?\s?=")  # y = 3x + 2
_DIGIT = re.compile(r"\d")
_NO_SENTENCE = re.compile(r"[\\()\[\]{}｛｝≈]|\b(?:or|and)\b")
_LONG_WORD = re.compile(r"[A-Za-z]{4}|[一-鿿]")
_PHRASE = re.compile(
    r"\banswers?\b(?:\s+to\s[^.\n]{1,60}?)??[\s*_]{0,4}(?:is|are|was|would\s+be|should\s+be|must\s+be|[:=：])+[\s*_:：]{0,4}"
    r"|\b(?:correct|right|best)\s+(?:option|choice|figure|letter|one|image|picture)(?:\s+letter)?\b[\s*_]{0,4}(?:is|[:=：])+[\s*_:：]{0,4}"
    r"|(?:答案|选项|选)\s{0,4}(?:是|为|：|:)+[\s*]{0,4}",
    re.I,
)
_DISPLAY = re.compile(r"(?:\\\[|\$\$)\s*(.{1,200}?)\s*(?:\\\]|\$\$)", re.S)
