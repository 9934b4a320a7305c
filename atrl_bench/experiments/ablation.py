"""Points of an ablation: rows for any value of any field of the credit or the recipe, beside the rows of the paper.

A point starts from the row that the ablation names (`point`) and changes fields of its `CreditConfig`, its credit rule,
its preset, or fields of its recipe. A point that the paper has is that row of the table; any other becomes a row of its
own, after the row with the next smaller value of the credit where there is one, and stays with the run folder.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import yaml

from atrl_bench.credit.config import SYMBOLS, CreditConfig
from atrl_bench.errors import InvalidFileError, UnknownNameError
from atrl_bench.experiments.definition import RowDefinition, TableDefinition
from atrl_bench.experiments.run_dir import RunDir, RunSettings, keep_settings, read_settings
from atrl_bench.training.recipe import (
    CREDIT_FIELDS,
    SHORT,
    SHORT_OF_CREDIT,
    CreditChoice,
    Setting,
    known_fields,
)

FIELDS = {**SHORT, **SHORT_OF_CREDIT, "credit": "rule"}
# Fields that the full rule does not read bring along the rule that does.
RULE_OF = {"kept_fraction": "hard_truncation", "entropy_fraction": "high_entropy"}
CHOICE = ("rule", "preset")  # what a point may change of the credit beside the fields of CreditConfig
OF_CREDIT = (*CREDIT_FIELDS, *CHOICE)


def with_points(definition: TableDefinition, assignments: Sequence[str]) -> tuple[TableDefinition, list[RowDefinition]]:
    values: dict[str, list[Setting]] = {}
    for assignment in assignments:
        name, of_name = _values(definition, assignment)
        if name in values:
            raise InvalidFileError(f"{name} is set twice.", next_step=f"write --set {name}=value,value")
        values[name] = of_name
    points, known = [], {_trained(definition, row): row.id for row in reversed(definition.rows)}
    for combination in itertools.product(*values.values()):
        row = _point(definition, dict(zip(values, combination, strict=True)))
        trained = _trained(definition, row)
        if trained not in known:
            known[trained] = row.id
            definition = definition.model_copy(update={"rows": _inserted(definition, row)})
        points.append(known[trained])
    return definition, [definition.row(name) for name in points]


def _values(definition: TableDefinition, assignment: str) -> tuple[str, list[Setting]]:
    name, equals, text = (part.strip() for part in assignment.partition("="))
    if not equals or not text:
        raise InvalidFileError(f"--set {assignment!r} is not field=value.", next_step="write --set field=value")
    field = FIELDS.get(name, name)
    known = [*CHOICE, *known_fields(type(definition.recipe_of(definition.row(definition.point or ""))))]
    if field not in known:
        raise UnknownNameError("field of the credit or the recipe", name, known, next_step="read docs/method.md")
    return field, [_value(part.strip()) for part in text.split(",")]


def _value(text: str) -> Setting:
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        value = text
    return value if isinstance(value, (float, int, str, bool)) or value is None else text


def _text(value: Setting) -> str:
    """As `_value` reads it."""
    return "null" if value is None else str(value)


def _point(definition: TableDefinition, changes: Mapping[str, Setting]) -> RowDefinition:
    from atrl_bench.credit.rules import credit_rule

    start = definition.row(definition.point or "")
    implied = next((rule for field, rule in RULE_OF.items() if field in changes), start.credit.rule)
    choice = {"rule": changes.get("rule", implied), "preset": changes.get("preset", start.credit.preset)}
    credit_rule(str(choice["rule"]))  # an unknown name says so now
    fields = {name: value for name, value in changes.items() if name in OF_CREDIT and name not in CHOICE}
    try:
        credit = CreditChoice(**choice, settings={**start.credit.settings, **fields})
        _config(credit)
    except (ValueError, TypeError) as error:
        why, settings = (
            str(error).splitlines()[0],
            " ".join(f"{name}={_text(value)}" for name, value in changes.items()),
        )
        raise InvalidFileError(f"--set {settings} is no credit.", why=why, next_step="give another value") from None
    point = RowDefinition(
        id="__".join(f"{name}_{_text(value)}" for name, value in changes.items()),
        label=_label(changes),
        recipe=start.recipe,
        credit=credit,
        model=start.model,
        data=start.data,
        schedule=start.schedule,
        settings={**start.settings, **{name: value for name, value in changes.items() if name not in OF_CREDIT}},
        in_paper=False,
        added_by=" ".join(f"--set {name}={_text(value)}" for name, value in changes.items()),
    )
    definition.recipe_of(point)  # a value that its recipe cannot have says so now
    return point


def _config(credit: CreditChoice) -> Any:
    """The settings as the credit computes with them: two choices of one config are one point."""
    return CreditConfig.preset(credit.preset).replace(**credit.settings)


def _label(changes: Mapping[str, Setting]) -> str:
    if set(changes) == {"kept_fraction"}:
        return f"Hard truncation (top {100 * float(changes['kept_fraction'] or 0):g}%)"
    settings = [f"{SYMBOLS.get(name, (name, name))[1]}={_text(value)}" for name, value in changes.items()]
    return ", ".join(settings if "rule" in changes else ["AT-RL", *settings])


def _trained(definition: TableDefinition, row: RowDefinition) -> Hashable:
    """What two rows that are one training have in common, whatever they are called."""
    recipe = row.recipe and definition.recipe_of(row).model_dump_json(exclude={"name", "title", "credit"})
    return definition.model_of(row), recipe, row.credit.rule, *vars(_config(row.credit)).items()


def _inserted(definition: TableDefinition, row: RowDefinition) -> tuple[RowDefinition, ...]:
    """The rows with this one in its place: along the curve it is a point of, else after the ablation's point."""
    rows, mine = definition.rows, vars(_config(row.credit))
    of_field: dict[str, list[tuple[float, RowDefinition]]] = defaultdict(list)
    for other in rows:
        trained = (row.recipe, row.credit.rule, row.settings)
        if (other.recipe, other.credit.rule, other.settings) == trained and other.id != definition.point:
            theirs = vars(_config(other.credit))
            differing = [name for name in mine if mine[name] != theirs[name]]
            if len(differing) == 1 and all(type(of[differing[0]]) in (int, float) for of in (mine, theirs)):
                of_field[differing[0]].append((theirs[differing[0]], other))
    start = definition.row(definition.point or "")
    neighbour, position = start, rows.index(start) + 1
    if of_field:
        field, curve = max(of_field.items(), key=lambda item: len(item[1]))
        below = [(value, other) for value, other in curve if value < mine[field]]
        if below:
            neighbour = max(below, key=lambda item: item[0])[1]
            position = rows.index(neighbour) + 1
        else:
            neighbour = min(curve, key=lambda item: item[0])[1]
            position = rows.index(neighbour)
    other_row = neighbour.compared_with if neighbour is not start else start.id
    if other_row == definition.baseline or row.settings != start.settings:  # they differ in more than their credit
        other_row = None
    changes = {"group": neighbour.group, "compared_with": other_row}
    return (*rows[:position], row.model_copy(update=changes), *rows[position:])


def with_saved_points(definition: TableDefinition, run_dir: RunDir) -> TableDefinition:
    points = read_settings(run_dir.root).points if definition.kind == "ablation" else {}
    for assignments in points.get(definition.id, ()):
        definition, _ = with_points(definition, assignments)
    return definition


def save_points(definition: TableDefinition, run_dir: RunDir) -> None:
    """Write down which rows of the ablation are no rows of its file, so that later reports show them too."""
    added = [tuple(row.added_by.removeprefix("--set ").split(" --set ")) for row in definition.rows if row.added_by]
    if added:

        def with_added(kept: RunSettings) -> Mapping[str, Any]:
            of_table = dict.fromkeys([*kept.points.get(definition.id, ()), *added])
            return {"points": kept.points | {definition.id: tuple(of_table)}}

        keep_settings(run_dir.root, with_added)
