"""The printed scores of a table: `reports/<paper>/scores/<table>.csv`, read digit by digit.

A file has a row's name first and then a score a column (`--` where nothing is printed), with the signs that stand after
it if `paper.yaml` knows them. Columns `<column>_sd` hold printed standard deviations. Beside a definition of the table
its names are those of rows and columns there, or of columns in `paper.yaml`; without one they are the paper's words.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import NamedTuple

from atrl_bench.errors import InvalidFileError
from atrl_bench.experiments.definition import TableDefinition, list_tables, load_table, paper_of
from atrl_bench.papers.paper import Paper, load_paper
from atrl_bench.plugins import paper_folders

NO_SCORE = "--"
SD = "_sd"  # ends the CSV column of a column's printed standard deviations


class PrintedCell(NamedTuple):
    """One score, and the signs after it."""

    row: str
    column: str
    score: Decimal
    marks: str


class PrintedScores(NamedTuple):
    """What the paper prints of a table by (row, column), digit by digit: scores, standard deviations over trainings."""

    scores: dict[tuple[str, str], Decimal]
    spreads: dict[tuple[str, str], Decimal]


NOTHING_PRINTED = PrintedScores({}, {})


def load_printed(definition: TableDefinition) -> PrintedScores:
    """What the paper prints of the rows and columns that are selected; a name the full table lacks is an error."""
    name, table = paper_of(definition.id)
    path = paper_folders().get(name, Path()) / "scores" / f"{table}.csv"
    return read_printed(path, definition, load_paper(name)) if path.is_file() else NOTHING_PRINTED


def read_printed(path: Path, definition: TableDefinition, paper: Paper | None = None) -> PrintedScores:
    full = load_table(definition.id) if definition.id in list_tables() else definition
    rows, columns = {row.id for row in full.rows if row.in_paper}, {column.id for column in full.columns}
    kept = {(row.id, column.id) for row in definition.rows for column in definition.columns}
    printed, others = PrintedScores({}, {}), set(paper.columns if paper else ())
    check_names(path, rows, {*columns, *(column + SD for column in columns), *others})
    for cell in read_cells(path, paper):
        column = cell.column if cell.column in columns else cell.column.removesuffix(SD)
        if (cell.row, column) in kept:
            (printed.scores if column == cell.column else printed.spreads)[cell.row, column] = cell.score
    return printed


def check_names(path: Path, rows: Iterable[str], columns: Iterable[str]) -> None:
    names, records = _records(path)
    for name in names:
        _check(path, 1, "column", name, columns)
    for line, row, _ in records:
        _check(path, line, "row", row, rows)


def read_cells(path: Path, paper: Paper | None = None) -> Iterator[PrintedCell]:
    """Every score of a file; fractions come as percentages of as many digits."""
    marks = "".join(paper.marks) if paper else ""
    is_share = paper is not None and path.stem in paper.tables and paper.tables[path.stem].unit == "fraction"
    gains = {name for name, column in paper.columns.items() if column.gain_of} if paper else set()
    names, records = _records(path)
    for line, row, texts in records:
        for column, text in zip(names, texts, strict=True):
            if text != NO_SCORE:
                digits = text.rstrip(marks)
                score = _score(path, line, column, digits, low=-100 if column in gains else 0)
                yield PrintedCell(row, column, _percent(score) if is_share else score, text[len(digits) :])


def _records(path: Path) -> tuple[list[str], list[tuple[int, str, list[str]]]]:
    """The names of the columns, and each row with its line and what stands in it; no row or column stands twice."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            lines = [(reader.line_num, line) for line in reader if line]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidFileError(f"{path} cannot be read.", why=str(error), next_step=f"edit {path}") from None
    head = lines[0][1] if lines else [""]
    _check(path, 1, "the first column", head[0], ["row"])
    for number, line in lines:
        if len(line) != len(head):
            what = f"{path}:{number}: {len(line)} fields, and {len(head)} columns."
            raise InvalidFileError(what, next_step=f"edit {path}; {NO_SCORE} stands where nothing is printed")
    for names in (head, [line[0] for _, line in lines]):
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise InvalidFileError(f"{path}: {twice[0]!r} stands there twice.", next_step=f"edit {path}")
    return head[1:], [(number, line[0], line[1:]) for number, line in lines[1:]]


def _percent(share: Decimal) -> Decimal:
    percent = share.scaleb(2)
    return max(percent, percent.quantize(Decimal(1)), key=lambda value: -int(value.as_tuple().exponent))


def _check(path: Path, line: int, kind: str, name: str, names: Iterable[str]) -> None:
    if name not in names:
        known = ", ".join(sorted(names))
        raise InvalidFileError(f"{path}:{line}: {kind} {name!r} is not one of {known}.", next_step=f"edit {path}")


def _score(path: Path, line: int, column: str, text: str, low: int) -> Decimal:
    try:
        score = Decimal(text)
        if not low <= score <= 100:
            raise InvalidOperation
    except InvalidOperation:
        what = f"{path}:{line}: field {column!r}: {text!r} is no percentage between {low} and 100"
        raise InvalidFileError(f"{what}, nor {NO_SCORE} for none.", next_step=f"edit {path}") from None
    return score
