"""How the credit of tokens is shown, on pages and in figures: one scale for all responses, one rule for the top 15 %.

Credit has mean one over a response. It is shown from 0 to 2, in one colour below 1 and another above, so that credit
that hardly differs looks as it is. The tokens that the paper calls anchors are exactly 15 % of a response, or none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

Tokens = Sequence[tuple[str, float]]  # the pieces of a response, in order, each with its credit
ANCHOR_FRACTION = 0.15  # of the tokens: the paper's threshold
LEVELS = 5  # of shading on each side of 1
READING = re.compile(r"The image shows ([^.]*)")  # what the answers of generated worlds begin with


@dataclass(frozen=True)
class Piece:
    """A piece of a response, its level from -5 (no credit) over 0 (credit 1) to 5 (2 or more), and what it is known as.

    `is_top` for the 15 % with the most credit, `is_anchor` for what is known to be read from the image.
    """

    text: str
    level: int
    is_top: bool
    is_anchor: bool = False


def num_top(num_tokens: int) -> int:
    return max(1, round(ANCHOR_FRACTION * num_tokens))


def top_tokens(credit_T: Sequence[float]) -> frozenset[int]:
    """The places of the 15 % of the tokens with the most credit, none where the last of them ties with the next.

    All tokens of a cluster have the same credit, so a tie is common; to choose among equals would invent a difference.
    """
    count = num_top(len(credit_T))
    order = sorted(range(len(credit_T)), key=lambda t: -credit_T[t])
    if len(order) <= count or credit_T[order[count - 1]] == credit_T[order[count]]:
        return frozenset()
    return frozenset(order[:count])


def level(credit: float) -> int:
    """The shade of a credit: 0 for one, `LEVELS` for two or more, `-LEVELS` for nothing."""
    return max(-LEVELS, min(LEVELS, round(LEVELS * (credit - 1))))


def shaded(tokens: Tokens, *, has_known_anchors: bool = False) -> tuple[Piece, ...]:
    """The pieces with their shade; with `has_known_anchors` the response is that of a generated world."""
    top = top_tokens([value for _, value in tokens])
    listing = READING.search("".join(text for text, _ in tokens)) if has_known_anchors else None
    pieces, start = [], 0
    for t, (text, value) in enumerate(tokens):
        end = start + len(text)
        is_anchor = (
            listing is not None
            and start < listing.end(1)
            and end > listing.start(1)
            and any(character.isdigit() for character in text)
        )
        pieces.append(Piece(text, level(value), t in top, is_anchor))
        start = end
    return tuple(pieces)
