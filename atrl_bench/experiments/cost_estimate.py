"""What a table costs before it is run: for every cell its checkpoint, dataset, tokens, GPU-hours and disk.

Reads files and the store; needs no GPU, no network and no model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow.parquet

from atrl_bench.evaluation.data import parquet_files
from atrl_bench.evaluation.tasks import Task, find_task
from atrl_bench.experiments.judge_choice import judge_name
from atrl_bench.experiments.plan import Job, Plan, evaluations_of, job_cells, seeds_options
from atrl_bench.printable import Block, Command, Record, Rows
from atrl_bench.results.store import Cell
from atrl_bench.training.run import resolved_arguments

# A rough rate for a 7B model in bfloat16 answering in batches on one 80 GB GPU, and the length of a usual answer. They
# make an estimate of the right order; what a run really takes is in the store once it ran.
TOKENS_PER_GPU_SECOND = 1_500
TOKENS_PER_ANSWER = 400


@dataclass(frozen=True)
class JobCost:
    """A row under one seed: the state of its training in the store, and what that takes; None: nothing to train."""

    row: str
    seed: int
    training: str
    run: str | None
    needs: dict[str, Any] | None

    @property
    def text(self) -> str:
        """What the training takes, in a few words."""
        needs = self.needs or {}
        if "gpu_hours" not in needs:
            return f"{needs['rollouts']} rollouts, {needs['responses']} responses"
        devices = f"{needs['gpus']} GPUs of {needs['gb_per_gpu']} GB"
        return f"{devices} for {needs['hours']:.0f} h, {needs['disk_gb']} GB of disk"


@dataclass(frozen=True)
class CellCost:
    """A row under one seed in one column: its state in the store, and what its answers take."""

    row: str
    column: str
    seed: int
    state: str
    checkpoint: str
    judge: str
    dataset: str
    samples: int
    tokens_at_most: int
    gpu_hours_about: float | None  # None where the mini model answers

    @property
    def text(self) -> str:
        """What the answers take, in a few words."""
        hours = "" if self.gpu_hours_about is None else f", about {self.gpu_hours_about} GPU-hours"
        return f"{self.samples} answers from {self.dataset}{hours}"


@dataclass(frozen=True)
class CostEstimate(Record):
    """Every job and every cell of a plan, and the rows that no job fills."""

    table: str
    profile: str
    folder: str
    jobs: tuple[JobCost, ...]
    cells: tuple[CellCost, ...]
    next: str
    not_measured: dict[str, str]
    served: dict[str, str]

    def document(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        cells = [{name: value for name, value in asdict(cell).items() if value is not None} for cell in self.cells]
        return asdict(self) | {"cells": cells}

    def blocks(self) -> Iterable[Block]:
        """Yield trainings, then benchmarks, then what is left to do."""
        yield f"{self.table} under profile {self.profile}, in {self.folder}"
        trainings = [(job.row, f"seed {job.seed}, {job.training}: {job.text}") for job in self.jobs if job.needs]
        yield from ("", "Trainings")
        yield Rows([*trainings, *((row, f"not measured: {reason}") for row, reason in self.not_measured.items())])
        if self.served:
            yield from ("", "Models that only an endpoint has")
        for row, commands in self.served.items():
            yield Rows([(row,)])
            yield from (Command(command, is_next=False) for command in commands.split(" && "))
        yield from ("", "Evaluations, for each row")
        columns: dict[str, str] = {}
        for cell in self.cells:
            columns.setdefault(cell.column, cell.text)
        yield Rows(list(columns.items()))
        yield Rows([(f"judge: {name}",) for name in dict.fromkeys(cell.judge for cell in self.cells)])
        states = Counter(cell.state.partition(",")[0] for cell in self.cells)
        yield from ("", "Cells: " + ", ".join(f"{count} {state}" for state, count in sorted(states.items())))
        yield Command(self.next)


def estimate_cost(plan: Plan) -> CostEstimate:
    """Return every job and cell of the plan with its state in the store and what it needs."""
    states = _states(plan)
    return CostEstimate(
        table=plan.definition.id,
        profile=plan.profile.name,
        folder=str(plan.run_dir.root),
        jobs=tuple(_job_cost(job, plan, states) for job in plan.due),
        cells=tuple(cell for job in plan.due for cell in _cell_costs(job, plan, states)),
        next="the same command without --dry-run" if plan.only is not None else plan.command,
        not_measured={row.id: row.not_measured for row in plan.definition.rows if row.not_measured},
        served={
            row.id: plan.definition.evaluate_command(row, plan.run_dir.options)
            for row in plan.definition.rows
            if row.served
        },
    )


States = dict[tuple[str, str, int], str]  # by ("run", row, seed) of a training, by (row, column, seed) of a cell


def _job_cost(job: Job, plan: Plan, states: States) -> JobCost:
    if job.recipe is None:
        return JobCost(job.row.id, job.seed, "nothing to train", None, None)
    needs = resolved_arguments(job.recipe, plan.run_dir.with_model(job.model).profile)["needs"]
    return JobCost(job.row.id, job.seed, states.get(("run", job.row.id, job.seed), "to do"), job.run_key, needs)


def _cell_costs(job: Job, plan: Plan, states: States) -> Iterable[CellCost]:
    sizes, data_dir = plan.profile.evaluation, plan.run_dir.data_dir
    for column in plan.definition.columns:
        tasks = [find_task(item.task) for item in evaluations_of(column)]
        num_samples = sum(_num_rows(task, plan) for task in tasks) * sizes.num_repeats
        datasets = [str(data_dir / task.folder) if data_dir is not None else _on_hub(task) for task in tasks]
        hours = round(num_samples * TOKENS_PER_ANSWER / TOKENS_PER_GPU_SECOND / 3600, 1)
        yield CellCost(
            row=job.row.id,
            column=column.id,
            seed=job.seed,
            state=states.get((job.row.id, column.id, job.seed), "to do"),
            checkpoint=job.run_key or job.model,
            judge=judge_name(plan.run_dir.judge),
            dataset="; ".join(dict.fromkeys(datasets)),
            samples=num_samples,
            tokens_at_most=num_samples * sizes.max_new_tokens,
            gpu_hours_about=None if plan.profile.generated_data else hours,
        )


def _on_hub(task: Task) -> str:
    return f"{task.hub_id}, {task.split}" if task.hub_id else "--data-dir (it is not on the hub as one dataset)"


def _num_rows(task: Task, plan: Plan) -> int:
    if plan.run_dir.data_dir is None:
        return task.num_rows
    return sum(pyarrow.parquet.read_metadata(path).num_rows for path in parquet_files(task, plan.run_dir.data_dir))


def _states(plan: Plan) -> States:
    states: States = {}
    if not plan.run_dir.store_path.is_file():
        return states
    with plan.run_dir.open_store(read_only=True) as store:
        for job in plan.jobs:
            run = store.run(job.run_key) if job.run_key else None
            if run is not None:
                states["run", job.row.id, job.seed] = run.state
            for column, keys in job_cells(job, plan, store).items():
                cells = [cell for key in keys if (cell := store.cell(key)) is not None]
                if cells:
                    states[job.row.id, column, job.seed] = _state(cells, len(keys))
    return states


def _state(cells: Sequence[Cell], num_expected: int) -> str:
    """Return the state of a column's cells together, with how many answers there are where any is missing."""
    unfinished = [cell.state for cell in cells if cell.state != "done"]
    if not unfinished and len(cells) == num_expected:
        return "done"
    num_answers = sum(cell.num_responses for cell in cells)
    return f"{unfinished[0] if unfinished else 'pending'}, {num_answers} answers stored"


# Every table ------------------------------------------------------------------------------------------------------


COUNTS = ("trainings", "cells", "answers", "gpu_hours")


@dataclass(frozen=True)
class RemainingWork:
    """How much of a table is left to do."""

    table: str
    trainings: int
    cells: int
    answers: int
    gpu_hours: float


@dataclass(frozen=True)
class CostOfAll(Record):
    """What is left to do for each table, and together; what two tables share is counted with the first of them."""

    profile: str
    folder: str
    tables: tuple[RemainingWork, ...]
    together: dict[str, float]
    is_generated: bool
    next: str

    def blocks(self) -> Iterable[Block]:
        """Yield a row for each table and one for all of them."""
        names = COUNTS[: 3 if self.is_generated else 4]
        tables = [asdict(table) for table in self.tables]
        rows = [
            (counts["table"], *(f"{counts[name]:.0f}" for name in names))
            for counts in (*tables, {"table": "together", **self.together})
        ]
        head = ["", *(name.replace("gpu_hours", "GPU-hours") for name in names)]
        yield f"All tables under profile {self.profile}, in {self.folder}: what is left to do"
        yield ""
        yield Rows(rows, head, right=range(1, 5), indent=0)
        yield ""
        yield (
            "What two tables share is counted with the first of them; stored answers of an unfinished cell are "
            "counted as left to do."
        )
        yield Command(self.next)


def estimate_all(plans: Sequence[Plan]) -> CostOfAll:
    """Return what is left to do for each of these tables; what two of them share is counted with the first."""
    counted: set[tuple[str, ...]] = set()
    tables = tuple(_remaining(estimate_cost(plan), counted) for plan in plans)
    run_dir = plans[0].run_dir
    # All were given the same seeds, which are some tables' own.
    seeds = next((options for plan in plans if (options := seeds_options(plan.definition, plan.seeds))), [])
    return CostOfAll(
        profile=run_dir.profile.name,
        folder=str(run_dir.root),
        tables=tables,
        together={name: round(sum(getattr(table, name) for table in tables), 1) for name in COUNTS},
        is_generated=run_dir.profile.generated_data,
        next=" ".join(["atrl-bench run-table all", *seeds, run_dir.options]),
    )


def _remaining(cost: CostEstimate, counted: set[tuple[str, ...]]) -> RemainingWork:
    trainings = [
        job
        for job in cost.jobs
        if job.needs is not None and job.training != "done" and _is_new(counted, "run", str(job.run))
    ]
    cells = [
        cell
        for cell in cost.cells
        if cell.state != "done" and _is_new(counted, "cell", cell.checkpoint, cell.column, cell.dataset)
    ]
    gpu_hours = [(job.needs or {}).get("gpu_hours", 0) for job in trainings]
    gpu_hours += [cell.gpu_hours_about or 0 for cell in cells]
    return RemainingWork(
        table=cost.table,
        trainings=len(trainings),
        cells=len(cells),
        answers=sum(cell.samples for cell in cells),
        gpu_hours=sum(gpu_hours),
    )


def _is_new(counted: set[tuple[str, ...]], *name: str) -> bool:
    if name in counted:
        return False
    counted.add(name)
    return True
