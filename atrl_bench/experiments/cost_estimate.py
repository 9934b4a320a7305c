"""What a table costs before it is run: for every cell its checkpoint, dataset, tokens, GPU-hours and disk.

Reads files and the store; needs no GPU, no network and no model. What is stored already is not priced again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from atrl_bench.data.tables import num_rows
from atrl_bench.errors import NotFetchedError
from atrl_bench.evaluation.cell_spec import EvaluationOptions, is_served
from atrl_bench.evaluation.source import parquet_files
from atrl_bench.evaluation.tasks import Task, expand, find_task
from atrl_bench.experiments.cost_record import FINISHED, CellCost, CostEstimate, TrainingCost
from atrl_bench.experiments.definition import ColumnDefinition
from atrl_bench.experiments.downloads import missing_downloads
from atrl_bench.experiments.judge_choice import judge_name
from atrl_bench.experiments.needs import Need, needs_of
from atrl_bench.experiments.plan import (
    Job,
    Plan,
    best_rates,
    evaluations_of,
    is_answered,
    job_cells,
    obstacle,
    planned_key,
    planned_spec,
)
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.results.store import Cell
from atrl_bench.training.cost_estimate import TrainingNeeds, answering_needs, training_needs
from atrl_bench.training.recipe import Recipe, stages_of

States = dict[tuple[str, str, int], str]  # by ("run", row, seed) of a training, by (row, column, seed) of a cell
TOKENS_PER_ANSWER = 400  # as long as nothing is stored here that says how long answers are


def estimate_cost(plan: Plan) -> CostEstimate:
    """Return every job and cell of the plan with its state in the store and what it needs."""
    states, best = _stored(plan)
    plan, run_dir = _needed(plan, best), plan.run_dir
    jobs, cells = _jobs_and_cells(plan, states)
    open_jobs = [job for job in plan.due if _is_open(job, jobs, cells)]
    cost = CostEstimate(
        table=plan.definition.id,
        profile=plan.profile.name,
        folder=str(run_dir.root),
        jobs=jobs,
        cells=cells,
        next=_next_command(plan),
        basis=run_dir.rates.basis,
        downloads=missing_downloads(_needs(open_jobs, run_dir), run_dir),
        not_measured={row.id: row.not_measured for row in plan.definition.rows if row.not_measured},
        served={
            row.id: plan.definition.evaluate_command(row, run_dir.options) for row in plan.definition.rows if row.served
        },
    )
    if not cost.gpu_hours:  # nothing can take less
        return cost
    jobs_by_vllm, cells_by_vllm = _jobs_and_cells(plan, states, by_vllm=True)
    by_vllm = replace(cost, jobs=jobs_by_vllm, cells=cells_by_vllm).gpu_hours
    return replace(cost, gpu_hours_by_vllm=by_vllm if by_vllm < cost.gpu_hours else None)


def _needed(plan: Plan, best: Mapping[str, float]) -> Plan:
    """Return the plan without what no run will do; until a row's best rate is known, the highest stands for it."""
    highest: dict[str, float] = {}
    for job in plan.jobs:
        highest[job.row.id] = max(job.rate, highest.get(job.row.id, 0.0))
    known = {row: rate for row, rate in best.items() if not math.isnan(rate)}
    return replace(plan, jobs=plan.needed(highest | known))


def _jobs_and_cells(
    plan: Plan, states: States, *, by_vllm: bool = False
) -> tuple[tuple[TrainingCost, ...], tuple[CellCost, ...]]:
    """Return the price of every job and cell as the folder says it is done, or as if vLLM sampled and answered."""
    trainings = (cost for job in plan.due for cost in _training_costs(job, plan, states, by_vllm))
    cells = (cell for job in plan.due for cell in _cell_costs(job, plan, states, by_vllm))
    return tuple(_without_repeated_stages(trainings)), tuple(cells)


def _without_repeated_stages(costs: Iterable[TrainingCost]) -> Iterator[TrainingCost]:
    """Yield the trainings without a first stage that a row before it has trained, or started from."""
    seen: set[str | None] = set()
    for cost in costs:
        if not (cost.is_stage and cost.run in seen):
            yield cost
        seen.add(cost.run)


def _is_open(job: Job, trainings: Sequence[TrainingCost], cells: Sequence[CellCost]) -> bool:
    todo = [each.training for each in trainings if (each.row, each.seed) == (job.row_at_rate, job.seed) and each.needs]
    todo += [each.state for each in cells if (each.row, each.seed) == (job.row_at_rate, job.seed)]
    return any(state not in FINISHED for state in todo)


def _needs(jobs: Sequence[Job], run_dir: RunDir) -> tuple[Need, ...]:
    tasks = [evaluation.task for job in jobs for evaluation in job.evaluations]
    return needs_of([job.model for job in jobs], [job.recipe for job in jobs if job.recipe], tasks, run_dir)


def estimate_trainings(name: str, recipes: Sequence[Recipe], run_dir: RunDir, seed: int) -> CostEstimate:
    """Return what trainings outside any table take."""
    costs = []
    for recipe in recipes:
        costs += [_stage_cost(stage, stage.name, run_dir, seed) for stage in stages_of(recipe)]
    unique = tuple({cost.run: cost for cost in costs}.values())
    is_open = any(cost.training != "done" for cost in unique)
    needs = needs_of([run_dir.profile.model], recipes, (), run_dir) if is_open else ()
    downloads = missing_downloads(needs, run_dir)
    return CostEstimate(name, run_dir.profile.name, str(run_dir.root), unique, (), "", run_dir.rates.basis, downloads)


def estimate_evaluation(model: str, tasks: Sequence[str], options: EvaluationOptions, run_dir: RunDir) -> CostEstimate:
    """Return what one model's evaluation outside any table takes; an endpoint's hours are its own."""
    own, cells = run_dir.with_model(model), []
    for task in expand(tasks):
        run_dir.provide(task.folder)
        state = _cell_state(model, task.name, options, run_dir)
        cell = _cell_cost([(task, options)], own, model, task.name, options.run_seed, state, model)
        cells.append(replace(cell, gpu_hours=None, minutes=0.0) if options.endpoint else cell)
    open_tasks = [cell.column for cell in cells if cell.state != "done"]
    models = [model] if open_tasks and options.endpoint is None else []
    downloads = missing_downloads(needs_of(models, (), open_tasks, run_dir), run_dir)
    name = f"{model} on {', '.join(tasks)}"
    return CostEstimate(
        name, run_dir.profile.name, str(run_dir.root), (), tuple(cells), "", run_dir.rates.basis, downloads
    )


def _cell_state(model: str, task: str, options: EvaluationOptions, run_dir: RunDir) -> str:
    if not run_dir.store_path.is_file():
        return "to do"
    with run_dir.open_store(read_only=True) as store:
        return "done" if is_answered(store, model, task, options, run_dir) else "to do"


def _next_command(plan: Plan) -> str:
    if any(job.missing for job in plan.due):
        return f"atrl-bench fetch {plan.definition.id} {plan.run_dir.options}"
    return "the same command without --dry-run" if plan.only is not None else plan.command


def _training_costs(job: Job, plan: Plan, states: States, by_vllm: bool = False) -> Iterator[TrainingCost]:
    """Yield the trainings of a job: of the checkpoint that it starts from, then its own."""
    if job.recipe is None:
        yield TrainingCost(job.row_at_rate, job.seed, "nothing to train", None, None)
        return
    run_dir = plan.run_dir.with_model(job.model)
    for stage in stages_of(job.recipe)[:-1]:
        yield _stage_cost(
            stage, f"{stage.name}, for {job.row_at_rate}", run_dir, job.seed, is_stage=True, by_vllm=by_vllm
        )
    needs = _training_needs(job.recipe, run_dir, by_vllm)
    state = states.get(("run", job.row_at_rate, job.seed), "to do")
    yield TrainingCost(job.row_at_rate, job.seed, state, job.run_key, needs, _what(job.missing))


def _what(missing: NotFetchedError | None) -> str | None:
    return f"{missing.what} {missing.why}" if missing else None


def _training_needs(recipe: Recipe, run_dir: RunDir, by_vllm: bool) -> TrainingNeeds:
    profile = run_dir.profile.sampled_by("vllm") if by_vllm else run_dir.profile
    return training_needs(recipe, profile, run_dir.rates)


def _stage_cost(
    recipe: Recipe, name: str, run_dir: RunDir, seed: int, *, is_stage: bool = False, by_vllm: bool = False
) -> TrainingCost:
    spec, missing = planned_spec(recipe, run_dir, seed)
    key, needs = planned_key(spec, missing), _training_needs(recipe, run_dir, by_vllm)
    return TrainingCost(name, seed, run_dir.run_state(key) or "to do", key, needs, _what(missing), is_stage)


def _cell_costs(job: Job, plan: Plan, states: States, by_vllm: bool = False) -> Iterable[CellCost]:
    run_dir, checkpoint = plan.run_dir.with_model(job.model), job.run_key or job.model
    if not job.evaluations:
        return
    for column in plan.definition.columns_of(job.row):
        evaluations = [(find_task(task), EvaluationOptions(frames=frames)) for task, frames in evaluations_of(column)]
        state = _column_state(job, column, states)
        yield _cell_cost(evaluations, run_dir, job.row_at_rate, column.id, job.seed, state, checkpoint, by_vllm)


def _cell_cost(
    evaluations: Sequence[tuple[Task, EvaluationOptions]],
    run_dir: RunDir,
    row: str,
    column: str,
    seed: int,
    state: str,
    checkpoint: str,
    by_vllm: bool = False,
) -> CellCost:
    sizes, tokens = run_dir.profile.evaluation, run_dir.tokens_per_answer or TOKENS_PER_ANSWER
    samples, needs = 0, []
    for task, options in evaluations:
        rows, repeats = min(_num_rows(task, run_dir), options.limit or 10**12), options.repeats or sizes.num_repeats
        frames = (options.frames or sizes.num_frames) if task.shows_videos else None
        samples += rows * repeats
        vllm = is_served(task.name) and (by_vllm or run_dir.with_choices(options).engine is not None)
        needs.append(
            answering_needs(run_dir.profile, rows, repeats, tokens, num_frames=frames, rates=run_dir.rates, vllm=vllm)
        )
    priced = [each for each in needs if each is not None]
    return CellCost(
        row=row,
        column=column,
        seed=seed,
        state=state,
        checkpoint=checkpoint,
        judge=judge_name(evaluations[0][1].judge or run_dir.judge),
        dataset="; ".join(dict.fromkeys(_source(task, run_dir) for task, _ in evaluations)),
        samples=samples,
        tokens_at_most=samples * sizes.max_new_tokens,
        gpu_hours=round(sum(each.gpu_hours for each in priced), 2) if len(priced) == len(needs) else None,
        minutes=round(sum(each.minutes for each in priced), 2),
    )


def _column_state(job: Job, column: ColumnDefinition, states: States) -> str:
    if any(obstacle(item.task) for item in evaluations_of(column)):
        return "not permitted here"
    return states.get((job.row_at_rate, column.id, job.seed), "to do")


def _source(task: Task, run_dir: RunDir) -> str:
    """Return where a benchmark's data is taken from, in a few words."""
    if (data_dir := run_dir.data_dir(task.folder)) is not None:
        return str(data_dir / task.folder)
    return f"{task.hub_id}, {task.split}" if task.hub_id else f"atrl-bench fetch {task.name}"


def _num_rows(task: Task, run_dir: RunDir) -> int:
    if (data_dir := run_dir.data_dir(task.folder)) is None:
        return task.num_rows
    return sum(num_rows(path) for path in parquet_files(task, data_dir))


def _stored(plan: Plan) -> tuple[States, Mapping[str, float]]:
    """Return the states that the store knows, and each row's best rate, NaN where it is open."""
    states: States = {}
    if not plan.run_dir.store_path.is_file():
        return states, {}
    with plan.run_dir.open_store(read_only=True) as store:
        for job in plan.jobs:
            run = store.run(job.run_key) if job.run_key else None
            if run is not None:
                states["run", job.row_at_rate, job.seed] = run.state
            for column, keys in job_cells(job, plan, store).items():
                cells = [cell for key in keys if (cell := store.cell(key)) is not None]
                if cells:
                    states[job.row_at_rate, column, job.seed] = _state(cells, len(keys))
        return states, best_rates(plan, store)


def _state(cells: Sequence[Cell], num_expected: int) -> str:
    """Return the state of a column's cells together, with how many answers there are where any is missing."""
    unfinished = [cell.state for cell in cells if cell.state != "done"]
    if not unfinished and len(cells) == num_expected:
        return "done"
    num_answers = sum(cell.num_responses for cell in cells)
    return f"{unfinished[0] if unfinished else 'pending'}, {num_answers} answers stored"
