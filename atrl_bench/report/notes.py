"""The sentences below a table: footnotes with their letters, and what its numbers, bold and stars mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from atrl_bench.experiments.definition import TableDefinition
from atrl_bench.models.bases import list_bases
from atrl_bench.report.cells import CellAt, TableSource, sum_counts
from atrl_bench.report.differences import Tie
from atrl_bench.report.labels import column_label, row_label
from atrl_bench.report.page import lines_of
from atrl_bench.report.table_model import SIGNIFICANCE, Footnote, TableCell


class Footnotes:
    """Letters for the footnotes that one table refers to, in the order of its references."""

    def __init__(self, definition: TableDefinition, references: Iterable[Sequence[str]]) -> None:
        names = dict.fromkeys(name for group in references for name in group)
        self._texts = definition.footnotes
        self._letters = {name: chr(ord("a") + i) for i, name in enumerate(names)}

    def marks(self, names: Iterable[str]) -> str:
        """Return the letters of these footnotes, as they stand beside a label."""
        return ",".join(sorted(self._letters[name] for name in names if name in self._letters))

    def all(self) -> tuple[Footnote, ...]:
        """Return every footnote with its letter."""
        return tuple(Footnote(letter, " ".join(self._texts[name].split())) for name, letter in self._letters.items())


def table_notes(source: TableSource, cells: Mapping[CellAt, TableCell], ties: Sequence[Tie]) -> list[str]:
    """Return what a reader has to know about the measured numbers."""
    definition = source.definition
    of_column = {column: [cell for (_, of), cell in cells.items() if of == column] for column in source.columns}
    settings = [dict(cell.provenance) for cell in cells.values()]
    return lines_of(
        "notes.txt.j2",
        definition=definition,
        profile=source.profile,
        seeds=source.seeds,
        significance=SIGNIFICANCE,
        row_label=partial(row_label, definition),
        column_label=partial(column_label, definition),
        baselines=list(dict.fromkeys(source.baselines.values())),
        baseline_labels=list(
            dict.fromkeys(row_label(definition, row, beside=row) for row in source.baselines.values())
        ),
        models=_replaced_models(definition),
        lacking={
            column: reason
            for column, reason in source.lacking.items()
            if any(cell.reason == reason for cell in of_column[column])
        },
        has_rule_alone=any(of_cell.get("judge") == "none" for of_cell in settings),
        judges=list(dict.fromkeys(of_cell["judge.model"] for of_cell in settings if "judge.model" in of_cell)),
        engines=list(dict.fromkeys(filter(None, map(_engine, settings)))),
        counts=sum_counts(cell.counts for of_cells in of_column.values() for cell in of_cells),
        ties=ties,
        tied=list(dict.fromkeys(column_label(definition, tie.column) for tie in ties)),
        all_tied={tie.column for tie in ties} == set(source.all_columns),
    )


def _replaced_models(definition: TableDefinition) -> list[str]:
    """Return the base models that the generated profile's own stands for: all that its rows name but shipped ones."""
    named = dict.fromkeys(filter(None, map(definition.model_of, definition.rows)))
    return [model for model in named if model not in list_bases()]


def _engine(of_cell: Mapping[str, str]) -> str:
    """Return what answered a cell in place of this process; nothing for this process."""
    return f"{of_cell['engine.name']} {of_cell['engine.version']}" if "engine.name" in of_cell else ""
