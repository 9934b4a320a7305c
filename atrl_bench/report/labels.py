"""How a page names the rows, groups and columns of a table."""

from __future__ import annotations

import re
from collections.abc import Mapping

from atrl_bench.experiments.definition import RowDefinition, TableDefinition
from atrl_bench.profiles import Profile


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
    """Return the column's label in one line."""
    return next((item.text for item in definition.columns if item.id == column), "Average")
