"""`atrl-bench explain TABLE ROW COLUMN`: where one number comes from, as far as the store knows it.

Training, evaluation, prompts, grading, counts, interval, test, the published number beside it and why the two do or do
not compare, the files to open, and the commands that make it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any

from atrl_bench.digests import plain
from atrl_bench.errors import UnknownNameError
from atrl_bench.evaluation.tasks import metric_name
from atrl_bench.experiments.definition import AVERAGE, RowDefinition, as_typed, file_stem
from atrl_bench.experiments.plan import Plan, best_rates, cell_keys, table_options
from atrl_bench.models.templates import TEMPLATES, choose_template
from atrl_bench.printable import Block, Command, Record, blocks_of
from atrl_bench.report.cells import tasks_of
from atrl_bench.report.page import lines_of
from atrl_bench.report.table_model import Column, Table, TableCell
from atrl_bench.report.table_run import read_table
from atrl_bench.results.store import Cell, Run, Store
from atrl_bench.training.describe import differences

NOT_PRINTED = "the paper prints no such number"
CORRECTION = "Benjamini–Hochberg over all differences of the table"


@dataclass(frozen=True)
class Explanation(Record):
    """Everything behind one number of a table; an average has the evaluations of all columns."""

    plan: Plan
    table: Table
    row: RowDefinition
    column: Column
    cell: TableCell
    training: list[Run]
    evaluation: Mapping[str, list[Cell]]
    prompts: Mapping[str, int]  # each template with the number of problems it was drawn for
    aliases: Mapping[str, str]  # what a server called the model, by the cell's key

    def document(self) -> dict[str, Any]:
        return {
            "table": self.table.id,
            "row": self.row.id,
            "column": self.column.id,
            "profile": self.plan.profile.name,
            "folder": str(self.plan.run_dir.root),
            "cell": plain(replace(self.cell, provenance=(), command="")),
            "how": self.how,
            "against": self.against,
            "published": self._published(),
            "training": [_training(run) for run in self.training],
            "row_settings": _row_settings(self.row, self.plan),
            "evaluation": {
                column: [_evaluation(cell, self.aliases[cell.key]) for cell in cells]
                for column, cells in self.evaluation.items()
            },
            "prompts": [{"template": text, "problems": count} for text, count in self.prompts.items()],
            "files": self.files,
            "commands": self.commands,
        }

    def blocks(self) -> Iterable[Block]:
        of = self.document()
        yield f"{of['table']}, row {of['row']}, column {of['column']} (profile {of['profile']})"
        parts: dict[str, Any] = {"The number": self._told("number"), "Against the baseline": self._told("difference")}
        parts |= {"The paper": of["published"], "The row": of["row_settings"]}
        parts |= {f"Training, seed {run['seed']}": run for run in of["training"]}
        for column, cells in of["evaluation"].items():
            parts |= {f"Evaluation on {column}, cell {cell['cell']}": cell for cell in cells}
        drawn = [f"{count} problems: {template}" for template, count in self.prompts.items()]
        parts |= {"Prompts, drawn by problem": drawn if any(self.prompts.values()) else [], "Files": self.files}
        for title, part in parts.items():
            if part:
                yield ""
                yield title
                yield from blocks_of(part)
        if self.commands:
            yield ""
            yield "Again"
            yield from (Command(command, is_next=False) for command in self.commands)

    @property
    def against(self) -> str:
        return self.plan.definition.baseline_of(self.row)

    @property
    def how(self) -> str:
        return " ".join(lines_of("explain_how.txt.j2", estimate=self.cell.estimate, columns=list(self.evaluation)))

    def _told(self, part: str) -> dict[str, str]:
        """What a template says of a part of the number: a name, a colon and the rest, a line each."""
        tasks = next((tasks_of(one.task) for one in self.plan.definition.columns if one.id == self.column.id), ())
        about = {"cell": self.cell, "metric": metric_name(tasks, self.column.metric), "how": self.how}
        lines = lines_of(f"explain_{part}.txt.j2", **about, against=self.against, correction=CORRECTION)
        return dict(line.split(": ", 1) for line in lines)

    def _published(self) -> dict[str, Any]:
        scores = next((item.scores for item in self.table.published if item.id == self.row.id), None)
        printed = scores[self.table.columns.index(self.column)] if scores else None
        if printed is None or printed.score is None:
            return {"score": None, "why": NOT_PRINTED}
        definition = self.plan.definition
        of_column = [name for item in definition.columns if item.id == self.column.id for name in item.footnotes]
        names = dict.fromkeys([*self.row.cell_footnotes.get(self.column.id, ()), *self.row.footnotes, *of_column])
        return {
            "score": str(printed.score),
            "difference": None if printed.difference is None else str(printed.difference),
            "source": self.table.source,
            "comparable": self.table.is_comparable,
            "why": self.table.warning,
            "notes": [" ".join(definition.footnotes[name].split()) for name in names],
        }

    # Where it is, and how to make it again

    @property
    def files(self) -> list[str]:
        run_dir = self.plan.run_dir
        paths = [run_dir.reports / f"{file_stem(self.table.id)}.html", run_dir.store_path]
        for run in self.training:
            if run.checkpoint:
                names = ("recipe.yaml", "metrics.jsonl", "done.json")
                paths += [run_dir.root / run.checkpoint / name for name in names]
        return [str(path) for path in paths if path.exists()]

    @property
    def commands(self) -> list[str]:
        plan, run_dir = self.plan, self.plan.run_dir
        if self.row.not_measured:
            return []
        if self.row.served:
            return [plan.definition.evaluate_command(self.row, run_dir.options)]
        options = [*table_options(plan.definition, plan.seeds), run_dir.training_options]
        names = ",".join(self.evaluation)
        table = f"atrl-bench run-table {as_typed(self.table.id)} --rows {self.row.id} --columns {names}"
        commands = [" ".join([table, *options])]
        if any(self.evaluation.values()):
            commands.append(f"atrl-bench export jsonl {plan.profile.option} --out {quote(str(run_dir.root))}")
        return commands


def explain(plan: Plan, row: str, column: str) -> Explanation:
    """Everything behind one number of a planned table, read from the store alone.

    The plan is the whole table's: a corrected p-value depends on every other difference of it.
    """
    definition = plan.definition
    names = [item.id for item in definition.columns]
    known = [*names, AVERAGE] if definition.average else names
    definition.select([row], None)  # refuses a name that is none, with the nearest
    if column not in known:
        raise UnknownNameError("column", column, known, next_step=f"atrl-bench plan {as_typed(definition.id)}")
    names = names if column == AVERAGE else [column]
    with plan.run_dir.open_store(read_only=plan.run_dir.store_path.is_file()) as store:
        at = plan.at(best_rates(plan, store))
        table, keys = read_table(plan, store), cell_keys(at, store)
        run_keys = [job.run_key for job in at.jobs if job.row.id == row and job.run_key]
        runs = [run for key in run_keys if (run := store.run(key)) is not None]
        cells = {name: [c for key in keys.get((row, name), ()) if (c := store.cell(key))] for name in names}
        stored = [cell for of_column in cells.values() for cell in of_column]
        prompts = _prompts(store, stored)
        aliases = {one.key: ", ".join(store.answered_as(one.key)) for one in stored}
    position = [item.id for item in table.columns].index(column)
    cell = next(item for item in table.rows if item.id == row).cells[position]
    return Explanation(plan, table, definition.row(row), table.columns[position], cell, runs, cells, prompts, aliases)


# What it was made from ------------------------------------------------------------------------------------------------


def _row_settings(row: RowDefinition, plan: Plan) -> dict[str, Any]:
    if row.not_measured:
        return {"not_measured": " ".join(row.not_measured.split())}
    if row.served:
        return {"recipe": "none: a model that only an endpoint has", "served": row.served}
    base = plan.run_dir.with_model(plan.definition.model_of(row)).profile.model
    if not row.recipe:
        return {"recipe": "none: the base model, untrained", "base": base}
    fields = plan.definition.recipe_fields(row)
    differs = differences(plan.definition.recipe_of(row), plan.profile)
    official = {"unlike the official settings": "; ".join(each.text for each in differs)} if differs else {}
    return {"recipe": row.recipe, "base": base, **fields, **official}


def _training(run: Run) -> dict[str, Any]:
    fields = ("seed", "base_digest", "data_digest", "recipe", "sizes")
    return {
        "run": run.key,
        "state": run.state,
        **({"reason": run.reason} if run.reason else {}),
        **{name: run.spec.get(name) for name in fields},
        "checkpoint": run.checkpoint,
        "digest": run.digest,
        "seconds": run.seconds,
        "summary": run.summary,
    }


def _evaluation(cell: Cell, aliases: str) -> dict[str, Any]:
    return {
        "cell": cell.key,
        "state": cell.state,
        "answers": cell.num_responses,
        "graded": cell.num_graded,
        **({"answered_as": aliases} if aliases else {}),
        **cell.spec,
    }


def _prompts(store: Store, cells: Sequence[Cell]) -> dict[str, int]:
    """The templates, each with the number of problems it was drawn for, a draw being a hash, or chosen for."""
    drawn = [template.format(question="{question}") for template in TEMPLATES]  # as the model is asked: \boxed{}
    used = Counter[str](dict.fromkeys(drawn, 0))
    for cell in cells:
        seed, template = int(cell.spec.get("run_seed", 0)), (cell.spec.get("prompt") or {}).get("template")
        used.update(template or drawn[choose_template(seed, name)] for name in store.problem_ids(cell.key))
    return dict(used)
