"""What the paper prints: its scores, the numbers it derives from them, and what it says of them in words.

Scores are read from `reports/at_rl/scores`. `reports/at_rl/derived.csv` holds the averages, arrows and Δ
that stand beside them, which the audit recomputes; `reports/at_rl/claims.yaml` what the running text says, each
claim with the formula that checks it.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from itertools import product
from typing import Any, TypeVar

from pydantic import Field

from atrl_bench.errors import InvalidFileError
from atrl_bench.experiments.definition import (
    ColumnDefinition,
    RowDefinition,
    TableDefinition,
    list_tables,
    load_table,
)
from atrl_bench.papers.scores import load_printed
from atrl_bench.profiles import load_profile
from atrl_bench.resources import folder
from atrl_bench.settings import Settings, read_settings

AVERAGE = "average"
Address = tuple[str, str, str]  # table, row, column
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Score:
    """One printed score: where it stands, and what it is a score of as far as the table's definition says."""

    table: str
    row: str
    column: str
    row_label: str
    column_label: str
    value: Decimal
    task: str
    baseline: str = ""
    compared_with: str | None = None
    spread: Decimal | None = None  # standard deviation over training runs
    experiment: tuple[tuple[str, str], ...] = ()

    @property
    def address(self) -> Address:
        return self.table, self.row, self.column

    @property
    def is_baseline(self) -> bool:
        return self.row == self.baseline

    @property
    def where(self) -> str:
        return f"{self.table}: {self.row_label}, {self.column_label}"

    @property
    def digits(self) -> int:
        return -int(self.value.as_tuple().exponent)


@dataclass(frozen=True)
class Derived:
    """One printed number that follows from scores: an `average` of a row, or a `change` from another row."""

    table: str
    row: str
    column: str
    kind: str
    against: str
    printed: Decimal


class Claim(Settings):
    """A number in the running text, or a figure, and how it follows from the tables."""

    says: str = Field(description="what the paper says, in its words or nearly")
    where: str = Field(description="the section, figure or table it says it in")
    printed: str = Field(description="the number it prints, with its digits")
    formula: Any = Field(description="what it should be: a number, table/row/column, or {operation: [parts]}")
    note: str = Field("", description="what else there is to know")


class SameExperiment(Settings):
    """Cells that are one experiment by the paper's own words, so that they should hold one number."""

    what: str
    cells: tuple[str, ...] = Field(min_length=2)
    why: str = Field(description="which words of the paper make them one experiment")
    sure: str = "likely"


class Order(Settings):
    """A claim that one row is above another."""

    says: str
    where: str
    table: str
    better: str = Field(description="row, or column where models are columns")
    worse: str
    only: tuple[str, ...] = Field((), description="of these benchmarks; none: of all that both have")


class Below(Settings):
    """A trained row that is said to improve on, or be a baseline beside, the row it started from."""

    says: str
    rows: tuple[str, ...] = Field(description="the method's row ids, counted in every table that has them")


class Statement(Settings):
    """Two passages that cannot both be right, without a number to recompute."""

    first: str
    second: str
    note: str
    sure: str = "likely"


class Size(Settings):
    """A number of problems that a benchmark's scores might be counted over."""

    problems: int = Field(gt=0)
    what: str


class Claims(Settings):
    """Everything in `claims.yaml`."""

    claims: tuple[Claim, ...] = ()
    same: tuple[SameExperiment, ...] = ()
    orders: tuple[Order, ...] = ()
    below: tuple[Below, ...] = ()
    statements: tuple[Statement, ...] = ()
    sizes: dict[str, tuple[Size, ...]] = Field({})


def load_scores() -> list[Score]:
    """Every printed score of every table, in the order of the tables."""
    scores = []
    for definition in map(load_table, list_tables()):
        printed, spreads = load_printed(definition)
        scores += [
            Score(
                table=definition.id,
                row=row.id,
                column=column.id,
                row_label=row.label,
                column_label=column.text,
                value=printed[row.id, column.id],
                task=column.task,
                baseline=definition.baseline_of(row),
                compared_with=row.compared_with,
                spread=spreads.get((row.id, column.id)),
                experiment=_experiment(definition, row, column),
            )
            for row, column in product(definition.rows, definition.columns)
            if (row.id, column.id) in printed
        ]
    return scores


def grouped(scores: Iterable[Score], key: Callable[[Score], Key]) -> dict[Key, list[Score]]:
    """The scores by what they have in common, in the order in which that occurs first."""
    groups: dict[Key, list[Score]] = {}
    for score in scores:
        groups.setdefault(key(score), []).append(score)
    return groups


def load_derived(tables: Collection[str]) -> list[Derived]:
    """The printed averages and changes of these tables."""
    path = folder("reports") / "at_rl" / "derived.csv"
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        records: list[dict[str, Any]] = [
            record | {"printed": Decimal(record["printed"])} for record in csv.DictReader(file)
        ]
    return [Derived(**record) for record in records if record["table"] in tables]


def load_claims() -> Claims:
    path = folder("reports") / "at_rl" / "claims.yaml"
    return read_settings(path, Claims) if path.is_file() else Claims()


def address_of(text: str) -> Address:
    """The three names in "table/row/column"."""
    match text.split("/"):
        case [table, row, column]:
            return table, row, column
    raise _invalid(f"{text!r} is not table/row/column.")


def tables_in(formula: Any) -> set[str]:
    """The tables that a formula reads."""
    if isinstance(formula, str):
        return {address_of(formula)[0]} if "/" in formula else set()
    if isinstance(formula, Mapping):
        formula = list(formula.values())
    return set().union(*map(tables_in, formula)) if isinstance(formula, (list, tuple)) else set()


def compute(formula: Any, scores: Mapping[Address, Decimal], digits: int | None = None) -> Decimal:
    """The value of a formula over the printed scores.

    A formula is a number, an address, or one operation: `mean`, `sum`, `minus` (first less the others), `share` (first
    of the second, in percent) or `over`. With `digits`, every mean is rounded to so many before it is used further:
    what a writer gets who works from rounded averages.
    """
    if isinstance(formula, Mapping):
        if len(formula) != 1:
            raise _invalid(f"{dict(formula)!r} is not one operation.")
        ((name, parts),) = formula.items()
        values = [compute(part, scores, digits) for part in parts]
        if name not in _OPERATIONS:
            raise _invalid(f"unknown operation {str(name)!r}.", why=f"Known: {', '.join(_OPERATIONS)}.")
        value = _OPERATIONS[name](values)
        return rounded(value, digits) if name == "mean" and digits is not None else value
    if isinstance(formula, str) and "/" in formula:
        address = address_of(formula)
        if address not in scores:
            raise _invalid(f"no printed score at {formula}.")
        return scores[address]
    return Decimal(str(formula))


_OPERATIONS: Mapping[str, Callable[[list[Decimal]], Decimal]] = {
    "mean": lambda values: sum(values, Decimal(0)) / len(values),
    "sum": lambda values: sum(values, Decimal(0)),
    "minus": lambda values: values[0] - sum(values[1:], Decimal(0)),
    "share": lambda values: 100 * values[0] / values[1],
    "over": lambda values: values[0] / values[1],
}


def _invalid(what: str, why: str = "") -> InvalidFileError:
    return InvalidFileError(f"claims.yaml: {what}", why=why, next_step="edit reports/at_rl/claims.yaml")


def rounded(value: Decimal, digits: int) -> Decimal:
    """The value with so many decimals, halves upwards, as the paper rounds."""
    return value.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)


def _experiment(
    definition: TableDefinition, row: RowDefinition, column: ColumnDefinition
) -> tuple[tuple[str, str], ...]:
    """What the number was measured of, field by field; empty where nothing says how the row was trained."""
    if row.not_measured or row.served:
        return ()
    model = definition.model_of(row) or load_profile("paper").model
    fields = {"model": model.rpartition("/")[2], "method": row.recipe or "untrained"}
    if row.recipe:
        settings = [f"{name}={value}" for name, value in sorted(row.credit.settings.items())]
        fields["credit"] = " ".join([row.credit.rule, row.credit.preset, *settings])
        fields |= {"data": row.data or definition.data, "schedule": row.schedule or definition.schedule}
    fields |= {"task": column.task} | ({"frames": str(column.frames)} if column.frames else {})
    return tuple(fields.items())
