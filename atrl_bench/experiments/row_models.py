"""The model of a table's row, named as a person would: `main_7b:grpo_atrl`, or `main_7b:grpo_atrl:1` for seed 1."""

from __future__ import annotations

from dataclasses import dataclass

from atrl_bench.errors import MissingDataError, UnknownNameError
from atrl_bench.experiments.ablation import with_saved_points
from atrl_bench.experiments.definition import TableDefinition, as_typed, list_tables, table_under
from atrl_bench.experiments.plan import best_rates, plan_definition
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.models.local import model_ref
from atrl_bench.results.store import Run, Store


@dataclass(frozen=True)
class RowModel:
    """The model that a row's numbers are of; `run` is its training, None for a base model."""

    name: str
    digest: str
    run: Run | None


def names_a_row(name: str) -> bool:
    return split_name(name)[0] != name


def table_of(name: str, run_dir: RunDir) -> TableDefinition:
    return with_saved_points(table_under(split_name(name)[0], run_dir.profile), run_dir)


def split_name(name: str) -> tuple[str, list[str]]:
    """The table, which may be `PAPER:TABLE`, and what follows; the whole name where it begins with no table."""
    parts, tables = name.split(":"), list_tables()
    for number in (2, 1):
        if len(parts) > number and (table := ":".join(parts[:number])) in tables:
            return table, parts[number:]
    return name, []


def row_model(name: str, run_dir: RunDir, store: Store) -> RowModel:
    """The model of a row, of the first trained seed, at the rate it is judged at, the profile's until that is known."""
    table, (row, *seed) = split_name(name)
    definition = table_of(name, run_dir)
    if row not in {known.id for known in definition.rows}:
        then = f"atrl-bench list rows {as_typed(table)}"
        raise UnknownNameError("row", row, [r.id for r in definition.rows], next_step=then)
    seeds = [_seed(text, name) for text in seed] or sorted({run.spec["seed"] for run in store.runs() if run.digest})
    plan = plan_definition(definition.select(rows=[row]), run_dir, seeds or None)
    plan = plan.at({name: of_seed for name, of_seed in best_rates(plan, store).items() if of_seed})
    for job in plan.jobs:
        if job.run_key is None:
            return RowModel(f"{table}:{row}", model_ref(job.model).digest, None)
        run = store.run(job.run_key)
        if run is not None and run.state == "done":
            return RowModel(f"{table}:{row}, seed {job.seed}", run.digest, run)
    raise MissingDataError(
        f"Row {row} of {table} is not trained in {run_dir.root}.",
        why="" if plan.jobs else "Nothing here can train or evaluate it: see `atrl-bench plan`.",
        next_step=f"atrl-bench run-table {as_typed(table)} --rows {row} {run_dir.options}",
    )


def _seed(text: str, name: str) -> int:
    if not text.isdecimal():
        raise UnknownNameError("training seed", text, ["0", "1", "2"], next_step=f"write {name.rpartition(':')[0]}:0")
    return int(text)
