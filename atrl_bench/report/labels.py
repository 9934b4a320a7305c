"""How a page names the rows, groups and columns of a table."""

from __future__ import annotations

from atrl_bench.experiments.definition import RowDefinition, TableDefinition


def group_label(definition: TableDefinition, row: RowDefinition) -> str:
    """Return the heading that the row stands under, "" for none."""
    return next((group.label for group in definition.groups if group.id == row.group), "")


def row_label(definition: TableDefinition, row: str) -> str:
    """Return the row's label, with its group where another row is called the same."""
    named = next((item for item in definition.rows if item.id == row), None)
    if named is None:
        return row
    namesakes = [item for item in definition.rows if item.label == named.label]
    return named.label if len(namesakes) == 1 else f"{named.label}, {group_label(definition, named)}"


def column_label(definition: TableDefinition, column: str) -> str:
    """Return the column's label in one line."""
    return next((item.text for item in definition.columns if item.id == column), "Average")
