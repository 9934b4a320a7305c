r"""Where in a response the answer's fields are: the benchmark's response parsers, with our box in front.

A task asks for `Answer: ...` or a JSON object; the paper's protocol also asks for `\boxed{}`. The last box with
something in it wins, then what follows the last `Answer:`, then the whole response. All searches are linear.
"""

from __future__ import annotations

import re
from typing import Any

from atrl_bench.grading.extraction import last_boxed
from atrl_bench.grading.scorers.mega.literals import SEARCHED_CHARS, find_literals, try_literal, unquoted

SINGLE_FIELD_PARSERS = ("answer_string", "ascii_answer_string", "verbatim_answer_string")
PARSERS = (*SINGLE_FIELD_PARSERS, "json", "dummy")


def parse_fields(response: str, parser: str, names: list[str], *, one_line: bool) -> Any | None:
    """The fields of a response by name; for `dummy` its text; None when it should be JSON and is not.

    `one_line` says that the gold answer is a single line: a remark after the answer is then no part of it.
    """
    response = response[-SEARCHED_CHARS:]
    if parser == "dummy":
        return (_boxed(response) or response).strip()
    if parser == "json":
        return _json_object(response)
    verbatim = parser != "answer_string"
    answer = _answer(response, verbatim=verbatim, one_line=one_line)
    return dict.fromkeys(names[:1], answer)


def raw_answer(response: str) -> str:
    """The text that stands for every field when a response has no JSON object."""
    return _answer(response[-SEARCHED_CHARS:], verbatim=False, one_line=True)


_WRAPPED = re.compile(r"\\(?:text|mathrm|texttt|mathtt)\s*\{(.*)\}", re.S)
_ANSWER = re.compile(r"\banswer[ \t]{0,4}\*{0,2}[ \t]{0,4}:(?:[ \t]{0,4}\*\*)?", re.I)
_FENCE = re.compile(r"```[\w+-]*[ \t]*\n?(.*?)(?:\n[ \t]*)?```", re.S)
_SHORT = re.compile(r"[\w-]+(?:, *[\w-]+)*|[\w-]+\.|\([\w-]+\)")


def _boxed(response: str) -> str | None:
    boxed = last_boxed(response)
    if boxed is None:
        return None
    wrapped = _WRAPPED.fullmatch(boxed)
    return wrapped[1] if wrapped else boxed


def _answer(response: str, *, verbatim: bool, one_line: bool) -> str:
    answer = _boxed(response)
    if answer is None:
        stated = None
        for stated in _ANSWER.finditer(response):  # noqa: B007 - only the last one counts
            pass
        answer = response[stated.end() :] if stated else response
    fenced = _FENCE.search(answer)
    if fenced:
        answer = fenced[1]
    if verbatim:
        return answer.strip("\n") if fenced else answer.strip("\r\n").rstrip()
    answer = answer.strip()
    if not fenced:
        answer = re.sub(r"\*\*$", "", answer).strip()
        first, _, rest = answer.partition("\n\n")
        if one_line and rest and _SHORT.match(first) and "\n" not in first.strip():
            answer = first.strip()
    return str(unquoted(answer))


def _json_object(response: str) -> dict[str, Any] | None:
    boxed = _boxed(response)
    for text in (boxed, response):
        if text is None:
            continue
        # LaTeX braces inside the box: \{"a": 1\}.
        whole = try_literal(text.replace("\\{", "{").replace("\\}", "}").strip())
        objects = (
            [whole] if isinstance(whole, dict) else [item for item in find_literals(text) if isinstance(item, dict)]
        )
        if objects and objects[-1]:
            return {str(name): unquoted(value) for name, value in objects[-1].items()}
    return None
