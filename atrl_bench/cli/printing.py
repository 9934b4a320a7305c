"""How every record is printed: one JSON document, or text that fits eighty columns and breaks no name or path."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import typer
import yaml
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from atrl_bench.escape import WIDTH, command_lines, folded, next_lines, one_line
from atrl_bench.records import Block, Command, Record, Rows

GAP = 2  # between two columns


def show(record: Record, as_json: bool) -> None:
    """Print a record for a program or for a person."""
    if as_json:
        show_text(record.document(), "", as_json)
    else:
        # A line that is longer is left to the terminal: what is copied from it has no break in it.
        Console(highlight=False).print(Text("\n").join(_lines_of(record)), soft_wrap=True)


def show_text(content: Any, text: str, as_json: bool) -> None:
    """Print the content as JSON, or its text."""
    typer.echo(json.dumps(content, indent=2, sort_keys=True, default=str) if as_json else text)


def yaml_text(content: Any) -> str:
    """Return nested settings as YAML, in the order they have."""
    # YAML's writer ends a line at the first space behind its width, so a word is let over it.
    return yaml.safe_dump(content, sort_keys=False, width=WIDTH - 20, allow_unicode=True).rstrip()


def text_of(record: Record) -> str:
    """Return what a person reads of a record, without colours."""
    return "\n".join(line.plain for line in _lines_of(record))


def _lines_of(record: Record) -> Iterator[Text]:
    for block in record.blocks():
        yield from _lines(block)


def _lines(block: Block) -> Iterator[Text]:
    if isinstance(block, Rows):
        yield from _row_lines(block)
    elif isinstance(block, Command):
        yield from map(Text, next_lines(block.text) if block.is_next else command_lines(block.text, " " * 4))
    else:
        yield from map(Text, folded(block, rest="  "))


def _row_lines(block: Rows) -> Iterator[Text]:
    rows = [[one_line(cell) for cell in row] for row in (block.head, *block.rows)]
    # A row's last cell has no column to keep to, unless it is a number.
    num_columns = max(map(len, rows))
    widths = [
        max([cell_len(row[n]) for row in rows if n < len(row) - (n not in block.right)], default=0)
        for n in range(num_columns)
    ]
    for number, row in enumerate(rows):
        if row:
            style = "bold" if block.head and number == 0 else ""
            yield from (Text(line, style) for line in _row(row, widths, block))


def _row(cells: Sequence[str], widths: Sequence[int], block: Rows) -> list[str]:
    first = " " * block.indent
    for n, cell in enumerate(cells[:-1]):
        padding = " " * (widths[n] - cell_len(cell))
        first += (padding + cell if n in block.right else cell + padding) + " " * GAP
    last = len(cells) - 1
    if last in block.right:
        return [first + cells[last].rjust(widths[last])]
    if block.cut:
        return [(first + _cut(cells[last], WIDTH - cell_len(first))).rstrip()]
    return folded(cells[last], first=first, rest=" " * cell_len(first))


def _cut(text: str, width: int) -> str:
    return text if cell_len(text) <= width else text[: width - 1].rstrip() + "…"
