"""The words of a table: how it names rows, groups and columns, its footnotes with their letters, the notes below it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from atrl_bench.experiments.definition import RowDefinition, TableDefinition
from atrl_bench.models.bases import list_bases
from atrl_bench.profiles import Profile
from atrl_bench.report.cells import CellAt, TableSource, sum_counts
from atrl_bench.report.page import lines_of
from atrl_bench.report.table_model import SIGNIFICANCE, Footnote, TableCell, Tie


def as_measured(
    definition: TableDefinition, profile: Profile, rates: Mapping[str, float] | None = None
) -> TableDefinition:
    """Return the table with the profile's name in the label of every row, unless the profile is the paper's.

    A row cut out of its page still says what it is: no label of a small model is that of a large one alone. `rates` are
    the learning rates that rows were picked at; each stands in its row's label.
    """
    if rates:
        at_rates = [row.model_copy(update={"label": _at_rate(row, rates)}) for row in definition.rows]
        definition = definition.model_copy(update={"rows": tuple(at_rates)})
    if profile.name == "paper":
        return definition
    rows = [row.model_copy(update={"label": _as_measured(row.label, definition, profile)}) for row in definition.rows]
    groups = [
        group.model_copy(update={"label": _as_measured(group.label, definition, profile)})
        if _names_a_model(group.label, definition)
        else group
        for group in definition.groups
    ]
    caption = definition.caption
    if _names_a_model(caption, definition):
        caption = f"Profile {profile.name} in place of the models named here. {caption}"
    return definition.model_copy(update={"rows": tuple(rows), "groups": tuple(groups), "caption": caption})


_RATE = re.compile(r", [^ ]+×$")  # as `_at_rate` writes it


def _at_rate(row: RowDefinition, rates: Mapping[str, float]) -> str:
    return f"{row.label}, {rates[row.id]:g}×" if row.id in rates else row.label


def _as_measured(label: str, definition: TableDefinition, profile: Profile) -> str:
    return f"{profile.name}{' in place of' if _names_a_model(label, definition) else ':'} {label}"


def _names_a_model(label: str, definition: TableDefinition) -> bool:
    """Return whether the label is that of a base model which the profile's own stands in for."""
    models = filter(None, map(definition.model_of, definition.rows))
    families = {re.split(r"-\d", model.rpartition("/")[2], maxsplit=1)[0] for model in models}
    return any(family in label for family in families)


def group_label(definition: TableDefinition, row: RowDefinition) -> str:
    """Return the heading that the row stands under, "" for none."""
    return next((group.label for group in definition.groups if group.id == row.group), "")


def row_label(definition: TableDefinition, row: str, beside: str | None = None) -> str:
    """Return the row's label, with its group where another row is called the same at any rate.

    Named `beside` a row of the same group it needs no group. Of a group "Name: what it is" the name will do.
    """
    rows = {item.id: item for item in definition.rows}
    if row not in rows:
        return row
    named = rows[row]
    namesakes = [item for item in definition.rows if _RATE.sub("", item.label) == _RATE.sub("", named.label)]
    if len(namesakes) == 1 or (beside in rows and rows[beside].group == named.group):
        return named.label
    return f"{named.label} ({group_label(definition, named).partition(': ')[0]})"


def column_label(definition: TableDefinition, column: str) -> str:
    return next((item.text for item in definition.columns if item.id == column), "Average")


# Footnotes and notes --------------------------------------------------------------------------------------------------


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
        return tuple(Footnote(letter, " ".join(self._texts[name].split())) for name, letter in self._letters.items())


def table_notes(source: TableSource, cells: Mapping[CellAt, TableCell], ties: Sequence[Tie]) -> list[str]:
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
