r"""Brackets: the last `\boxed{}` of a text, where answers are asked to stand, and how deep each character is."""

from __future__ import annotations

import re
from itertools import accumulate

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


def depths(text: str) -> list[int]:
    """In how many brackets each character of a text stands; a closing one is outside of its own."""
    return list(accumulate((char in "([｛{") - (char in ")]｝}") for char in text))
