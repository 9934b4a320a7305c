"""`atrl-bench explain TABLE ROW COLUMN`: where one number comes from, as far as the store knows it.

Training, evaluation, prompts, grading, counts, interval, test, the published number beside it and why the two do or do
not compare, the files to open, and the commands that make it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from atrl_bench.analysis.flatten import flat
from atrl_bench.errors import UnknownNameError
from atrl_bench.experiments.definition import AVERAGE, ColumnDefinition, RowDefinition
from atrl_bench.experiments.plan import Plan, cell_keys, seeds_options
from atrl_bench.experiments.progress import duration
from atrl_bench.models.templates import TEMPLATES, choose_template
from atrl_bench.printable import Block, Command, Record, Rows
from atrl_bench.report.table_model import Table, TableCell
from atrl_bench.report.table_run import read_table
from atrl_bench.results import numbers
from atrl_bench.results.statistics import Estimate
from atrl_bench.results.store import Cell, Run, Store

Pairs = Iterable[tuple[str, Any]]  # a name and its value, a line each


@dataclass(frozen=True)
class Number:
    """A score in percent with its interval, how that was computed, and what became of the answers behind it."""

    score: float
    metric: str
    interval_95: tuple[float, float]
    how: str
    problems: int
    problems_expected: int
    groups: int
    repeats: int
    answers: Mapping[str, int]
    skipped_rows: Mapping[str, str]
    mean_over_repeats: float | None = None  # where there are several
    training_seeds: int | None = None  # where it was trained here
    seed_sd: float | None = None

    def document(self) -> dict[str, Any]:
        """Return its fields, without those that do not apply."""
        values = asdict(self)
        if self.mean_over_repeats is None:
            del values["mean_over_repeats"]
        if self.training_seeds is None:
            del values["training_seeds"], values["seed_sd"]
        return values

    def pairs(self) -> Pairs:
        """Yield what a person reads."""
        low, high = self.interval_95
        yield "score", f"{self.score:.2f} % ({self.metric}), 95 % interval {low:.1f} to {high:.1f}"
        yield "how", self.how
        of_expected = f"{self.problems} of {self.problems_expected} in {self.groups} groups"
        yield "problems", f"{of_expected}, {self.repeats} repeats each"
        yield "answers", ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in self.answers.items())
        if self.mean_over_repeats is not None:
            yield f"mean@{self.repeats}", f"{self.mean_over_repeats:.2f} %"
        if self.training_seeds is not None:
            sd = self.seed_sd
            spread = "seed variance not measured" if sd is None else f"standard deviation {sd:.2f} points"
            yield "training seeds", f"{self.training_seeds}: {spread}"
        if self.skipped_rows:
            yield "skipped", f"{len(self.skipped_rows)} rows of the dataset"


@dataclass(frozen=True)
class BaselineDifference:
    """The difference from the baseline row in points, with its test."""

    points: float
    interval_95: tuple[float, float]
    p: float
    test: str
    common_problems: int
    against: str
    corrected_p: float | None
    significant: bool
    corrected_how: str = "Benjamini–Hochberg over all differences of the table"

    def pairs(self) -> Pairs:
        """Yield what a person reads."""
        low, high = self.interval_95
        points = f"{self.points:+.2f} points from {self.against}"
        yield "difference", f"{points}, 95 % interval {low:+.1f} to {high:+.1f}"
        yield "test", f"p {numbers.p_value(self.p)}, {self.test}, over {self.common_problems} common problems"
        if self.corrected_p is not None:
            verdict = "significant" if self.significant else "not significant"
            yield "corrected", f"p {numbers.p_value(self.corrected_p)}, {self.corrected_how}: {verdict}"


@dataclass(frozen=True)
class PublishedNumber:
    """The paper's number beside ours, and why the two do or do not compare."""

    score: str
    difference: str | None
    source: str
    comparable: bool
    why: str
    notes: list[str]

    def pairs(self) -> Pairs:
        """Yield what a person reads."""
        sign = "" if self.difference is None or self.difference.startswith("-") else "+"
        change = f", {sign}{self.difference} points from its baseline" if self.difference else ""
        yield "score", f"{self.score} %{change}"
        yield "source", self.source
        yield "comparable" if self.comparable else "not comparable", self.why
        for note in self.notes:
            yield "note", note


@dataclass(frozen=True)
class Explanation(Record):
    """Everything behind one number of a table."""

    table: str
    row: str
    column: str
    profile: str
    folder: str
    state: str
    reason: str
    number: Number | None
    difference: BaselineDifference | None
    published: PublishedNumber | None
    training: list[Run]
    row_settings: Mapping[str, Any]
    evaluation: Mapping[str, list[Cell]]
    prompts: Mapping[str, int]  # each template with the number of problems it was drawn for
    files: list[str]
    commands: list[str]

    def document(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        state = {"state": self.state} | ({"reason": self.reason} if self.reason else {})
        return {
            "table": self.table,
            "row": self.row,
            "column": self.column,
            "profile": self.profile,
            "folder": self.folder,
            "number": state | (self.number.document() if self.number else {}),
            "difference": asdict(self.difference) if self.difference else None,
            "published": asdict(self.published) if self.published else {"score": None, "why": NOT_PRINTED},
            "training": [_training(run) for run in self.training],
            "row_settings": self.row_settings,
            "evaluation": {column: [_evaluation(cell) for cell in cells] for column, cells in self.evaluation.items()},
            "prompts": [{"template": text, "problems": count} for text, count in self.prompts.items()],
            "files": self.files,
            "commands": self.commands,
        }

    def blocks(self) -> Iterable[Block]:
        """Yield the number, what it stands against, what it was made from, and how to make it again."""
        yield f"{self.table}, row {self.row}, column {self.column} (profile {self.profile})"
        yield from _section("The number", self._number_pairs())
        yield from _section("Against the baseline", self.difference.pairs() if self.difference else ())
        yield from _section("The paper", self.published.pairs() if self.published else [("score", NOT_PRINTED)])
        yield from _section("The row", _set_pairs(self.row_settings))
        for run in self.training:
            yield from _section(f"Training, seed {run.spec.get('seed')}", _training_pairs(run))
        for column, cells in self.evaluation.items():
            for cell in cells:
                yield from _section(f"Evaluation on {column}", _set_pairs(_evaluation(cell)))
        if any(self.prompts.values()):
            pairs = [(f"{count} problems", template) for template, count in self.prompts.items()]
            yield from _section("Prompts, drawn by problem", pairs)
        yield ""
        yield "Files"
        yield Rows([(path,) for path in self.files])
        if self.commands:
            yield ""
            yield "Again"
            yield from (Command(command, is_next=False) for command in self.commands)

    def _number_pairs(self) -> Pairs:
        if self.number is not None:
            yield from self.number.pairs()
        if self.number is None or self.state != "measured":
            yield "state", f"{self.state}: {self.reason}" if self.reason else self.state


NOT_PRINTED = "the paper prints no such number"


def explain(plan: Plan, row: str, column: str) -> Explanation:
    """Return everything behind one number of a planned table, read from the store alone.

    The plan is the whole table's: a corrected p-value depends on every other difference of it.
    """
    definition = plan.definition
    columns = [item.id for item in definition.columns]
    _check(plan, row, column)
    names = columns if column == AVERAGE else [column]
    with plan.run_dir.open_store() as store:
        table, keys = read_table(plan, store), cell_keys(plan, store)
        run_keys = [job.run_key for job in plan.jobs if job.row.id == row and job.run_key]
        runs = [run for key in run_keys if (run := store.run(key)) is not None]
        cells = {name: [c for key in keys.get((row, name), ()) if (c := store.cell(key))] for name in names}
        prompts = _prompts(store, [cell for of_column in cells.values() for cell in of_column])
    row_definition = definition.row(row)
    cell = _cell(table, row, column)
    return Explanation(
        table=definition.id,
        row=row,
        column=column,
        profile=plan.profile.name,
        folder=str(plan.run_dir.root),
        state=cell.state,
        reason=cell.reason,
        number=_number(cell, table, column, names),
        difference=_difference(cell, row_definition, plan),
        published=_published(table, row_definition, column, plan),
        training=runs,
        row_settings=_row_settings(row_definition, plan),
        evaluation=cells,
        prompts=prompts,
        files=_files(plan, table, runs),
        commands=_commands(plan, row_definition, [c for c in definition.columns if c.id in names], cells),
    )


def _check(plan: Plan, row: str, column: str) -> None:
    definition = plan.definition
    rows = [item.id for item in definition.rows]
    columns = [*(item.id for item in definition.columns), *([AVERAGE] if definition.average else [])]
    if row not in rows:
        raise UnknownNameError("row", row, rows, next_step=f"atrl-bench explain {definition.id} ROW COLUMN")
    if column not in columns:
        raise UnknownNameError("column", column, columns, next_step=f"atrl-bench explain {definition.id} {row} COLUMN")


# What the number is ---------------------------------------------------------------------------------------------------


def _number(cell: TableCell, table: Table, column: str, names: Sequence[str]) -> Number | None:
    if cell.estimate is None:
        return None
    low, high = cell.estimate.interval()
    return Number(
        score=_percent(cell.estimate.mean),
        metric=next(item.metric for item in table.columns if item.id == column),
        interval_95=(_percent(low), _percent(high)),
        how=_how(cell.estimate, names),
        problems=cell.estimate.num_problems,
        problems_expected=cell.num_expected,
        groups=cell.estimate.num_groups,
        repeats=cell.num_repeats,
        answers={name: count for name, count in vars(cell.counts).items() if count},
        skipped_rows=dict(cell.skipped),
        mean_over_repeats=_percent(cell.all_repeats.mean) if cell.all_repeats and cell.num_repeats > 1 else None,
        training_seeds=cell.seeds.num_seeds if cell.seeds else None,
        seed_sd=_percent(cell.seeds.sd) if cell.seeds and cell.seeds.sd is not None else None,
    )


def _how(estimate: Estimate, names: Sequence[str]) -> str:
    if len(names) > 1:
        return f"unweighted mean of {', '.join(names)}; their errors added as of independent benchmarks"
    if estimate.stderr == 0:
        return "every problem scored the same: one-sided interval from the number of groups"
    return (
        f"mean over problems of the mean over repeats; standard error {_percent(estimate.stderr)} clustered by problem "
        f"group, Student's t with {estimate.degrees:.0f} degrees of freedom"
    )


def _difference(cell: TableCell, row: RowDefinition, plan: Plan) -> BaselineDifference | None:
    if cell.difference is None:
        return None
    estimate = cell.difference.estimate
    low, high = estimate.interval()
    return BaselineDifference(
        points=_percent(estimate.mean),
        interval_95=(_percent(low), _percent(high)),
        p=cell.difference.p_value,
        test=cell.difference.test,
        common_problems=estimate.num_problems,
        against=plan.definition.baseline_of(row),
        corrected_p=cell.q_value,
        significant=cell.is_significant,
    )


def _published(table: Table, row: RowDefinition, column: str, plan: Plan) -> PublishedNumber | None:
    position = [item.id for item in table.columns].index(column)
    scores = next((item.scores for item in table.published if item.id == row.id), ())
    printed = scores[position] if position < len(scores) else None
    if printed is None or printed.score is None:
        return None
    of_column = [name for item in plan.definition.columns if item.id == column for name in item.footnotes]
    names = dict.fromkeys([*row.cell_footnotes.get(column, ()), *row.footnotes, *of_column])
    return PublishedNumber(
        score=str(printed.score),
        difference=None if printed.difference is None else str(printed.difference),
        source=table.source,
        comparable=table.is_comparable,
        why=table.warning,
        notes=[" ".join(plan.definition.footnotes[name].split()) for name in names],
    )


# What it was made from ------------------------------------------------------------------------------------------------


def _row_settings(row: RowDefinition, plan: Plan) -> dict[str, Any]:
    """Return what the definition fixes of the row, whether or not it was trained already."""
    if row.not_measured:
        return {"not_measured": " ".join(row.not_measured.split())}
    if row.served:
        return {"recipe": "none: a model that only an endpoint has", "served": row.served}
    base = plan.run_dir.with_model(plan.definition.model_of(row)).profile.model
    if not row.recipe:
        return {"recipe": "none: the base model, untrained", "base": base}
    return {"recipe": row.recipe, "base": base, **plan.definition.recipe_fields(row)}


def _training(run: Run) -> dict[str, Any]:
    spec = run.spec
    return {
        "run": run.key,
        "seed": spec.get("seed"),
        "state": run.state,
        **({"reason": run.reason} if run.reason else {}),
        "base_digest": spec.get("base_digest"),
        "data_digest": spec.get("data_digest"),
        "recipe": spec.get("recipe"),
        "sizes": spec.get("sizes"),
        "checkpoint": run.checkpoint,
        "digest": run.digest,
        "seconds": run.seconds,
        "summary": run.summary,
    }


def _evaluation(cell: Cell) -> dict[str, Any]:
    return {
        "cell": cell.key,
        "state": cell.state,
        "answers": cell.num_responses,
        "graded": cell.num_graded,
        **cell.spec,
    }


def _prompts(store: Store, cells: Sequence[Cell]) -> dict[str, int]:
    """Return the templates, each with the number of problems it was drawn for; a draw is a hash: repeatable."""
    used: Counter[int] = Counter()
    for cell in cells:
        seed = int(cell.spec.get("run_seed", 0))
        used.update(choose_template(seed, problem.problem_id) for problem in store.problems(cell.key))
    return {text: used[number] for number, text in enumerate(TEMPLATES)}


# Where it is, and how to make it again --------------------------------------------------------------------------------


def _files(plan: Plan, table: Table, runs: Sequence[Run]) -> list[str]:
    run_dir = plan.run_dir
    paths = [run_dir.reports / f"{table.id}.html", run_dir.store_path]
    for run in runs:
        if run.checkpoint:
            paths += [run_dir.root / run.checkpoint / name for name in ("recipe.yaml", "metrics.jsonl", "done.json")]
    return [str(path) for path in paths if Path(path).exists()]


def _commands(
    plan: Plan,
    row: RowDefinition,
    columns: Sequence[ColumnDefinition],
    cells: Mapping[str, Sequence[Cell]],
) -> list[str]:
    if row.not_measured:
        return []
    run_dir, table = plan.run_dir, plan.definition.id
    if row.served:
        return [plan.definition.evaluate_command(row, run_dir.options)]
    options = [*seeds_options(plan.definition, plan.seeds), run_dir.options]
    names = ",".join(column.id for column in columns)
    commands = [" ".join([f"atrl-bench run-table {table} --rows {row.id} --columns {names}", *options])]
    if any(cells.values()):
        commands.append(f"atrl-bench export jsonl --profile {plan.profile.name} --out {run_dir.root}")
    return commands


def _cell(table: Table, row: str, column: str) -> TableCell:
    position = [item.id for item in table.columns].index(column)
    return next(item for item in table.rows if item.id == row).cells[position]


def _percent(share: float) -> float:
    return round(100 * share, 4)


# In words -------------------------------------------------------------------------------------------------------------


def _section(title: str, pairs: Pairs) -> Iterable[Block]:
    rows = [(name, str(value)) for name, value in pairs]
    if rows:
        yield ""
        yield title
        yield Rows(rows)


def _training_pairs(run: Run) -> Pairs:
    for name, value in _training(run).items():
        if name == "seconds" and value is not None:
            yield "time", duration(value)
        elif name == "summary":
            yield "figures", _joined({key: f"{n:.4g}" if isinstance(n, float) else n for key, n in value.items()})
        elif name != "seed":
            yield from _set_pairs({name: value})


def _set_pairs(values: Mapping[str, Any]) -> Pairs:
    """Yield the settings that are set, those of one part together."""
    for name, value in values.items():
        text = _joined(value) if isinstance(value, Mapping) else value
        if text not in (None, "", [], ()):
            yield name, text


def _joined(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in flat(values).items() if value not in (None, "", [], ()))
