"""Where a question shows its images and videos: `<image>` and `<video>` in its text, as datasets write them.

A mark within the question becomes its image at that place. Marks that open the question say no more than that there
are images: these stand before everything, as those of a set without marks do, also before the template's own words.
Where there are fewer marks than images, the images keep their order and the first of them open the turn.
"""

from __future__ import annotations

import re
from typing import Any

KINDS = ("image", "video")
MARK = re.compile(rf"<({'|'.join(KINDS)})>")
OPENING_MARKS = re.compile(rf"\A(?:\s*{MARK.pattern})+")


def without_opening_marks(question: str) -> str:
    """The question without the marks before its first word; those within it stay."""
    return OPENING_MARKS.sub("", question).strip()


def num_marks(question: str, kind: str) -> int:
    """How many images, or videos, the question has a place for."""
    return MARK.findall(question).count(kind)


def content_with_media(text: str, num_media: dict[str, int]) -> list[dict[str, Any]]:
    """A chat turn: so many images and videos, those with a mark in its place and the others before the text."""
    first = [{"type": kind} for kind in KINDS for _ in range(num_media[kind] - num_marks(text, kind))]
    # A text split at its marks alternates between words and the kinds of the marks between them.
    parts = MARK.split(text)
    within = [{"type": part} if index % 2 else {"type": "text", "text": part} for index, part in enumerate(parts)]
    return [*first, *(part for part in within if part.get("text") != "")]
