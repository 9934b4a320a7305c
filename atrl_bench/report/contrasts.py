"""The question of a table: what changes between two rows that differ in their credit alone, in a badge and a sentence.

And its headroom: what the rule adds that knows where credit belongs. Where that cannot be told from zero, no other rule
can be told from uniform credit for the right reason: the world ranks none, and no difference of its rows is called
clear.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from atrl_bench.experiments.definition import GroupDefinition, TableDefinition
from atrl_bench.report.page import lines_of
from atrl_bench.report.table_model import Comparison, Table, TableCell
from atrl_bench.results import numbers

ELSEWHERE = ("uniform", "random", "reverse", "bottom_truncation")  # rules whose credit is not on anchors


@dataclass(frozen=True)
class Answer:
    """What all comparisons of a table say together: a badge of a few words, and one sentence."""

    kind: Literal["gain", "loss", "mixed", "none", "open"]
    badge: str
    sentence: str


def contrasts(table: Table) -> list[Comparison]:
    """Return the table's comparisons that have numbers, in their order."""
    return [item for item in table.comparisons if item.has_numbers]


def anchor_contrasts(table: Table) -> list[Comparison]:
    """Return those of rows whose credit is on the tokens that look at the image."""
    credit = {row.id: row.credit for row in table.rows}
    return [item for item in contrasts(table) if not credit.get(item.row_id, "").startswith(ELSEWHERE)]


def answer_of(items: Sequence[Comparison]) -> Answer | None:
    """Return what comparisons with numbers say together, None where there are none.

    The sentence is the one that a hurried reader takes away, so it is as strong as the weakest of its numbers.
    """
    if not items:
        return None
    outcomes = [item.outcome for item in items]
    gains, losses = (outcomes.count(outcome) for outcome in ("gain", "loss"))
    detectable = [item.detectable for item in items if item.detectable is not None]
    badge, sentence = lines_of(
        "answer.txt.j2",
        contrasts=items,
        outcomes=outcomes,
        gains=gains,
        losses=losses,
        clear=[item for item in items if item.is_clear],
        num_seeds=max(item.seeds.num_seeds for item in items if item.seeds),
        detectable=statistics.median(detectable) if detectable else None,
    )
    if "unfinished" in outcomes or outcomes.count("one seed") == len(items):
        return Answer("open", badge, sentence)
    kind: Literal["gain", "loss", "mixed", "none"] = "none"
    if gains or losses:
        kind = "mixed" if gains and losses else "gain" if gains else "loss"
    return Answer(kind, badge, sentence)


def in_words(items: Sequence[Comparison]) -> str:
    """Return comparisons with numbers for those who do not see their figure."""
    answer = answer_of(items)
    assert answer is not None
    sentences = []
    for item in items:
        low, high = map(numbers.signed, item.interval)
        said = f"{item.row} minus {item.other}: {numbers.signed(item.estimate.mean)} points, "
        said += f"95 % interval {low} to {high}"
        said += "" if item.claimed is None else f"; the paper says {numbers.signed(item.claimed)}"
        sentences.append(f"{said}.")
    return " ".join([f"{answer.badge}. {answer.sentence}", *sentences])


def counted(table: Table) -> str:
    """Return why the scores of the table do not subtract to these differences, "" where they do."""
    for row in table.rows:
        for cell in row.cells:
            if cell.estimate and cell.all_repeats and cell.num_repeats > 1 and cell.all_repeats != cell.estimate:
                return (
                    f"Differences are taken over all {cell.num_repeats} answers to each problem. The table counts the "
                    "first answer only, so its scores subtract to slightly other numbers."
                )
    return ""


# Headroom -------------------------------------------------------------------------------------------------------------


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


def _by_row(comparisons: tuple[Comparison, ...]) -> Mapping[str, Comparison]:
    # A row may be compared with several; the first is the one that its definition names.
    return {item.row_id: item for item in reversed(comparisons) if item.has_numbers}


def _sentence(group: GroupDefinition, contrast: Comparison, equal: Comparison | None) -> str:
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


def _while_training(equal: Comparison) -> str:
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
