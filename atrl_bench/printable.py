"""What a command answers: a record, which is one JSON document for programs and a few blocks of text for people.

Both come from its fields. A record that people read as prose says its own blocks and leaves their layout to whoever
prints it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atrl_bench.digests import plain


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


EMPTY: tuple[Any, ...] = (None, "", [], {})  # values that a person is not shown
Block = str | Rows | Command  # a text is a paragraph; an empty one is an empty line


@dataclass(frozen=True)
class Record:
    """The base of all records."""

    def document(self) -> Any:
        """What `--json` prints; of a record of one field, what that field holds."""
        values = plain(self)
        return next(iter(values.values())) if len(values) == 1 else values

    def blocks(self) -> Iterable[Block]:
        """What a person reads, in order."""
        return blocks_of(plain(self))


def blocks_of(content: Any) -> Iterator[Block]:
    """Plain values as a person reads them: named ones in two columns, lists below their names, `next` as a command."""
    if not isinstance(content, Mapping):
        yield Rows([(_text(value),) for value in content], indent=0)
        return
    values = {name.replace("_", " "): value for name, value in content.items() if value not in EMPTY}
    command = values.pop("next", None)
    lists = {name: value for name, value in values.items() if isinstance(value, (list, Mapping))}
    yield Rows([(name, _text(value)) for name, value in values.items() if name not in lists], indent=0)
    for name, value in lists.items():
        yield name
        if isinstance(value, Mapping):
            yield Rows([(str(key), _text(item)) for key, item in value.items() if item not in EMPTY])
        elif isinstance(value[0], Mapping):
            yield Rows([[_text(cell) for cell in row.values()] for row in value], list(value[0]), cut=True)
        else:
            yield Rows([(_text(item),) for item in value])
    if command:
        yield Command(command)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted names, in their order: `{"credit": {"rule": "atrl"}}` is `credit.rule`."""
    flattened: dict[str, Any] = {}
    for name, value in values.items():
        flattened |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return flattened


def flat_text(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The same as a page prints them."""
    for name, value in flat(values).items():
        yield name, "none" if value is None else str(value)


def counted(number: int, noun: str) -> str:
    """A number of things in words: "1 cell", "2 cells"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
