"""What a command answers: a record, which is one JSON document for programs and a few blocks of text for people.

A record says its words and leaves their layout to whoever prints it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Rows:
    """Rows of cells, one below the other; the last cell of a row has the rest of its lines to itself.

    A row may have fewer cells than others. `right` are the columns of numbers; with `cut`, a cell that is too long for
    its line ends in "…", otherwise it goes on below itself.
    """

    rows: Sequence[Sequence[str]]
    head: Sequence[str] = ()
    right: Collection[int] = ()
    indent: int = 2
    cut: bool = False


@dataclass(frozen=True)
class Command:
    """A command of ours over as many lines as it takes, to be pasted as it is; `is_next` if it is what to type next."""

    text: str
    is_next: bool = True


def counted(number: int, noun: str) -> str:
    """Return a number of things in words: "1 cell", "2 cells"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


Block = str | Rows | Command  # a text is a paragraph; an empty one is an empty line


@dataclass(frozen=True)
class Record:
    """The base of all records."""

    def document(self) -> Any:
        """Return what `--json` prints."""
        return asdict(self)

    def blocks(self) -> Iterable[Block]:
        """Yield what a person reads, in order."""
        raise NotImplementedError
