r"""Where in a response the answer is: the last balanced `\boxed{}`, or what the response offers instead.

The paper (appendix, evaluation protocol) takes the last `\boxed{}` and falls back to a search of the whole text for an
option letter or a number. In between stand the two other places where models write an answer when asked to: the text
after "the answer is", and `<answer>` tags. Every search reads the text once, so even a megabyte of braces is quick.
"""

from __future__ import annotations

import re

LETTERS = "ABCDEFGHIJKLMNOP"  # as many options as any benchmark here has
SEARCHED_CHARS = 100_000  # 4,096 tokens are a fifth of it
MAX_WORDS = 12  # a longer last line is a sentence about the answer
FALLBACK_CHARS = 4000  # without a box, the answer stands near the end or nowhere


def extract_answer(response: str, *, num_choices: int = 0, words: bool = False) -> str | None:
    """Return the answer a response gives; with `num_choices`, the first so many letters can be one.

    The order: the last balanced box with something in it, the last `<answer>` tag, the last "answer is", then an option
    letter that stands as an option (not the pronoun I, the article A or a vertex of a triangle), then all of a short
    response, then the last number. Where the answer is to be `words`, a short last line stands for the last two.
    """
    tail = response[-FALLBACK_CHARS:]
    stated = last_boxed(response[-SEARCHED_CHARS:])
    if stated is None:
        stated = _last_tagged(tail) or _last_stated(tail) or _last_letter(tail, num_choices)
    if stated is not None:
        return stated
    if words:
        lines = [line.strip(_PADDING) for line in tail.splitlines() if line.strip(_PADDING)]
        return lines[-1] if lines and len(lines[-1].split()) <= MAX_WORDS else None
    bare = tail.strip(" \t\r\n*$`")
    is_short = len(response) <= 60 and "\n" not in bare and len(bare.split()) <= 3 and any(map(str.isalnum, bare))
    return bare if is_short else _last_number(tail)


# Boxes ------------------------------------------------------------------------------------------------------------

_BRACE = re.compile(r"\\(?:boxed|fbox)\s{0,8}(?P<open>\{)|\\[{}\\]|[{}]")


def last_boxed(text: str) -> str | None:
    r"""Return what the last balanced, non-empty `\boxed{}` or `\fbox{}` holds; of nested boxes the innermost.

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
_PHRASE = re.compile(
    r"\banswers?\b[\s*_]{0,4}(?:is|are|was|would\s+be|should\s+be|must\s+be|[:=：])+[\s*_:：]{0,4}"
    r"|\bcorrect\s+(?:option|choice)\b[\s*_]{0,4}(?:is|[:=：])+[\s*_:：]{0,4}"
    r"|(?:答案|选项|选)\s{0,4}(?:是|为|：|:)+[\s*]{0,4}",
    re.I,
)
# "Dr. Pepper" and "St. Louis" are answers; "No." is one too, and ends there.
_SENTENCE_END = re.compile(
    r"\n|(?<!\bDr)(?<!\bMr)(?<!\bMrs)(?<!\bMs)(?<!\bSt)(?<!\bMt)(?<!\bvs)[.。!！?？;；](?=\s|$|\*)|</|，(?=所以|因)"
)
_PADDING = " \t\r\n*_`\"'"


def _last_tagged(text: str) -> str | None:
    tagged = _TAG.findall(text) or _UNCLOSED_TAG.findall(text)
    texts = [inner.strip(_PADDING) for inner in tagged]
    return next((inner for inner in reversed(texts) if inner), None)


def _last_stated(text: str) -> str | None:
    for match in reversed(list(_PHRASE.finditer(text))):
        # "The answer is:" and the answer on the next line, perhaps between \[ and \].
        rest = text[match.end() :].lstrip(_PADDING)
        display = re.match(r"(?:\\\[|\$\$)\s*(.{1,200}?)\s*(?:\\\]|\$\$)", rest, re.S)
        if display:
            return display[1]
        end = _SENTENCE_END.search(rest)
        stated = rest[: end.start() if end else None].strip(_PADDING)
        if stated and any(map(str.isalnum, stated)):
            return stated[:400]
    return None


# An option stands in brackets, in bold, alone on its line or before its text there, or after a word that announces it.
_LETTER_PATTERNS = (
    r"(?i:option|choice)\s{0,2}:?\s{0,2}[(*]{0,3}([A-P])\b",
    r"(?i:select|choose|pick)\s{0,2}:?\s{0,2}[(*]{0,3}([A-P])\b(?!\s[a-z])",
    r"\*\*\(?([A-P])\)?[.:)]?\*\*",
    r"^\s{0,4}[(*\[]{0,3}([A-P])[)*\].:]{0,3}\s{0,4}$",
    r"^\s{0,4}([A-P])[.:)]\s",
    r"(?:^|\s)\(([A-P])\)(?!\w)",
    r"\b(?:so|therefore|thus|hence),?\s{1,2}([B-HJ-P])[.\s]*$",
)
_LETTER = tuple(re.compile(pattern, re.M) for pattern in _LETTER_PATTERNS)


def _last_letter(text: str, num_choices: int) -> str | None:
    if not num_choices:
        return None
    ends = [(match.end(), match[1]) for pattern in _LETTER for match in pattern.finditer(text)]
    return max((end for end in ends if end[1] in LETTERS[:num_choices]), default=(0, None))[1]


_NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
_ATOM = (
    rf"(?:\\?sqrt\s?[({{]\s?(?:{_NUMBER})\s?[)}}]|√\s?[({{]?\s?(?:{_NUMBER})\s?[)}}]?"
    rf"|\\[dt]?frac\s?\{{[^{{}}]{{1,40}}\}}\s?\{{[^{{}}]{{1,40}}\}}|\\?pi\b|π|{_NUMBER})"
)
_EXPRESSION = re.compile(rf"(?<![\w.\\])[-−]?{_ATOM}(?:\s?[*/·×]\s?{_ATOM}|(?<!\d){_ATOM}|(?=[√π\\s]){_ATOM})*\s?%?")


def _last_number(text: str) -> str | None:
    last = None
    for last in _EXPRESSION.finditer(text):  # noqa: B007 - only the last one counts
        pass
    return last[0].strip() if last else None


_CHANGES_A_NUMBER = re.compile(
    r"\b(?:not|no|never|or|and|minus|negative|than|half|hundred|thousand|[mb]illion|dozen|squared|cubed|by|to"
    r"|at\s+(?:least|most))\b|\b(?:over|under|below|above|beyond)\s+[$≈]?\s?(?=[\d.√π\\-])|n't",
    re.I,
)

# Neither formula, code nor a list. One class, not a group in a group: that takes time 2^n over a row of dots.
_PLAIN_WORDING = re.compile(r"(?:[^\W\d_]|[\s.,:'°%$≈*-])*")


def sole_number(text: str) -> str | None:
    """Return the number in a wording that contains exactly one, and no word that makes another number of it."""
    numbers = list(_EXPRESSION.finditer(text))
    if len(numbers) != 1 or _CHANGES_A_NUMBER.search(text):
        return None
    around = text[: numbers[0].start()] + text[numbers[0].end() :]
    return numbers[0][0].strip() if _PLAIN_WORDING.fullmatch(around) else None
