r"""What a text means when read as JSON or as a Python literal, without evaluating anything.

One recursive-descent reader for both spellings, because answers mix them (`{'a': (1, 2), "b": null}`) and so do the
benchmark's own columns. It reads each character once, to a limited depth; numbers are finite and of limited length.
"""

from __future__ import annotations

import math
import re
from typing import Any

MAX_CHARS = 1_000_000
SEARCHED_CHARS = 100_000  # from the end of a response
MAX_DEPTH = 40
MAX_NUMBER_CHARS = 300
MAX_STEPS = 100_000  # of a search through a response, all attempts together


class UnreadableLiteralError(ValueError):
    """The text is neither JSON nor a Python literal that this reader covers."""


def read_literal(text: str) -> Any:
    """The value of a text that is one literal: dict, list, tuple, set, string, number, true, false or None."""
    if len(text) > MAX_CHARS:
        raise UnreadableLiteralError(f"more than {MAX_CHARS} characters")
    reader = _Reader(text)
    value, end = reader.value(reader.skip(0), 0)
    if reader.skip(end) != len(text):
        raise UnreadableLiteralError(f"something follows the value at {end}")
    return value


def try_literal(text: str, default: Any = None) -> Any:
    try:
        return read_literal(text)
    except UnreadableLiteralError:
        return default


def find_literals(text: str) -> list[Any]:
    """The outermost dicts and lists in a text, in order. Gives up after a fixed amount of work."""
    reader = _Reader(text[-SEARCHED_CHARS:])
    literals, position = [], 0
    while (match := _OPENING.search(reader.text, position)) is not None and reader.steps < MAX_STEPS:
        try:
            value, position = reader.value(match.start(), 0)
            literals.append(value)
        except UnreadableLiteralError:
            position = match.end()
    return literals


def unquoted(value: Any) -> Any:
    """A string without the quotes that a model or the benchmark put around all of it; anything else as it is."""
    if not isinstance(value, str) or value.strip()[:1] not in ("'", '"'):
        return value
    inner = try_literal(value.strip())
    return inner if isinstance(inner, str) else value


def frozen(value: Any) -> Any:
    """The value as something hashable: dicts as sets of pairs, lists and tuples as tuples."""
    if isinstance(value, dict):
        return frozenset((key, frozen(inner)) for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(frozen(inner) for inner in value)
    return value


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


_OPENING = re.compile(r"[\[{]")
_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_WORD = re.compile(r"[A-Za-z]+")
_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_CLOSING = {"{": "}", "[": "]", "(": ")"}
_STRING = {q: re.compile(rf"{q}([^{q}\\]*+(?:\\.[^{q}\\]*+)*+)({q}?)", re.S) for q in "'\""}
_ESCAPE = re.compile(
    r"\\(?:(?:x(?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8}))"
    r"(?P<low>\\u[dD][c-fC-F][0-9a-fA-F]{2})?|(?P<name>.))",
    re.S,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "/": "/", "\n": ""}


class _Reader:
    """A text and how much of it has been read, counting what was read twice."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.steps = 0

    def skip(self, position: int) -> int:
        match = _SPACE.match(self.text, position)
        return match.end() if match else position

    def value(self, position: int, depth: int) -> tuple[Any, int]:
        if depth > MAX_DEPTH:
            raise UnreadableLiteralError(f"nested more than {MAX_DEPTH} deep")
        self.steps += 1
        character = self.text[position : position + 1]
        if character in _CLOSING:
            return self._group(position, depth, _CLOSING[character])
        if character in _STRING:
            return self._string(position, character)
        if match := _WORD.match(self.text, position):
            if match[0] in _WORDS:
                return _WORDS[match[0]], match.end()
            if match[0] == "set" and self.text.startswith("()", match.end()):
                return frozenset(), match.end() + 2
        elif match := _NUMBER.match(self.text, position):
            return _number(match[0]), match.end()
        raise UnreadableLiteralError(f"no value at {position}")

    def _group(self, position: int, depth: int, closing: str) -> tuple[Any, int]:
        items: list[Any] = []
        pairs: dict[Any, Any] = {}
        position = self.skip(position + 1)
        while not self.text.startswith(closing, position):
            item, position = self.value(position, depth + 1)
            position = self.skip(position)
            if closing == "}" and self.text.startswith(":", position) and not items:
                inner, position = self.value(self.skip(position + 1), depth + 1)
                pairs[frozen(item)] = inner
                position = self.skip(position)
            elif pairs:
                raise UnreadableLiteralError(f"no colon at {position}")
            else:
                items.append(item)
            has_comma = self.text.startswith(",", position)
            if has_comma:
                position = self.skip(position + 1)
            elif not self.text.startswith(closing, position):
                raise UnreadableLiteralError(f"neither a comma nor {closing} at {position}")
            elif closing == ")" and len(items) == 1:
                return item, position + 1  # (1) is a number in brackets, (1,) a tuple of one
        group = {"}": frozenset(map(frozen, items)) if items else pairs, "]": items, ")": tuple(items)}[closing]
        return group, position + 1

    def _string(self, position: int, quote: str) -> tuple[str, int]:
        match = _STRING[quote].match(self.text, position)
        assert match is not None
        self.steps += 1 + len(match[0]) // 16 + match[0].count("\\")
        if not match[2]:
            raise UnreadableLiteralError("a string without an end")
        return _ESCAPE.sub(_unescaped, match[1]), match.end()


def _unescaped(match: re.Match[str]) -> str:
    """The character that an escape stands for; where it stands for none, all of it stays.

    So do \b and \f, which JSON has for control characters: models mean \beta and \frac, and Python writes the control
    characters as \x08 and \x0c.
    """
    if match["name"] is not None:
        return _ESCAPES.get(match["name"], match[0])
    code, low = int(match["x"] or match["u"] or match["U"], 16), match["low"] or ""
    if 0xD800 <= code < 0xDC00 and low:  # JSON writes a character beyond 16 bits as two
        return chr(0x10000 + ((code - 0xD800) << 10) + int(low[2:], 16) - 0xDC00)
    return chr(code) + low if code <= 0x10FFFF and not 0xD800 <= code < 0xE000 else match[0]


def _number(text: str) -> int | float:
    if len(text) > MAX_NUMBER_CHARS:
        raise UnreadableLiteralError(f"a number of {len(text)} characters")
    text = text.replace("_", "")
    if re.fullmatch(r"[-+]?\d+", text):
        return int(text)
    value = float(text)
    if not math.isfinite(value):
        raise UnreadableLiteralError("a number without end")
    return value
