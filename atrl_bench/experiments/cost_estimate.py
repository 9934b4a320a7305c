"""What a table costs before it is run: for every cell its checkpoint, dataset, tokens, GPU-hours and disk.

Reads files and the store; needs no GPU, no network and no model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from atrl_bench.escape import command_lines, folded, next_lines
from atrl_bench.evaluation.data import parquet_files
from atrl_bench.evaluation.tasks import Task, find_task
from atrl_bench.experiments.judge_choice import judge_name
from atrl_bench.results.store import Store

if TYPE_CHECKING:
    from atrl_bench.experiments.run import Plan

# A rough rate for a 7B model in bfloat16 answering in batches on one 80 GB GPU, and the length of a usual answer. They
# make an estimate of the right order; what a run really takes is in the store once it ran.
TOKENS_PER_GPU_SECOND = 1_500
TOKENS_PER_ANSWER = 400


def describe_plan(plan: Plan) -> dict[str, Any]:
    """Return every job and cell of the plan with its state in the store and what it needs."""
    from atrl_bench.experiments.run import evaluations_of
    from atrl_bench.training.run import resolved_arguments

    states = _states(plan)
    jobs, cells = [], []
    for job in plan.due:
        profile = plan.run_dir.with_model(job.model).profile
        needs = None if job.recipe is None else resolved_arguments(job.recipe, profile)["needs"]
        state = states.get(("run", job.row.id, job.seed), "to do") if job.recipe else "nothing to train"
        jobs.append({"row": job.row.id, "seed": job.seed, "training": state, "run": job.run_key, "needs": needs})
        for column in plan.definition.columns:
            cells.append(
                {
                    "row": job.row.id,
                    "column": column.id,
                    "seed": job.seed,
                    "state": states.get((job.row.id, column.id, job.seed), "to do"),
                    "checkpoint": job.run_key or job.model,
                    "judge": judge_name(plan.run_dir.judge),
                    **_evaluations([find_task(item.task) for item in evaluations_of(column)], plan),
                }
            )
    return {
        "table": plan.definition.id,
        "profile": plan.profile.name,
        "folder": str(plan.run_dir.root),
        "jobs": jobs,
        "cells": cells,
        "next": "the same command without --dry-run" if plan.only is not None else plan.command,
        "not_measured": {row.id: row.not_measured for row in plan.definition.rows if row.not_measured},
        "served": {
            row.id: plan.definition.evaluate_command(row, plan.run_dir.options)
            for row in plan.definition.rows
            if row.served
        },
    }


def _evaluations(parts: Sequence[Task], plan: Plan) -> dict[str, Any]:
    """Return what a column's task, or the tasks of its suite, need together."""
    sizes, data_dir = plan.profile.evaluation, plan.run_dir.data_dir
    num_samples = sum(_num_rows(info, plan) for info in parts) * sizes.num_repeats
    datasets = [str(data_dir / info.folder) if data_dir is not None else _on_hub(info) for info in parts]
    needs: dict[str, Any] = {
        "dataset": "; ".join(dict.fromkeys(datasets)),
        "samples": num_samples,
        "tokens_at_most": num_samples * sizes.max_new_tokens,
    }
    if not plan.profile.generated_data:
        needs["gpu_hours_about"] = round(num_samples * TOKENS_PER_ANSWER / TOKENS_PER_GPU_SECOND / 3600, 1)
    return needs


def _on_hub(info: Task) -> str:
    return f"{info.hub_id}, {info.split}" if info.hub_id else "--data-dir (it is not on the hub as one dataset)"


def _num_rows(info: Task, plan: Plan) -> int:
    if plan.run_dir.data_dir is None:
        return info.num_rows
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in parquet_files(info, plan.run_dir.data_dir))


def _states(plan: Plan) -> dict[tuple[str, str, int], str]:
    """Return the state of each training, under ("run", row, seed), and of each cell, under (row, column, seed)."""
    from atrl_bench.experiments.run import job_cells

    states: dict[tuple[str, str, int], str] = {}
    if not plan.run_dir.store_path.is_file():
        return states
    with Store.open(plan.run_dir.store_path, read_only=True) as store:
        for job in plan.jobs:
            run = store.run(job.run_key) if job.run_key else None
            if run is not None:
                states["run", job.row.id, job.seed] = run.state
            for column, keys in job_cells(job, plan, store).items():
                cells = [cell for key in keys if (cell := store.cell(key)) is not None]
                if cells:
                    unfinished = [cell for cell in cells if cell.state != "done"]
                    answers = sum(cell.num_responses for cell in cells)
                    state = unfinished[0].state if unfinished else "done" if len(cells) == len(keys) else "pending"
                    share = "" if state == "done" else f", {answers} answers stored"
                    states[job.row.id, column, job.seed] = state + share
    return states


def needs_text(needs: dict[str, Any]) -> str:
    """Return a plan as a person reads it, eighty columns wide: trainings, then benchmarks, then what is left to do."""
    lines = [*folded(f"{needs['table']} under profile {needs['profile']}, in {needs['folder']}"), "", "Trainings"]
    for job in needs["jobs"]:
        if job["needs"] is None:
            continue
        head = f"  {job['row']:<18} "
        lines += folded(f"seed {job['seed']}, {job['training']}: {_cost(job['needs'])}", first=head, rest=" " * 21)
    for row, reason in needs["not_measured"].items():
        lines += folded(f"not measured: {reason}", first=f"  {row:<18} ", rest=" " * 21)
    if needs["served"]:
        lines += ["", "Models that only an endpoint has"]
        for row, commands in needs["served"].items():
            lines += [f"  {row}", *(line for part in commands.split(" && ") for line in command_lines(part, " " * 4))]
    lines += ["", "Evaluations, for each row"]
    seen = set()
    for cell in needs["cells"]:
        if cell["column"] in seen:
            continue
        seen.add(cell["column"])
        hours = f", about {cell['gpu_hours_about']} GPU-hours" if "gpu_hours_about" in cell else ""
        said = f"{cell['samples']} answers from {cell['dataset']}{hours}"
        lines += folded(said, first=f"  {cell['column']:<20} ", rest=" " * 23)
    lines += [f"  judge: {name}" for name in dict.fromkeys(cell["judge"] for cell in needs["cells"])]
    states = Counter(cell["state"].partition(",")[0] for cell in needs["cells"])
    lines += ["", "Cells: " + ", ".join(f"{count} {state}" for state, count in sorted(states.items()))]
    return "\n".join([*lines, *next_lines(needs["next"])])


def _cost(needs: dict[str, Any]) -> str:
    if "gpu_hours" not in needs:
        return f"{needs['rollouts']} rollouts, {needs['responses']} responses"
    return f"{needs['gpus']} GPUs of {needs['gb_per_gpu']} GB for {needs['hours']:.0f} h, {needs['disk_gb']} GB of disk"


# Every table ------------------------------------------------------------------------------------------------------


def describe_all(plans: Sequence[Plan]) -> dict[str, Any]:
    """Return what is left to do for each table; what two tables share is counted with the first of them."""
    from atrl_bench.experiments.run import seeds_options

    seen: set[tuple[str, ...]] = set()
    tables = [_left(describe_plan(plan), seen) for plan in plans]
    together = {name: round(sum(table[name] for table in tables), 1) for name in COUNTS}
    first = plans[0]
    # All were given the same seeds, which are some tables' own.
    seeds = next((options for plan in plans if (options := seeds_options(plan.definition, plan.seeds))), [])
    return {
        "profile": first.profile.name,
        "folder": str(first.run_dir.root),
        "tables": tables,
        "together": together,
        "is_generated": first.profile.generated_data,
        "next": " ".join(["atrl-bench run-table all", *seeds, first.run_dir.options]),
    }


COUNTS = ("trainings", "cells", "answers", "gpu_hours")


def _left(needs: dict[str, Any], seen: set[tuple[str, ...]]) -> dict[str, Any]:
    left: dict[str, Any] = {"table": needs["table"], **dict.fromkeys(COUNTS, 0)}
    for job in needs["jobs"]:
        if job["needs"] is not None and job["training"] != "done" and _is_new(seen, "run", job["run"]):
            left["trainings"] += 1
            left["gpu_hours"] += job["needs"].get("gpu_hours", 0)
    for cell in needs["cells"]:
        if cell["state"] != "done" and _is_new(seen, "cell", str(cell["checkpoint"]), cell["column"], cell["dataset"]):
            left["cells"] += 1
            left["answers"] += cell["samples"]
            left["gpu_hours"] += cell.get("gpu_hours_about", 0)
    return left


def _is_new(seen: set[tuple[str, ...]], *name: str) -> bool:
    if name in seen:
        return False
    seen.add(name)
    return True


def all_text(needs: dict[str, Any]) -> str:
    """Return a line for each table and one for all of them, eighty columns wide."""
    names = COUNTS[: 3 if needs["is_generated"] else 4]
    lines = folded(f"All tables under profile {needs['profile']}, in {needs['folder']}: what is left to do")
    lines.append("")
    lines.append(f"{'':<26}" + "".join(f"{name.replace('gpu_hours', 'GPU-hours'):>12}" for name in names))
    for left in (*needs["tables"], {"table": "together", **needs["together"]}):
        lines.append(f"{left['table']:<26}" + "".join(f"{left[name]:>12.0f}" for name in names))
    lines += ["", "What two tables share is counted with the first of them; stored answers of an"]
    lines.append("unfinished cell are counted as left to do.")
    return "\n".join([*lines, *next_lines(needs["next"])])
