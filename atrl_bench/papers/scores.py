"""The printed scores of a table: `reports/<paper>/scores/<table>.csv`, read digit by digit.

A file has the rows and columns of its table by their ids (`--` where nothing is printed) and, in columns `<column>_sd`,
the printed standard deviations; differences, averages and bold are computed from them.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import NamedTuple

from atrl_bench.errors import InvalidFileError
from atrl_bench.experiments.definition import TableDefinition, list_tables, load_table, paper_folders, paper_of

NO_SCORE = "--"
SD = "_sd"  # ends the CSV column of a column's printed standard deviations


class PrintedScores(NamedTuple):
    """What the paper prints of a table by (row, column), digit by digit: scores, standard deviations over trainings."""

    scores: dict[tuple[str, str], Decimal]
    spreads: dict[tuple[str, str], Decimal]


NOTHING_PRINTED = PrintedScores({}, {})


def load_printed(definition: TableDefinition) -> PrintedScores:
    """What the paper prints of the rows and columns that are selected; a name the full table lacks is an error."""
    paper, name = paper_of(definition.id)
    path = paper_folders().get(paper, Path()) / "scores" / f"{name}.csv"
    return read_printed(path, definition) if path.is_file() else NOTHING_PRINTED


def read_printed(path: Path, definition: TableDefinition) -> PrintedScores:
    full = load_table(definition.id) if definition.id in list_tables() else definition
    rows, columns = {row.id for row in full.rows if row.in_paper}, {column.id for column in full.columns}
    kept = {(row.id, column.id) for row in definition.rows for column in definition.columns}
    printed = PrintedScores({}, {})
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        names = reader.fieldnames or []
        _check(path, 1, "the first column", names[0] if names else "", ["row"])
        for name in names[1:]:
            _check(path, 1, "column", name, {*columns, *(column + SD for column in columns)})
        for record in reader:
            row = record["row"]
            _check(path, reader.line_num, "row", row, rows)
            for name in names[1:]:
                score = _score(path, reader.line_num, name, record[name])
                column = name if name in columns else name.removesuffix(SD)
                if (row, column) in kept and score is not None:
                    (printed.scores if column == name else printed.spreads)[row, column] = score
    return printed


def _check(path: Path, line: int, kind: str, name: str, names: Iterable[str]) -> None:
    if name not in names:
        known = ", ".join(sorted(names))
        raise InvalidFileError(f"{path}:{line}: {kind} {name!r} is not one of {known}.", next_step=f"edit {path}")


def _score(path: Path, line: int, column: str, text: str | None) -> Decimal | None:
    if text == NO_SCORE:
        return None
    try:
        score = Decimal(text or "")
        if not 0 <= score <= 100:
            raise InvalidOperation
    except InvalidOperation:
        what = f"{path}:{line}: field {column!r}: {text!r} is no percentage between 0 and 100, nor {NO_SCORE} for none."
        raise InvalidFileError(what, next_step=f"edit {path}") from None
    return score
