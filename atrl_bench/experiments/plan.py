"""What a table needs: which rows to train, which columns to evaluate, and the keys under which the store has them.

A job is one row under one training seed. Nothing here loads a model; the store is read only for the state of a cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

from atrl_bench.data.dataset import data_digest
from atrl_bench.data.sets import find_set
from atrl_bench.digests import spec_key
from atrl_bench.errors import AtrlBenchError, MissingDataError, NotFetchedError, UnknownNameError
from atrl_bench.evaluation.cell_spec import EvaluationOptions, cell_spec
from atrl_bench.evaluation.tasks import expand, find_task
from atrl_bench.experiments.ablation import with_points, with_saved_points
from atrl_bench.experiments.definition import (
    ColumnDefinition,
    ComparedAt,
    RowDefinition,
    TableDefinition,
    as_typed,
    list_ablations,
    load_table,
    table_under,
)
from atrl_bench.experiments.protocol import StatedProtocol, asked_in
from atrl_bench.experiments.rates import PROFILES_OWN, Rates, at_rate, cross_fitted, rate_text, rates_of, with_checks
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.models.chat_client import EndpointConfig
from atrl_bench.models.local import TrainedModel, model_ref
from atrl_bench.profiles import Profile
from atrl_bench.results.store import Run, Store
from atrl_bench.sandbox.isolation import CODE_ISOLATION, require_isolation
from atrl_bench.training.recipe import Recipe, first_stage
from atrl_bench.training.run_spec import OF_RUN, run_spec


class Evaluation(NamedTuple):
    """One benchmark as a column asks for it."""

    task: str
    options: EvaluationOptions


@dataclass(frozen=True)
class Job:
    """One row under one training seed: at most one training, then one evaluation a task."""

    row: RowDefinition
    seed: int
    evaluations: tuple[Evaluation, ...]
    model: str  # the base model
    recipe: Recipe | None = None
    run_spec: dict[str, Any] | None = None
    missing: NotFetchedError | None = None  # what has to be fetched before it is known how the store calls the run
    rate: float = PROFILES_OWN  # of learning, in the profile's own
    protocol: StatedProtocol | None = None  # of its evaluations; None: the profile's

    @cached_property
    def run_key(self) -> str | None:
        return None if self.run_spec is None else planned_key(self.run_spec, self.missing)

    @property
    def name(self) -> str:
        return self.row.id if self.recipe is None else f"{self.row_at_rate} seed {self.seed}"

    @property
    def row_at_rate(self) -> str:
        return self.row.id if self.rate == PROFILES_OWN else f"{self.row.id} at {rate_text(self.rate)}"


def planned_key(spec: dict[str, Any], missing: NotFetchedError | None) -> str:
    """The key of a training; while something is missing for that, a stand-in that tells trainings apart."""
    return spec_key(spec) if missing is None else f"unknown-{spec_key(spec)}"


@dataclass(frozen=True)
class Plan:
    """What a table needs under one profile; `only` names the rows to carry out where the others are just shown."""

    definition: TableDefinition
    run_dir: RunDir
    seeds: tuple[int, ...]
    jobs: tuple[Job, ...]
    only: frozenset[str] | None = None

    @property
    def due(self) -> tuple[Job, ...]:
        return tuple(job for job in self.jobs if self.only is None or job.row.id in self.only)

    @property
    def profile(self) -> Profile:
        return self.run_dir.profile

    @cached_property
    def by_column(self) -> dict[str, tuple[Evaluation, ...]]:
        return {column.id: evaluations_of(column) for column in self.definition.columns}

    def needed(self, rates: Rates) -> tuple[Job, ...]:
        """The jobs to carry out once it is known at which rate each seed is judged: at others it is trained alone."""
        return tuple(job if self._is_judged(job, rates) else replace(job, evaluations=()) for job in self.due)

    def _is_judged(self, job: Job, rates: Rates) -> bool:
        return job.row.id not in rates or job.rate in (PROFILES_OWN, rates[job.row.id].get(job.seed))

    def at(self, rates: Rates) -> Plan:
        """The plan with one learning rate a training, by default the profile's; trainings without one are left out."""
        kept = (job for job in self.jobs if job.rate == rates.get(job.row.id, {job.seed: PROFILES_OWN}).get(job.seed))
        return replace(self, jobs=tuple(kept))

    @property
    def command(self) -> str:
        whole = with_saved_points(table_under(self.definition.id, self.profile), self.run_dir)
        options: list[str] = []
        for option, planned, every in (
            ("--rows", self.definition.rows, whole.rows),
            ("--columns", self.definition.columns, whole.columns),
        ):
            if len(planned) < len(every):
                options.append(f"{option} {','.join(item.id for item in planned)}")
        options += [*table_options(self.definition, self.seeds), self.run_dir.training_options]
        return f"atrl-bench run-table {as_typed(self.definition.id)} {' '.join(options)}"


def table_options(definition: TableDefinition, seeds: Sequence[int]) -> list[str]:
    options = [] if tuple(seeds) == tuple(definition.seeds) else [f"--seeds {','.join(map(str, seeds))}"]
    if definition.compared_at != load_table(definition.id).compared_at:
        options.append(f"--compared-at {definition.compared_at}")
    return options


def plan_table(
    table: str,
    run_dir: RunDir,
    *,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    compared_at: ComparedAt | None = None,
) -> Plan:
    """The jobs of a table, with the points that `ablate` added here; `seeds` and `compared_at` replace its own."""
    definition = with_saved_points(table_under(table, run_dir.profile), run_dir).select(rows=rows, columns=columns)
    if compared_at is not None:
        definition = definition.model_copy(update={"compared_at": compared_at})
    return plan_definition(definition, run_dir, seeds)


def plan_ablation(
    ablation: str,
    run_dir: RunDir,
    settings: Sequence[str] = (),
    *,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
) -> Plan:
    """The jobs of an ablation, or of the points that settings make, `field=value,value`, with what these need."""
    if ablation not in list_ablations():
        raise UnknownNameError("ablation", ablation, list_ablations(), next_step="atrl-bench list ablations")
    if not settings:
        return plan_table(ablation, run_dir, rows=rows, columns=columns, seeds=seeds)
    definition, points = with_points(with_saved_points(load_table(ablation), run_dir), settings)
    needed = {name for row in points for name in (row.id, definition.baseline_of(row), row.compared_with) if name}
    return plan_definition(definition.select(rows=rows, columns=columns), run_dir, seeds, frozenset(needed))


def plan_definition(
    definition: TableDefinition,
    run_dir: RunDir,
    seeds: Sequence[int] | None = None,
    only: frozenset[str] | None = None,
) -> Plan:
    """The jobs of a table in a run folder, of which the rows in `only` are to be carried out, by default all."""
    definition = definition.under(run_dir.profile)
    seeds = tuple(seeds or definition.seeds)
    run_dir.provide(*(find_task(item.task).folder for item in evaluations_of(*definition.columns)))
    evaluations = {row.id: evaluations_of(*definition.columns_of(row)) for row in definition.rows}
    base_of = {row.id: run_dir.with_model(definition.model_of(row)) for row in definition.rows}
    jobs = [
        Job(row, seeds[0], evaluations[row.id], base_of[row.id].profile.model, protocol=definition.protocol_of(row))
        for row in definition.rows
        if not (row.recipe or row.served or row.not_measured)
    ]
    recipes = definition.recipes()
    rates = definition.rates if definition.compared_at == "best_rate" else (PROFILES_OWN,)
    # Seed by seed, so that the first whole table is there after the first seed.
    for seed in seeds:
        for row in definition.rows:
            if row.id in recipes:
                own, asked = base_of[row.id], definition.protocol_of(row)
                for rate in rates_of(recipes[row.id], rates):
                    recipe = at_rate(recipes[row.id], run_dir.profile, rate)
                    if definition.compared_at == "best_rate":
                        recipe = with_checks(recipe, run_dir.profile)
                    spec, missing = planned_spec(recipe, own, seed)
                    model = own.profile.model
                    jobs.append(Job(row, seed, evaluations[row.id], model, recipe, spec, missing, rate, asked))
    return Plan(definition, run_dir, seeds, tuple(jobs), only)


def evaluations_of(*columns: ColumnDefinition) -> tuple[Evaluation, ...]:
    # Every row answers the same questions with the same prompts and the same random numbers, those of seed 0, whatever
    # seed it was trained with: differences between rows are then paired.
    needed = [
        Evaluation(
            task.name, EvaluationOptions(frames=column.frames if task.shows_videos else None, image=column.image)
        )
        for column in columns
        for task in expand([column.task])
    ]
    return tuple(dict.fromkeys(needed))


@cache
def obstacle(task: str) -> str | None:
    """Why this machine may not run a task, None where it may; looked up once a process."""
    if CODE_ISOLATION in find_task(task).needs:
        try:
            require_isolation()
        except AtrlBenchError as error:
            return f"{error.what} {error.next_step[:1].upper()}{error.next_step[1:]}."
    return None


def planned_spec(recipe: Recipe, run_dir: RunDir, seed: int) -> tuple[dict[str, Any], NotFetchedError | None]:
    """What names a training, and what is missing for that: then it only tells trainings apart."""
    try:
        return training_spec(recipe, run_dir, seed), None
    except NotFetchedError as error:
        base = f"not known: {recipe.start_from or run_dir.profile.model}"
        return run_spec(recipe, run_dir.profile, base, f"not known: {recipe.data}", seed, run_dir.vllm), error


def training_spec(recipe: Recipe, run_dir: RunDir, seed: int) -> dict[str, Any]:
    base, data = _digests(run_dir.profile.model, recipe.data, run_dir.data_dir(find_set(recipe.data).folder))
    if (first := first_stage(recipe)) is not None:
        base = f"{OF_RUN}{spec_key(training_spec(first, run_dir, seed))}"
    return run_spec(recipe, run_dir.profile, base, data, seed, run_dir.vllm)


@cache
def _digests(base_model: str, data: str, data_dir: Path | None) -> tuple[str, str]:
    """The digests of base model and training set, read once a command: both may be gigabytes, rows are many."""
    return model_ref(base_model).digest, set_digest(data, data_dir)


@cache
def set_digest(name: str, data_dir: Path | None) -> str:
    """What names a training set's data, read once a command."""
    return data_digest(find_set(name), data_dir)


@cache
def task_digest(name: str, data_dir: Path | None) -> str:
    """What names a benchmark's data, read once a command: a table has a cell of it for every row and seed."""
    return data_digest(find_task(name), data_dir)


def job_cells(job: Job, plan: Plan, store: Store) -> dict[str, tuple[str, ...]]:
    return _by_column(plan, evaluation_keys(job, plan, store))


def runs_by_rate(plan: Plan, store: Store) -> dict[str, dict[float, list[Run]]]:
    runs: dict[str, dict[float, list[Run]]] = {}
    for job in plan.jobs:
        if job.run_key is not None:
            of_rate = runs.setdefault(job.row.id, {}).setdefault(job.rate, [])
            of_rate += filter(None, [store.run(job.run_key)])
    return runs


def best_rates(plan: Plan, store: Store) -> dict[str, Mapping[int, float]]:
    """The rate at which each seed of a row is judged; none yet of a row that is not trained at all of them."""
    runs = runs_by_rate(plan, store)
    return {row: cross_fitted(of_row, plan.seeds) for row, of_row in runs.items() if len(of_row) > 1}


def _by_column(plan: Plan, keys: Mapping[Evaluation, str]) -> dict[str, tuple[str, ...]]:
    return {
        column: tuple(keys[item] for item in items)
        for column, items in plan.by_column.items()
        if keys.keys() >= set(items)
    }


def evaluation_keys(job: Job, plan: Plan, store: Store) -> dict[Evaluation, str]:
    model = job.model if job.run_key is None else trained_model(job.run_key, store)
    return {} if model is None else _cell_keys(model, job.evaluations, asked_in(job.protocol, plan.run_dir))


def _cell_keys(
    model: str | TrainedModel,
    evaluations: Iterable[Evaluation],
    run_dir: RunDir,
    *,
    endpoint: EndpointConfig | None = None,
) -> dict[Evaluation, str]:
    keys = {item: cell_key(model, item.task, replace(item.options, endpoint=endpoint), run_dir) for item in evaluations}
    return {item: key for item, key in keys.items() if key is not None}


def cell_key(model: str | Path | TrainedModel, task: str, options: EvaluationOptions, run_dir: RunDir) -> str | None:
    """The key of a cell; None where something is missing for that: nothing of it can be stored then."""
    options = run_dir.with_choices(options)
    try:
        data_dir = run_dir.data_dir(find_task(task).folder)
        data = task_digest(task, data_dir)
        return cell_spec(model, task, options, profile=run_dir.profile, data_dir=data_dir, data=data).key
    except MissingDataError:
        return None


def cell_keys(plan: Plan, store: Store) -> dict[tuple[str, str], list[str]]:
    keys: dict[tuple[str, str], list[str]] = {}
    for job in plan.jobs:
        for column, of_column in job_cells(job, plan, store).items():
            keys.setdefault((job.row.id, column), []).extend(of_column)
    evaluations = evaluations_of(*plan.definition.columns)
    for row in plan.definition.rows:
        if row.served:  # what `atrl-bench evaluate MODEL --base-url URL` fills: no table asks an endpoint
            of_row = _cell_keys(row.served, evaluations, plan.run_dir, endpoint=EndpointConfig("", row.served))
            keys |= {(row.id, column): list(of_column) for column, of_column in _by_column(plan, of_row).items()}
    return keys


def trained_model(run_key: str, store: Store) -> TrainedModel | None:
    run = store.run(run_key)
    return TrainedModel(Path(run.checkpoint).name, run.digest) if run is not None and run.state == "done" else None
