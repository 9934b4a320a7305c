"""A table as data: its rows, its columns, what the paper printed and what the paper leaves open (D10).

`reports/<paper>/tables/<name>.yaml` says what to train and evaluate; what is printed stands beside it, in `scores/`.
A table is called `<paper>:<name>`; those of `OWN` are called by their names alone. An ablation is a table whose rows
differ in their credit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import Any, Literal, Self, TypeVar

from pydantic import Field, field_validator, model_validator

from atrl_bench.errors import AtrlBenchError, UnknownNameError
from atrl_bench.evaluation.image_condition import ImageCondition
from atrl_bench.experiments.protocol import StatedProtocol, protocol_of
from atrl_bench.plugins import given_papers, paper_folders
from atrl_bench.profiles import Profile
from atrl_bench.settings import Settings, read_settings
from atrl_bench.training.recipe import CreditChoice, Recipe, load_recipe

Schedule = Literal["strict", "minibatch4"]
ComparedAt = Literal["equal_rate", "best_rate"]
AVERAGE = "average"  # the column that no definition lists
OWN = "at_rl"  # the paper whose tables need no prefix
MAIN_TABLE = "main_7b"  # the one that people wait for, and whose trainings most others share


class ColumnDefinition(Settings):
    """One benchmark under one metric; a video benchmark also at a number of frames."""

    id: str = Field(description="how the command line calls it")
    label: str = Field(description="how a report prints it")
    subscript: str = Field("", description="small text after the label")
    task: str = Field(description="a task or a suite of `atrl-bench list tasks`")
    metric: str = Field(
        "headline@1",
        pattern=r"^(acc@1|[a-z][a-z_]*@[1-9]\d*)$",
        description="acc@1; mean@N over N repeats; S@N, a statistic of the task; headline@N, the task's own number",
    )
    frames: int | None = Field(None, gt=0, multiple_of=2, description="frames of a video; none: the profile's")
    image: str | None = Field(None, description="how pictures are withheld, as `task@shuffled`; none: they are shown")
    relies_on: str | None = Field(
        None, description="the column of the same task with its pictures: this one prints the reliance, that less this"
    )
    footnotes: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _task_at_condition(cls, content: Any) -> Any:
        task, at, image = str(content.get("task", "")).partition("@") if isinstance(content, dict) else ("", "", "")
        if not at:
            return content
        try:
            return {**content, "task": task, "image": str(ImageCondition.parse(image))}
        except AtrlBenchError as error:  # pydantic tells with file and line what is a ValueError
            raise ValueError(f"{error.what} {error.why}") from None

    @property
    def text(self) -> str:
        return column_title(self.label, self.subscript)


def column_title(label: str, subscript: str) -> str:
    """A column's name where no small text can stand: a sentence, a figure, a terminal."""
    return f"{label} {subscript}".rstrip()


class GroupDefinition(Settings):
    """A heading over neighbouring rows, which may have a baseline of their own."""

    id: str
    label: str
    baseline: str | None = Field(None, description="the row that this group's differences are taken against")
    columns: tuple[str, ...] = Field((), description="the columns that its rows are evaluated on; none: all")
    oracle: str | None = Field(
        None, description="the row that knows where credit belongs: its gain is the headroom, which is no bound"
    )


class RowDefinition(Settings):
    """One model of the table: the base model itself, the base model after one recipe, or a model behind an endpoint."""

    id: str = Field(pattern=r"^[^\s,/]+$", description="how the command line and files call it")
    label: str = Field(description="how a report prints it")
    group: str | None = Field(None, description="the heading it stands under")
    recipe: str | None = Field(
        None, description="a recipe of `atrl-bench list recipes`; none: the base model, untrained"
    )
    credit: CreditChoice = Field(CreditChoice(rule="uniform"), description="a credit rule, or {rule, preset, settings}")
    model: str | None = Field(None, description="base model; none: the table's. The mini model stands for every one")
    data: str | None = Field(None, description="training set; none: the table's")
    schedule: Schedule | None = Field(None, description="updates per rollout; none: the table's")
    settings: dict[str, Any] = Field({}, description="other fields of its recipe, or sizes: `kl_coef: 0`")
    served: str | None = Field(None, description="the name of a model that only an endpoint has, in place of a recipe")
    not_measured: str | None = Field(None, description="why nothing here can measure this row yet")
    printed_by: str | None = Field(None, description="the paper whose own scores of this row's model stand beside it")
    protocol: StatedProtocol | Literal["printed"] | None = Field(
        None, description="how it is asked: what differs from the profile, or `printed`, as printed_by's paper does"
    )
    compared_with: str | None = Field(None, description="the row that differs from this one in its credit alone")
    in_paper: bool = Field(True, description="false for rows that the paper does not have")
    added_by: str = Field("", description="the options of `atrl-bench ablate` that added this row to its ablation")
    footnotes: tuple[str, ...] = ()
    cell_footnotes: dict[str, tuple[str, ...]] = Field({}, description="footnotes on single printed scores, by column")

    @model_validator(mode="after")
    def _measurable_or_not(self) -> Self:
        if sum(map(bool, (self.recipe, self.served, self.not_measured))) > 1:
            raise ValueError(f"row {self.id} has two of recipe, served and not_measured; keep one")
        if self.protocol == "printed" and self.printed_by is None:
            raise ValueError(f"row {self.id} is asked as printed; printed_by says by which paper")
        if self.protocol and self.served:
            raise ValueError(f"row {self.id} is served, and its server answers as it does: it takes no protocol")
        if not self.recipe and self.credit.rule != "uniform":
            raise ValueError(f"row {self.id} has a credit rule but no recipe that would use it")
        return self


class TableSizes(Settings):
    """How much of a table one profile trains, where that differs from what the table says."""

    seeds: tuple[int, ...] | None = Field(None, min_length=1, description="training seeds when the command names none")
    rates: tuple[float, ...] | None = Field(None, description="the learning rates of best_rate")


class TableDefinition(Settings):
    """One table, complete."""

    id: str
    kind: Literal["table", "ablation"] = Field("table", description="ablations are what `atrl-bench ablate` runs")
    title: str = Field(description="one line, for lists and headings")
    caption: str = Field(description="what the numbers are")
    source: str = Field(description="which table of the paper this is")
    label: str = Field(description="the LaTeX label")
    baseline: str = Field(description="the row that differences are taken against, unless a group has its own")
    point: str | None = Field(None, description="the row that `ablate --set` starts from; ablations have one")
    average: bool = Field(True, description="whether the last column is the mean of all others")
    seeds: tuple[int, ...] = Field((0,), min_length=1, description="training seeds when the command names none")
    model: str | None = Field(None, description="base model of the rows that name none; none: the profile's")
    shaped_like: str | None = Field(None, description="a model of its models' shape, which prices unfetched ones")
    data: str = Field(description="training set of the rows that name none")
    schedule: Schedule = Field(description="schedule of the rows that name none")
    compared_at: ComparedAt = Field(
        "equal_rate",
        description="best_rate: rows train at several rates; each seed is judged at the one others pick",
    )
    rates: tuple[float, ...] = Field(
        (0.5, 1.0, 2.0, 4.0), description="the learning rates of best_rate, in those of the profile; 1 among them"
    )
    profiles: dict[str, TableSizes] = Field({}, description="other seeds and rates, by profile")
    on_generated_data: str | None = Field(None, description="the table that stands for this one there")
    comparable_under: tuple[str, ...] = Field(("paper",), description="profiles of which the printed scores are")
    of_worlds: bool = Field(False, description="whether its data is generated: no profile with real data measures it")
    columns: tuple[ColumnDefinition, ...] = Field(min_length=1)
    groups: tuple[GroupDefinition, ...] = ()
    rows: tuple[RowDefinition, ...] = Field(min_length=1)
    pairs: tuple[tuple[str, str], ...] = Field((), description="further rows to compare that differ in credit alone")
    footnotes: dict[str, str] = Field({})

    @field_validator("rates")
    @classmethod
    def _different_rates(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if 1.0 not in value or len(set(value)) < len(value) or min(value) <= 0:
            raise ValueError("the rates are different positive numbers, 1 among them: what rows have at an equal rate")
        return value

    @model_validator(mode="after")
    def _names_exist(self) -> Self:
        for kind, names in (("row", [row.id for row in self.rows]), ("column", [column.id for column in self.columns])):
            for name, count in Counter(names).items():
                if count > 1:
                    raise ValueError(f"{kind} {name} is there twice")
        if AVERAGE in (column.id for column in self.columns):
            raise ValueError(
                f"column {AVERAGE} is the mean of the others, which no definition lists; name it otherwise"
            )
        for row in self.rows:
            if row.compared_with == row.id:
                raise ValueError(f"row {row.id} is compared with itself")
        for who, named, known, otherwise in self._references():
            if named is not None and named not in known:
                raise ValueError(f"{who} {named}, which is {otherwise}")
        if (self.kind == "ablation") != (self.point is not None):
            raise ValueError("an ablation names its point, the row that `ablate --set` starts from; a table has none")
        return self

    def _references(self) -> Iterator[tuple[str, str | None, Collection[str], str]]:
        """Each (who names, what, of what there is, what another name is)."""
        rows, columns = {row.id for row in self.rows}, {column.id for column in self.columns}
        groups, compared = {group.id for group in self.groups}, {row.id for row in self.rows if row.compared_with}
        yield "the baseline is", self.baseline, rows, "no row"
        yield "the point is", self.point, rows, "no row"
        for shown in self.columns:
            yield f"column {shown.id} relies on", shown.relies_on, columns, "no column"
        for group in self.groups:
            yield f"the baseline of group {group.id} is", group.baseline, rows, "no row"
            yield f"the oracle of group {group.id} is", group.oracle, compared, "no row that is compared with another"
            for column in group.columns:
                yield f"group {group.id} is evaluated on", column, columns, "no column"
        for row in self.rows:
            yield f"row {row.id} is in group", row.group, groups, "not defined"
            yield f"row {row.id} is compared with", row.compared_with, rows, "no row"
            for column in row.cell_footnotes:
                yield f"row {row.id} has a footnote on", column, {*columns, AVERAGE}, "no column"
        for name in chain(*self.pairs):
            yield "the pairs name", name, rows, "no row"
        footnotes = [(row.id, n) for row in self.rows for n in (*row.footnotes, *chain(*row.cell_footnotes.values()))]
        footnotes += [(column.id, n) for column in self.columns for n in column.footnotes]
        for item, footnote in footnotes:
            yield f"{item} refers to footnote", footnote, self.footnotes, "not defined"

    def under(self, profile: Profile) -> TableDefinition:
        changes: dict[str, Any] = self.profiles.get(profile.name, TableSizes()).model_dump(exclude_none=True)
        if self.of_worlds and not profile.generated_data:
            reason = f"Its worlds are small and generated: atrl-bench run-table {as_typed(self.id)} --profile mini"
            unmeasured = {"recipe": None, "not_measured": reason}
            changes["rows"] = tuple(row.model_copy(update=unmeasured) for row in self.rows)
        return self.model_copy(update=changes)

    def row(self, name: str) -> RowDefinition:
        return next(row for row in self.rows if row.id == name)

    @property
    def credit_pairs(self) -> list[tuple[str, str]]:
        """The rows that differ in their credit alone, as (row, other); the one without credit is the other."""
        plain = {row.id for row in self.rows if row.credit.rule == "uniform"}
        named = [(row.id, row.compared_with) for row in self.rows if row.compared_with]
        turned = [(other, row) if row in plain and other not in plain else (row, other) for row, other in named]
        return [*turned, *self.pairs]

    def baseline_of(self, row: RowDefinition) -> str:
        of_group = {group.id: group.baseline for group in self.groups}
        return of_group.get(row.group or "") or self.baseline

    def columns_of(self, row: RowDefinition) -> tuple[ColumnDefinition, ...]:
        of_group = next((group.columns for group in self.groups if group.id == row.group), ())
        return tuple(column for column in self.columns if not of_group or column.id in of_group)

    def protocol_of(self, row: RowDefinition) -> StatedProtocol | None:
        """How a row is asked where not as the profile says."""
        if row.protocol != "printed":
            return row.protocol
        folders = paper_folders()
        if row.printed_by not in folders:
            raise UnknownNameError("paper", row.printed_by or "", folders)
        return protocol_of(folders[row.printed_by])

    def model_of(self, row: RowDefinition) -> str | None:
        """None for the profile's."""
        return row.model or self.model

    def recipe_fields(self, row: RowDefinition) -> dict[str, Any]:
        """What the table fixes of the row's recipe, without a schedule or credit where the recipe has none."""
        fields = {
            "credit": row.credit.model_dump(),
            "data": row.data or self.data,
            "schedule": row.schedule or self.schedule,
        }
        usual = {"credit": row.credit.rule == "uniform", "schedule": row.schedule is None}
        of_recipe = type(load_recipe(row.recipe)).model_fields if row.recipe else fields
        kept = {name: value for name, value in fields.items() if name in of_recipe or not usual.get(name)}
        return kept | row.settings

    def recipe_of(self, row: RowDefinition) -> Recipe:
        return load_recipe(row.recipe or "", **self.recipe_fields(row))

    def recipes(self) -> dict[str, Recipe]:
        return {row.id: self.recipe_of(row) for row in self.rows if row.recipe}

    def evaluate_command(self, row: RowDefinition, options: str) -> str:
        tasks: dict[int | None, list[str]] = {}
        for column in self.columns:
            tasks.setdefault(column.frames, []).append(column.task)
        return " && ".join(
            f"atrl-bench evaluate {row.served} --base-url URL --tasks {','.join(dict.fromkeys(names))}"
            + (f" --frames {frames} {options}" if frames else f" {options}")
            for frames, names in tasks.items()
        )

    def select(self, rows: Sequence[str] | None = None, columns: Sequence[str] | None = None) -> TableDefinition:
        """The table with these rows and columns only, in its own order; None keeps all that the rows need."""
        kept = _pick("row", self.rows, rows, f"atrl-bench list rows {as_typed(self.id)}")
        if columns is None:
            columns = [column.id for row in kept for column in self.columns_of(row)]
        shown = [column.relies_on for column in self.columns if column.id in columns and column.relies_on]
        picked = _pick("column", self.columns, [*columns, *shown], f"atrl-bench plan {as_typed(self.id)}")
        return self.model_copy(update={"rows": kept, "columns": picked})

    def as_measured(self, profile: Profile, rates: Mapping[str, str] | None = None) -> TableDefinition:
        """The table with the profile's name in every label, for rows cut out of their page; not of paper's."""
        if rates:
            at_rates = [
                _labelled(row, f"{row.label}, {rates[row.id]}×") if row.id in rates else row for row in self.rows
            ]
            return self.model_copy(update={"rows": tuple(at_rates)}).as_measured(profile)
        if profile.name in self.comparable_under:
            return self
        rows = [
            _labelled(row, f"{profile.name}{' in place of' if self._names_a_model(row.label) else ':'} {row.label}")
            for row in self.rows
        ]
        groups = [
            _labelled(group, f"{profile.name} in place of {group.label}") if self._names_a_model(group.label) else group
            for group in self.groups
        ]
        caption = self.caption
        if self._names_a_model(caption):
            caption = f"Profile {profile.name} in place of the models named here. {caption}"
        return self.model_copy(update={"rows": tuple(rows), "groups": tuple(groups), "caption": caption})

    def _names_a_model(self, label: str) -> bool:
        models = filter(None, map(self.model_of, self.rows))
        families = {re.split(r"-\d", model.rpartition("/")[2], maxsplit=1)[0] for model in models}
        return any(family in label for family in families)

    def group_label(self, row: RowDefinition) -> str:
        return next((group.label for group in self.groups if group.id == row.group), "")

    def row_label(self, row: str, beside: str | None = None) -> str:
        """The row's label, with its group where a row that is not `beside` it is called the same at any rate."""
        rows = {item.id: item for item in self.rows}
        if row not in rows:
            return row
        named = rows[row]
        namesakes = [item for item in self.rows if _RATE.sub("", item.label) == _RATE.sub("", named.label)]
        if len(namesakes) == 1 or (beside in rows and rows[beside].group == named.group):
            return named.label
        return f"{named.label} ({self.group_label(named).partition(': ')[0]})"

    def column_label(self, column: str) -> str:
        return next((item.text for item in self.columns if item.id == column), "Average")


_RATE = re.compile(r", [^ ]+×$")  # as `as_measured` writes it
LabelledT = TypeVar("LabelledT", RowDefinition, GroupDefinition)


def _labelled(item: LabelledT, label: str) -> LabelledT:
    return item.model_copy(update={"label": label})


ItemT = TypeVar("ItemT", RowDefinition, ColumnDefinition)


def table_of_cells(name: str, **content: Any) -> TableDefinition:
    """A table of what was evaluated by itself: no file has it, and nothing is trained for it."""
    usual = {"id": name, "source": "", "label": f"tab:{name}", "data": "", "schedule": "strict"}
    return TableDefinition.model_validate(usual | content)


def list_tables(paper: str | None = None) -> list[str]:
    """The tables of all papers, or of one; ablations are among them."""
    return sorted(_table_files(paper))


def paper_of(table: str) -> tuple[str, str]:
    """The paper that a table is of, and its name there."""
    paper, _, name = table.rpartition(":")
    return paper or OWN, name


def as_typed(table: str) -> str:
    """The table as a command names it: with the folder of its paper, if no package has that."""
    home = given_papers().get(paper_of(table)[0])
    return table if home is None else f"{table} --paper {quote(str(home))}"


def file_stem(table: str) -> str:
    """What the files of a table are called: a colon in an address would end its scheme."""
    return table.replace(":", ".")


def _table_files(paper: str | None = None) -> dict[str, Path]:
    return {
        path.stem if name == OWN else f"{name}:{path.stem}": path
        for name, home in paper_folders().items()
        for path in (home / "tables").glob("*.yaml")
        if paper in (None, name)
    }


def list_ablations() -> list[str]:
    return [name for name in list_tables() if load_table(name).kind == "ablation"]


def load_table(table: str) -> TableDefinition:
    table, files = table.removeprefix(f"{OWN}:"), _table_files()
    if table not in files:
        raise UnknownNameError("table", table, files)
    return _read_table(files[table], table)


def table_under(table: str, profile: Profile) -> TableDefinition:
    """The table, or that which stands for it where data is generated."""
    definition = load_table(table)
    if definition.on_generated_data is None or not profile.generated_data:
        return definition
    return load_table(definition.on_generated_data).model_copy(update={"id": definition.id})


@cache
def _read_table(path: Path, name: str) -> TableDefinition:
    return read_settings(path, TableDefinition, id=name)


def _pick(kind: str, items: tuple[ItemT, ...], names: Sequence[str] | None, next_step: str) -> tuple[ItemT, ...]:
    if names is None:
        return items
    ids = [item.id for item in items]
    for name in names:
        if name not in ids:
            raise UnknownNameError(kind, name, ids, next_step=next_step)
    return tuple(item for item in items if item.id in names)
