"""What any credit rule could add in a world: what the rule adds that knows where credit belongs.

Where that cannot be told from zero, no other rule can be told from uniform credit for the right reason: the world ranks
none, and no difference of its rows is called clear.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from atrl_bench.experiments.definition import GroupDefinition, TableDefinition
from atrl_bench.report.contrasts import Contrast, contrast_of
from atrl_bench.report.table_model import Comparison, Table, TableCell
from atrl_bench.results import numbers


def with_headroom(table: Table, definition: TableDefinition) -> Table:
    """Return the table with a sentence on the headroom of each group that has an oracle, and ranks only where it is."""
    chosen = {row.group for row in definition.rows}
    groups = [group for group in definition.groups if group.oracle is not None and group.id in chosen]
    if not groups:
        return table
    best, equal = _by_row(table.comparisons), _by_row(table.equal_rate)
    sentences, unranked = [], set[str]()
    for group in groups:
        contrast = best.get(group.oracle or "")
        if contrast is None:
            sentences.append(f"{group.label}: the oracle has no numbers yet, and no rule is ranked.")
        else:
            sentences.append(_sentence(group, contrast, equal.get(group.oracle or "")))
        if contrast is None or contrast.outcome != "gain":
            unranked |= {row.id for row in definition.rows if row.group == group.id}
    rows = [
        replace(row, is_best=False, cells=tuple(map(_unranked_cell, row.cells))) if row.id in unranked else row
        for row in table.rows
    ]
    oracles = {group.oracle for group in groups}
    return replace(
        table,
        headroom=tuple(sentences),
        rows=tuple(rows),
        comparisons=tuple(_unranked(item, unranked - oracles) for item in table.comparisons),
        equal_rate=tuple(_unranked(item, unranked - oracles) for item in table.equal_rate),
    )


def _by_row(comparisons: tuple[Comparison, ...]) -> Mapping[str, Contrast]:
    # A row may be compared with several; the first is the one that its definition names.
    return {item.row_id: contrast for item in reversed(comparisons) if (contrast := contrast_of(item))}


def _sentence(group: GroupDefinition, contrast: Contrast, equal: Contrast | None) -> str:
    low, high = (numbers.signed(end) for end in contrast.interval)
    said = f"{group.label}: headroom {numbers.signed(contrast.estimate.mean)} points, 95 % interval {low} to {high}"
    if equal is not None:
        said += f" ({numbers.signed(equal.estimate.mean)} at one learning rate for all{_while_training(equal)})"
    if contrast.outcome == "gain":
        return f"{said}. This world can rank rules."
    if contrast.outcome == "unfinished":
        return f"{said}, not finished: no rule is ranked yet."
    if contrast.outcome == "loss":
        return f"{said}: the oracle loses. This world cannot rank rules."
    power = "" if contrast.detectable is None else f"; {numbers.percent(contrast.detectable)} would have been seen"
    return f"{said}{power}. This world cannot rank rules."


def _while_training(equal: Contrast) -> str:
    """Return what the oracle adds to the accuracy over the whole training, which who learns faster leads."""
    if equal.training is None or (over_seeds := equal.training.half_width()) is None:
        return ""
    return f", {numbers.signed(equal.training.mean)} ±{numbers.percent(over_seeds)} while training"


def _unranked(item: Comparison, rows: set[str]) -> Comparison:
    if item.row_id not in rows:
        return item
    return replace(item, is_ranked=False, q_values=tuple(None for _ in item.q_values))


def _unranked_cell(cell: TableCell) -> TableCell:
    return replace(cell, is_best=False, q_value=None)
