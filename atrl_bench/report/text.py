"""The table as text: Markdown, CSV, JSON, and eighty columns of a terminal."""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from atrl_bench.digests import plain
from atrl_bench.escape import WIDTH, command_lines, folded, markdown, one_line
from atrl_bench.report.differences import answer_of, contrasts, counted
from atrl_bench.report.drawing import csv_text
from atrl_bench.report.page import environment
from atrl_bench.report.paper import against_paper
from atrl_bench.report.table_model import Grid, Table, TableCell
from atrl_bench.results import numbers

if TYPE_CHECKING:
    from rich.text import Text

MIN_NAME = 12  # columns of a terminal for a row's name, whose words are not broken


def render_markdown(table: Table) -> str:
    # Autoescaping marks what macros return as escaped, so that `finalize` leaves it alone.
    template = environment(_markdown, autoescape=True).get_template("table.md.j2")
    values = {"answer": answer_of(contrasts(table)), "contrasts": contrasts(table), "counted": counted(table)}
    text = template.render(table=table, against=against_paper(table), **values)
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"


def _markdown(value: Any) -> Markup:
    return value if isinstance(value, Markup) else Markup(markdown(str(value)))


CSV_FIELDS = [
    *("kind", "profile", "row", "column", "metric", "state", "score", "stderr", "low", "high", "problems", "expected"),
    *("groups", "difference", "difference_stderr", "p", "q", "seeds", "seed_sd", "samples", "correct", "wrong"),
    *("unparseable", "timed_out", "judge_failed", "truncated", "skipped", "reason"),
]


GRID_FIELDS = ["profile", "table", "row", "column", "value", "low", "high", "text", "reason"]


def render_csv(table: Table) -> str:
    """One line per number, measured and published ones told apart by their first field.

    A table of grids alone has lines of them; those beside scores are in the other forms.
    """
    if table.rows:
        return csv_text([*_measured_records(table), *_published_records(table)], CSV_FIELDS)
    return csv_text(_grid_records(table), GRID_FIELDS)


def _measured_records(table: Table) -> Iterator[dict[str, Any]]:
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            where = {"kind": "measured", "profile": table.profile, "row": row.id, "column": column.id}
            state = {"metric": column.metric, "state": cell.state, "reason": cell.reason}
            yield where | state | _cell_record(cell)


def _cell_record(cell: TableCell) -> dict[str, Any]:
    record: dict[str, Any] = {}
    if (ends := cell.estimate.interval() if cell.estimate is not None else cell.between) is not None:
        record |= {"low": _number(ends[0]), "high": _number(ends[1]), "expected": cell.num_expected}
        record |= asdict(cell.counts)
    if cell.estimate is not None:
        record |= {"score": _number(cell.estimate.mean), "stderr": _number(cell.estimate.stderr)}
        record |= {"problems": cell.estimate.num_problems, "groups": cell.estimate.num_groups}
    if cell.difference is not None:
        estimate = cell.difference.estimate
        record |= {"difference": _number(estimate.mean), "difference_stderr": _number(estimate.stderr)}
        record |= {"p": _number(cell.difference.p_value, 1), "q": _number(cell.q_value, 1)}
    if cell.seeds is not None:
        record |= {"seeds": cell.seeds.num_seeds, "seed_sd": _number(cell.seeds.sd)}
    return record


def _published_records(table: Table) -> Iterator[dict[str, Any]]:
    for row in table.published:
        for column, item in zip(table.columns, row.scores, strict=True):
            if item.score is not None:
                record = {"kind": "published", "row": row.id, "column": column.id, "score": item.score}
                yield record | {"seed_sd": item.sd, "difference": item.difference}


def _grid_records(table: Table) -> Iterator[dict[str, Any]]:
    for grid in table.grids:
        for row, cells in grid.rows:
            for column, cell in zip(grid.columns, cells, strict=True):
                where = {"profile": table.profile, "table": grid.title, "row": row, "column": column}
                ends = {name: _number(getattr(cell, name), 1) for name in ("value", "low", "high")}
                yield where | ends | {"text": cell.text, "reason": cell.reason}


def _number(value: float | None, scale: int = 100) -> float | None:
    return None if value is None or not math.isfinite(value) else round(scale * value, 6)


def render_json(table: Table) -> str:
    """Everything the report knows; scores are shares, published ones percent.

    A published number has the digits that were printed, 63.80, so that `table_from_json` gives the same table again.
    """
    document = asdict(table) | {"against_paper": [asdict(verdict) for verdict in against_paper(table)]}
    document |= {"judge_warning": table.judge_warning} if table.judge_warning else {}
    text = json.dumps(plain(document), indent=1, sort_keys=True, allow_nan=False, default=_as_printed)
    return _PRINTED.sub(r"\1", text) + "\n"


# A Decimal on its way through `json`, which knows floats alone; no text of a table has the character.
_PRINTED = re.compile(r'"\\u0000(-?[0-9.]+)"')


def _as_printed(value: Any) -> str | float:
    return f"\0{value:f}" if isinstance(value, Decimal) else float(value)


def terminal_text(table: Table) -> Text:
    """The measured table in lines of at most eighty columns: score and error bar, below them the difference.

    A table that is wider is shown in parts, one below the other.
    """
    from rich.text import Text

    text = Text(f"{one_line(table.title)}\n", style="bold")
    text.append(f"profile {one_line(table.profile_title)}\n\n", style="dim")
    if table.judge_warning:
        text.append("\n".join(folded(table.judge_warning)) + "\n\n")
    if (answer := answer_of(contrasts(table))) is not None:
        text.append("\n".join(folded(f"{answer.badge}. {answer.sentence}")) + "\n\n")
    if table.says:
        text.append("\n".join(folded(table.says)) + "\n\n")
    for sentence in table.headroom:
        text.append("\n".join(folded(sentence, first="· ", rest="  ")) + "\n")
    if table.headroom:
        text.append("\n")
    if table.rows:
        _append_scores(text, table)
    else:
        for grid in table.grids:
            _append_grid(text, grid)
    for note in table.notes:
        text.append("\n".join(_note_lines(note)) + "\n", style="dim")
    return text


def _append_scores(text: Text, table: Table) -> None:
    cells = [cell for row in table.rows if not row.is_unmeasured for cell in row.cells]
    width = max([10, *(len(line) for cell in cells for line, _ in (_score_line(cell), _change_line(cell)))])
    if any(len(column.text) > width for column in table.columns):
        width = max(width, 11)
    words = [word for row in table.rows for word in one_line(row.label).split()]
    name_width = min(max([MIN_NAME, *map(len, words)]), WIDTH // 2)
    num_parts = math.ceil(len(table.columns) / ((WIDTH - name_width) // (width + 1)))
    per_part = math.ceil(len(table.columns) / num_parts)
    for start in range(0, len(table.columns), per_part):
        _append_part(text, table, slice(start, start + per_part), width)
        text.append("\n")


def _append_grid(text: Text, grid: Grid) -> None:
    text.append(f"{one_line(grid.title)}\n", style="bold")
    width = max((len(one_line(name)) for name, _ in grid.rows), default=0)
    for number, column in enumerate(grid.columns):
        cells = [(one_line(name), cells[number]) for name, cells in grid.rows]
        if any(math.isfinite(cell.value) for _, cell in cells):
            text.append(f"{one_line(column)}\n", style="italic dim")
            longest = max(len(cell.text) for _, cell in cells) + 1
            for name, cell in cells:
                text.append(f"{name:<{width}}  {one_line(cell.marked):>{longest}}  {cell.seen}".rstrip() + "\n")
    text.append("\n")


def _note_lines(note: str) -> list[str]:
    sentence, colon, command = note.partition(": atrl-bench ")
    lines = folded(f"{sentence}{colon[:1]}", first="· ", rest="  ")
    return [*lines, *command_lines(f"atrl-bench {command}")] if command else lines


def _append_part(text: Text, table: Table, part: slice, width: int) -> None:
    columns = table.columns[part]
    name_width = WIDTH - (width + 1) * len(columns)
    heads = [textwrap.wrap(one_line(column.text), width, break_on_hyphens=False) or [""] for column in columns]
    for i in range(-max(map(len, heads)), 0):  # their last lines stand beside each other
        words = "".join(f" {lines[i] if len(lines) >= -i else '':>{width}}" for lines in heads)
        text.append(" " * name_width + words + "\n")
    text.append("─" * WIDTH + "\n")
    group = ""
    for row in table.rows:
        if row.group != group:
            group = row.group
            text.append(f"{one_line(group)}\n", style="italic dim")
        names = _name_lines(one_line(row.label), name_width)
        if row.is_unmeasured:
            text.append(f"{names[0]:<{name_width}} not measured\n", style="dim")
            continue
        lines = [[_score_line(cell) for cell in row.cells[part]], [_change_line(cell) for cell in row.cells[part]]]
        for i in range(max(len(lines) if any(line for line, _ in lines[1]) else 1, len(names))):
            text.append(f"{names[i] if i < len(names) else '':<{name_width}}", style="bold" if row.is_best else "")
            for line, style in lines[i] if i < len(lines) else []:
                text.append(f" {line:>{width}}", style=style)
            text.append("\n")


def _name_lines(label: str, width: int) -> list[str]:
    """A label in lines of this width; where one is not enough, the profile before it has a line of its own."""
    profile, colon, name = label.partition(": ")
    if len(label) <= width or not colon:
        return textwrap.wrap(label, width, break_on_hyphens=False) or [""]
    return [f"{profile}:"[:width], *textwrap.wrap(name, width, break_on_hyphens=False)]


def _score_line(cell: TableCell) -> tuple[str, str]:
    if cell.estimate is None:
        return cell.in_place, "dim"
    mark = "" if cell.state == "measured" else "…"
    score = f"{numbers.percent(cell.estimate.mean)}{mark} {numbers.error(cell.estimate).replace(' to ', '–')}"
    return score, "bold" if cell.is_best else ""


def _change_line(cell: TableCell) -> tuple[str, str]:
    if cell.difference is None:
        return "", ""
    return f"{numbers.signed(cell.difference.estimate.mean)}{'*' if cell.is_significant else ''}", "dim"
