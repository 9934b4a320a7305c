"""How every record is printed: one JSON document, or text that fits eighty columns and breaks no name or path."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from atrl_bench.digests import plain
from atrl_bench.escape import WIDTH, command_lines, folded, next_lines, one_line
from atrl_bench.printable import Record, Rows, blocks_of

if TYPE_CHECKING:
    from rich.text import Text

    from atrl_bench.report.table_model import Table

GAP = "  "  # between two columns


def show(content: Any, as_json: bool, *, text: str | None = None, failed: object = False) -> None:
    """Print a record or plain values, for a person perhaps another `text`; the command ends with 1 if it `failed`."""
    if as_json:
        document = content.document() if isinstance(content, Record) else plain(content)
        typer.echo(json.dumps(document, indent=2, sort_keys=True, default=str))
    elif text is not None:
        typer.echo(text)
    else:
        from rich.text import Text

        _print(Text("\n").join(_lines(content)))
    if failed:
        raise typer.Exit(1)


def show_table(table: Table, as_json: bool) -> None:
    from atrl_bench.report.text import render_json, terminal_text

    if as_json:
        typer.echo(render_json(table), nl=False)
    else:
        _print(terminal_text(table))


def _print(text: Text) -> None:
    from rich.console import Console

    # A line that is longer is left to the terminal: what is copied from it has no break in it.
    Console(highlight=False).print(text, soft_wrap=True)


def yaml_text(content: Any) -> str:
    import yaml

    # YAML's writer ends a line at the first space behind its width, so a word is let over it.
    return yaml.safe_dump(content, sort_keys=False, width=WIDTH - 20, allow_unicode=True).rstrip()


def text_of(content: Any) -> str:
    """What a person reads of a record or of plain values, without colours."""
    return "\n".join(line.plain for line in _lines(content))


def _lines(content: Any) -> Iterator[Text]:
    from rich.text import Text

    for block in content.blocks() if isinstance(content, Record) else blocks_of(plain(content)):
        if isinstance(block, Rows):
            yield from _row_lines(block)
        elif isinstance(block, str):
            yield from map(Text, folded(block, rest=GAP))
        else:
            yield from map(Text, next_lines(block.text) if block.is_next else command_lines(block.text, " " * 4))


def _row_lines(block: Rows) -> Iterator[Text]:
    from rich.cells import cell_len, set_cell_size
    from rich.text import Text

    rows = [[_indent(cell) + one_line(cell) for cell in row] for row in (block.head, *block.rows)]
    # The last cell of a row has no column to keep to, unless it is a number.
    widths = [
        max((cell_len(row[n]) for row in rows if n < len(row) - (n not in block.right)), default=0)
        for n in range(max(map(len, rows)))
    ]
    for row in filter(None, rows):
        cells = [
            cell.rjust(width) if n in block.right else set_cell_size(cell, width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        first = " " * block.indent + "".join(cell + GAP for cell in cells[:-1])
        if len(row) - 1 in block.right:
            lines = [first + cells[-1]]
        elif block.cut:
            width, last = WIDTH - cell_len(first), row[-1]
            lines = [(first + (last if len(last) <= width else last[: width - 1].rstrip() + "…")).rstrip()]
        else:
            first += _indent(row[-1])
            lines = folded(row[-1], first=first, rest=" " * cell_len(first))
        yield from (Text(line, "bold" if row is rows[0] else "") for line in lines)


def _indent(cell: str) -> str:
    return cell[: len(cell) - len(cell.lstrip(" "))]
