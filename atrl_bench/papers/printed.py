"""What the paper prints: its scores, the numbers it derives from them, and what it says of them in words.

Scores are those of `scores/`. `derived.csv` holds averages, arrows and Δ that stand beside them, which the audit
recomputes; `claims.yaml` what the running text says, each claim with the formula that checks it.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from functools import cache
from itertools import product
from typing import Any, Self, TypeVar

from pydantic import Field, model_validator

from atrl_bench.errors import InvalidFileError
from atrl_bench.experiments.definition import (
    OWN,
    ColumnDefinition,
    RowDefinition,
    TableDefinition,
    list_tables,
    load_table,
    paper_of,
)
from atrl_bench.papers.paper import Origin, Paper, PrintedColumn, PrintedRow, PrintedTable, load_paper
from atrl_bench.papers.scores import SD, PrintedCell, PrintedScores, load_printed, read_cells
from atrl_bench.profiles import load_profile
from atrl_bench.settings import Settings, read_settings

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
    paper: str = ""
    source: str = ""  # the table as the paper calls it
    benchmark: str = ""  # by the name that all papers share; empty for a number that follows from others
    checkpoint: str = ""  # weights that others can have, too
    training: tuple[str, ...] = ()  # base, method and data, where all are stated
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the training
    protocol: Mapping[str, Any] = field(default_factory=dict)  # of the measurement
    seed: int | None = None
    origin: Origin = "own"

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
    def cited(self) -> str:
        return f"{self.value} ({self.paper}, {self.source or self.table}: {self.row_label})"

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


KINDS = {"average": "averages", "change": "changes from another row"}


class Claim(Settings):
    """A number in the running text, or a figure, and how it follows from the tables."""

    says: str = Field(description="what the paper says, in its words or nearly")
    where: str = Field(description="the section, figure or table it says it in")
    printed: str = Field(description="the number it prints, with its digits")
    formula: Any = Field(None, description="what it should be: a number, table/row/column, or {operation: [parts]}")
    difference: tuple[str, str] | None = Field(None, description="in its place: two cells, also held against noise")
    note: str = Field("", description="what else there is to know")

    @property
    def computed_from(self) -> Any:
        return {"minus": list(self.difference)} if self.difference else self.formula

    @property
    def number(self) -> Decimal:
        return Decimal(self.printed.rstrip("%<≈ +").lstrip("<≈+~ "))

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.formula is None) == (self.difference is None):
            raise ValueError("a claim has a formula or a difference")
        try:
            self.number  # noqa: B018
        except InvalidOperation:
            raise ValueError(f"printed: {self.printed!r} is no number, but for signs such as %, < and ≈") from None
        return self


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


def load_scores(paper: Paper) -> list[Score]:
    """Every printed score of every table of a paper, in the order of the tables; numbers that follow come with them."""
    scores = []
    for path in sorted((paper.home / "scores").glob("*.csv")):
        table = path.stem if paper.name == OWN else f"{paper.name}:{path.stem}"
        cells = list(read_cells(path, paper))
        spreads = {(cell.row, cell.column.removesuffix(SD)): cell.score for cell in cells if cell.column.endswith(SD)}
        if table in list_tables():
            definition = load_table(table)
            load_printed(definition)  # which refuses unknown names
            order = [(row.id, column.id) for row, column in product(definition.rows, definition.columns)]
            place = {address: number for number, address in enumerate(order)}
            cells.sort(key=lambda cell: place.get((cell.row, cell.column), len(place)))
            known: _Stated = _Defined(paper, definition)
        else:
            known = _Stated(paper, path.stem)
        scores += [
            replace(known.score(cell), spread=spreads.get((cell.row, cell.column)))
            for cell in cells
            if not cell.column.endswith(SD)
        ]
    return scores


class _Stated:
    """What a table's names stand for by `paper.yaml` alone."""

    def __init__(self, paper: Paper, table: str) -> None:
        self.paper, self.table = paper, table
        self.printed = paper.tables.get(table, PrintedTable(source=table.replace("_", " ")))

    def score(self, cell: PrintedCell) -> Score:
        row, column = self.paper.rows.get(cell.row, PrintedRow()), self.paper.columns.get(cell.column, PrintedColumn())
        protocol: dict[str, Any] = {}
        for part in (self.paper.protocol, self.paper.code, column.protocol, row.protocol):
            protocol |= part.stated()
        settings = self.printed.settings | row.settings
        training = tuple(filter(None, (row.base, row.method, row.data)))
        of_others = row.origin != "own"
        origin: Origin = "measured again" if of_others and set(cell.marks) & set(self.paper.again) else row.origin
        task = column.benchmark or cell.column
        how = {**settings, **row.protocol.stated(), **column.protocol.stated()}
        experiment = {"model": row.base or row.checkpoint, "method": row.method or "untrained", "data": row.data}
        experiment |= {name: f"{name} {value}" for name, value in sorted(how.items())} | {"task": task}
        is_known = bool(row.base or row.checkpoint) and row.seed is None and not column.gain_of
        return Score(
            table=self.table,
            row=cell.row,
            column=cell.column,
            row_label=cell.row,
            column_label=cell.column,
            value=cell.score,
            task=task,
            baseline=row.baseline or "",
            experiment=tuple((name, value) for name, value in experiment.items() if value) if is_known else (),
            paper=self.paper.name,
            source=self.printed.source,
            benchmark="" if column.mean_of or column.gain_of else column.benchmark or "",
            checkpoint=row.checkpoint or "",
            training=training if len(training) == 3 else (),
            settings=settings,
            protocol=protocol,
            seed=row.seed,
            origin=origin,
        )


class _Defined(_Stated):
    """What a table's names stand for by its definition; `paper.yaml` may say more of them."""

    def __init__(self, paper: Paper, definition: TableDefinition) -> None:
        super().__init__(paper, paper_of(definition.id)[1])
        self.definition = definition
        self.rows = {row.id: row for row in definition.rows}
        self.columns = {column.id: column for column in definition.columns}

    def score(self, cell: PrintedCell) -> Score:
        score, row, column = super().score(cell), self.rows[cell.row], self.columns.get(cell.column)
        score = replace(
            score,
            row_label=row.label,
            baseline=self.definition.baseline_of(row),
            compared_with=row.compared_with,
            source=self.printed.source if self.table in self.paper.tables else self.definition.source,
        )
        if column is None:
            return score
        stated = self.paper.columns.get(cell.column, PrintedColumn())
        score = replace(score, column_label=column.text, task=column.task, benchmark=stated.benchmark or column.task)
        if column.metric.endswith("@1"):
            score = replace(score, protocol={**score.protocol, "repeats": 1})
        if cell.row in self.paper.rows:
            return score
        experiment, model = _experiment(self.definition, row, column), model_of(self.definition, row)
        if not row.recipe:
            return replace(score, experiment=experiment, checkpoint=model if experiment else "")
        method = row.recipe if row.credit.rule == "uniform" else f"{row.recipe} + {row.credit.rule}"
        return replace(score, experiment=experiment, training=(model, method, row.data or self.definition.data))


def model_of(definition: TableDefinition, row: RowDefinition) -> str:
    return definition.model_of(row) or _usual_model()


@cache
def _usual_model() -> str:
    """The base model of a table that names none."""
    return load_profile("paper").model


def grouped(scores: Iterable[Score], key: Callable[[Score], Key]) -> dict[Key, list[Score]]:
    """The scores by what they have in common, in the order in which that occurs first."""
    groups: dict[Key, list[Score]] = {}
    for score in scores:
        groups.setdefault(key(score), []).append(score)
    return groups


def printed_beside(definition: TableDefinition) -> PrintedScores:
    """What is printed of a table; for a row with `printed_by`, what that paper prints of the row's model as its own."""
    printed = load_printed(definition)
    papers = {name: load_scores(load_paper(name)) for name in {row.printed_by for row in definition.rows} if name}
    own = {
        (row.id, column.id): score.value
        for row in definition.rows
        for column in definition.columns
        for score in reversed(papers.get(row.printed_by or "", ()))
        if (score.checkpoint, score.benchmark) == (model_of(definition, row), column.task) and score.origin == "own"
    }
    return printed._replace(scores={**printed.scores, **own})


def load_derived(paper: Paper, tables: Collection[str]) -> list[Derived]:
    """The printed averages and changes of these tables."""
    path = paper.home / "derived.csv"
    if not path.is_file():
        return []
    derived = []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        for record in reader:
            try:
                fields: dict[str, Any] = record | {"printed": Decimal(record["printed"])}
                item = Derived(**fields)
                KINDS[item.kind]
            except (KeyError, TypeError, InvalidOperation):
                what = f"{path}:{reader.line_num}: {record} is no number that is derived."
                why = f"Its fields are {', '.join(Derived.__annotations__)}; its kind is {' or '.join(KINDS)}."
                raise InvalidFileError(what, why=why, next_step=f"edit {path}") from None
            derived.append(item)
    return [item for item in derived if item.table in tables]


def load_claims(paper: Paper) -> Claims:
    """What the paper says, with the sizes of its benchmarks, which `paper.yaml` may state as well."""
    path = paper.home / "claims.yaml"
    claims = read_settings(path, Claims) if path.is_file() else Claims()
    sizes = {
        column.benchmark: (Size(problems=column.problems, what=f"{column.problems} problems"),)
        for column in paper.columns.values()
        if column.benchmark and column.problems
    }
    tables = {path.stem for path in (paper.home / "scores").glob("*.csv")}
    named = {order.table for order in claims.orders}.union(*(tables_in(c.computed_from) for c in claims.claims))
    if unknown := sorted(named - tables):
        raise invalid_claims(f"no printed table {unknown[0]}.", why=f"Known: {', '.join(sorted(tables)) or 'none'}.")
    return claims.model_copy(update={"sizes": {**sizes, **claims.sizes}})


def address_of(text: str) -> Address:
    """The three names in "table/row/column"."""
    match text.split("/"):
        case [table, row, column]:
            return table, row, column
    raise invalid_claims(f"{text!r} is not table/row/column.")


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
            raise invalid_claims(f"{dict(formula)!r} is not one operation.")
        ((name, parts),) = formula.items()
        values = [compute(part, scores, digits) for part in parts]
        if name not in _OPERATIONS:
            raise invalid_claims(f"unknown operation {str(name)!r}.", why=f"Known: {', '.join(_OPERATIONS)}.")
        try:
            value = _OPERATIONS[name](values)
        except (ArithmeticError, IndexError):
            raise invalid_claims(f"{dict(formula)!r} cannot be computed.") from None
        return rounded(value, digits) if name == "mean" and digits is not None else value
    if isinstance(formula, str) and "/" in formula:
        address = address_of(formula)
        if address not in scores:
            raise invalid_claims(f"no printed score at {formula}.")
        return scores[address]
    try:
        return Decimal(str(formula))
    except InvalidOperation:
        raise invalid_claims(f"{formula!r} is no number, table/row/column or operation.") from None


_OPERATIONS: Mapping[str, Callable[[list[Decimal]], Decimal]] = {
    "mean": lambda values: sum(values, Decimal(0)) / len(values),
    "sum": lambda values: sum(values, Decimal(0)),
    "minus": lambda values: values[0] - sum(values[1:], Decimal(0)),
    "share": lambda values: 100 * values[0] / values[1],
    "over": lambda values: values[0] / values[1],
}


def invalid_claims(what: str, why: str = "") -> InvalidFileError:
    return InvalidFileError(f"claims.yaml: {what}", why=why, next_step="edit claims.yaml in the paper's folder")


def rounded(value: Decimal, digits: int) -> Decimal:
    """The value with so many decimals, halves upwards, as the paper rounds."""
    return value.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)


def _experiment(
    definition: TableDefinition, row: RowDefinition, column: ColumnDefinition
) -> tuple[tuple[str, str], ...]:
    """What the number was measured of, field by field; empty where nothing says how the row was trained."""
    if row.not_measured or row.served:
        return ()
    fields = {"model": model_of(definition, row).rpartition("/")[2], "method": row.recipe or "untrained"}
    if row.recipe:
        settings = [f"{name}={value}" for name, value in sorted(row.credit.settings.items())]
        fields["credit"] = " ".join([row.credit.rule, row.credit.preset, *settings])
        fields |= {"data": row.data or definition.data, "schedule": row.schedule or definition.schedule}
    fields |= {"task": column.task} | ({"frames": str(column.frames)} if column.frames else {})
    return tuple(fields.items())
