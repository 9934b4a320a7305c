"""From a table's definition to its filled store: which rows to train, which columns to evaluate, and doing both.

A job is one row under one training seed. Jobs do not depend on each other, so they run side by side in processes of
their own; each writes to the store as it goes, and the parent only watches the store. Killing any of them, or all,
loses nothing: the next command plans from the store again and finds the same keys.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from atrl_bench.digests import spec_key
from atrl_bench.errors import AtrlBenchError, MissingDataError
from atrl_bench.experiments.definition import ColumnDefinition, RowDefinition, TableDefinition, load_table
from atrl_bench.experiments.progress import Watch
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import Profile
from atrl_bench.results.store import Run, Store

if TYPE_CHECKING:
    from atrl_bench.grading.judge.judge import JudgeConfig
    from atrl_bench.models.chat_client import EndpointConfig
    from atrl_bench.report.build import Table
    from atrl_bench.training.recipe import Recipe

# Every row answers the same questions with the same prompts and the same random numbers, whatever seed it was trained
# with: differences between rows are then paired.
EVALUATION_SEED = 0
PR_SET_PDEATHSIG = 1  # from linux/prctl.h


class Evaluation(NamedTuple):
    """One benchmark as a column asks for it; `frames` of a video, None for the profile's number."""

    task: str
    frames: int | None


@dataclass(frozen=True)
class Job:
    """One row under one training seed: at most one training, then one evaluation a task."""

    row: RowDefinition
    seed: int
    evaluations: tuple[Evaluation, ...]
    recipe: Recipe | None
    run_spec: dict[str, Any] | None
    model: str  # the base model

    @property
    def run_key(self) -> str | None:
        """The key of the training run, None for a row that trains nothing."""
        return None if self.run_spec is None else spec_key(self.run_spec)

    @property
    def name(self) -> str:
        """How progress lines and errors call this job."""
        return self.row.id if self.recipe is None else f"{self.row.id} seed {self.seed}"


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
        """The jobs that a run carries out."""
        return tuple(job for job in self.jobs if self.only is None or job.row.id in self.only)

    @property
    def profile(self) -> Profile:
        """The sizes of everything here."""
        return self.run_dir.profile

    @property
    def command(self) -> str:
        """The command that runs what is planned here: these rows, columns and seeds, in this folder."""
        from atrl_bench.experiments.ablation import with_saved_points

        whole = with_saved_points(load_table(self.definition.id), self.run_dir)
        parts = []
        for option, chosen, known in (
            ("--rows", self.definition.rows, whole.rows),
            ("--columns", self.definition.columns, whole.columns),
        ):
            if len(chosen) < len(known):
                parts.append(f"{option} {','.join(item.id for item in chosen)}")
        given = [*parts, *seeds_options(self.definition, self.seeds), self.run_dir.options]
        return f"atrl-bench run-table {self.definition.id} {' '.join(given)}"


@dataclass(frozen=True)
class Outcome:
    """What a command made: the table, its files, how many jobs it finished (None: it ran none), and what failed."""

    table: Table
    files: tuple[Path, ...]
    num_done_now: int | None
    failures: dict[str, str]

    def json_text(self) -> str:
        """Return the table as one JSON document."""
        from atrl_bench.report.text import render_json

        return render_json(self.table)

    def summary(self) -> str:
        """Return what a person wants to know last: what failed, what was new, where the page is."""
        from atrl_bench.escape import folded

        failed = (folded(f"Failed: {name}: {reason}", rest="  ") for name, reason in self.failures.items())
        lines = [line for of_one in failed for line in of_one]
        if self.num_done_now == 0 and not self.failures:
            lines.append("Everything was in the store; nothing was trained or generated.")
        pages = [path for path in self.files if path.suffix == ".html"]
        others = [path.name for path in self.files if path.suffix != ".html"]
        lines += [f"Report: {path}" for path in pages]
        return "\n".join([*lines, *folded(f"Beside it: {', '.join(others)}", rest="  ")])


def seeds_options(definition: TableDefinition, seeds: Sequence[int]) -> list[str]:
    """Return the option that trains a table with these seeds, none where they are its own."""
    return [] if tuple(seeds) == tuple(definition.seeds) else [f"--seeds {','.join(map(str, seeds))}"]


def plan_table(
    table: str,
    *,
    profile: Profile,
    workspace: Path | None = None,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    data_dir: Path | None = None,
) -> Plan:
    """Return the jobs of a table. Loads no model and reads the store only when asked for a cell's state.

    Without `seeds`, rows are trained as often as the table says. Points that `ablate` added to an ablation in this run
    folder are among its rows.
    """
    from atrl_bench.experiments.ablation import with_saved_points

    run_dir = RunDir.at(workspace, profile, data_dir)
    definition = with_saved_points(load_table(table), run_dir).select(rows=rows, columns=columns)
    return plan_definition(definition, run_dir, seeds)


def plan_definition(
    definition: TableDefinition,
    run_dir: RunDir,
    seeds: Sequence[int] | None = None,
    only: frozenset[str] | None = None,
) -> Plan:
    """Return the jobs of a table in a run folder, of which the rows in `only` are to be carried out, by default all."""
    from atrl_bench.evaluation.tasks import find_task
    from atrl_bench.training.recipe import load_recipe

    seeds = tuple(seeds or definition.seeds)
    asked = _asked(definition)
    run_dir.provide(*(find_task(evaluation.task).folder for evaluation in asked))
    jobs = [
        Job(row, seeds[0], asked, None, None, run_dir.with_model(definition.model_of(row)).profile.model)
        for row in definition.rows
        if not (row.recipe or row.served or row.not_measured)
    ]
    recipes = {
        row.id: load_recipe(row.recipe, **definition.recipe_fields(row)) for row in definition.rows if row.recipe
    }
    # Seed by seed, so that the first whole table is there after the first seed.
    for seed in seeds:
        for row in definition.rows:
            if row.id in recipes:
                own = run_dir.with_model(definition.model_of(row))
                spec = training_spec(recipes[row.id], own, seed)
                jobs.append(Job(row, seed, asked, recipes[row.id], spec, own.profile.model))
    return Plan(definition, run_dir, seeds, tuple(jobs), only)


def _asked(definition: TableDefinition) -> tuple[Evaluation, ...]:
    """Return what a row of the table needs, each once."""
    return tuple(dict.fromkeys(item for column in definition.columns for item in evaluations_of(column)))


def evaluations_of(column: ColumnDefinition) -> tuple[Evaluation, ...]:
    """Return what a column needs: its task, or the tasks of its suite."""
    from atrl_bench.evaluation.tasks import expand

    return tuple(Evaluation(info.name, column.frames if info.shows_videos else None) for info in expand([column.task]))


@cache
def lacking(task: str) -> str | None:
    """Return why this machine may not run a task, None where it may; asked once a process."""
    from atrl_bench.evaluation.tasks import find_task
    from atrl_bench.sandbox.isolation import CODE_ISOLATION, require_isolation

    if CODE_ISOLATION in find_task(task).needs:
        try:
            require_isolation()
        except AtrlBenchError as error:
            return f"{error.what} {error.next_step[:1].upper()}{error.next_step[1:]}."
    return None


def training_spec(recipe: Recipe, run_dir: RunDir, seed: int) -> dict[str, Any]:
    """Return what names the training of `recipe` in this run folder: everything that can change its weights."""
    from atrl_bench.training.run import run_spec

    base, data = _digests(run_dir.base_model, recipe.data, run_dir.provide(recipe.data))
    if recipe.start_from is not None:
        base = f"run:{spec_key(training_spec(_first_stage(recipe), run_dir, seed))}"
    return run_spec(recipe, run_dir.profile, base, data, seed)


def _first_stage(recipe: Recipe) -> Recipe:
    """Return the recipe whose checkpoint this one starts from."""
    from atrl_bench.training.recipe import load_recipe

    return load_recipe(str(recipe.start_from))


@cache
def _digests(base_model: Path | str, data: str, data_dir: Path | None) -> tuple[str, str]:
    """Return the digests of base model and training set, read once a command: both may be gigabytes, rows are many."""
    from atrl_bench.training.data import data_digest
    from atrl_bench.training.run import model_digest

    return model_digest(base_model), data_digest(data, data_dir)


def job_cells(job: Job, plan: Plan, store: Store) -> dict[str, tuple[str, ...]]:
    """Return the cell keys of a job by column, several for a suite; a column that lacks one is left out."""
    return _by_column(plan, evaluation_keys(job, plan, store))


def _by_column(plan: Plan, of: Mapping[Evaluation, str]) -> dict[str, tuple[str, ...]]:
    needed = {column.id: evaluations_of(column) for column in plan.definition.columns}
    return {column: tuple(of[item] for item in items) for column, items in needed.items() if of.keys() >= set(items)}


def evaluation_keys(job: Job, plan: Plan, store: Store) -> dict[Evaluation, str]:
    """Return the cell key of each evaluation of a job, as far as checkpoint, model and data it depends on are here."""
    model = _checkpoint(job, plan.run_dir, store)
    return {} if model is None else _cell_keys(model, job.evaluations, plan)


def _cell_keys(
    model: str | Path, evaluations: Iterable[Evaluation], plan: Plan, *, endpoint: EndpointConfig | None = None
) -> dict[Evaluation, str]:
    from atrl_bench.evaluation.cell_spec import EvaluationOptions, cell_spec

    run_dir = plan.run_dir
    keys = {}
    for task, frames in evaluations:
        try:
            options = EvaluationOptions(frames=frames, judge=run_dir.judge, endpoint=endpoint, run_seed=EVALUATION_SEED)
            spec = cell_spec(model, task, options, profile=plan.profile, data_dir=run_dir.data_dir)
        except MissingDataError:  # then nothing of it can be stored, and running the job says what is missing
            continue
        keys[Evaluation(task, frames)] = spec.key
    return keys


def cell_keys(plan: Plan, store: Store) -> dict[tuple[str, str], list[str]]:
    """Return the keys of each (row, column) over seeds and parts, as far as what they depend on exists."""
    keys: dict[tuple[str, str], list[str]] = {}
    for job in plan.jobs:
        for column, of_column in job_cells(job, plan, store).items():
            keys.setdefault((job.row.id, column), []).extend(of_column)
    for row in plan.definition.rows:
        if row.served:
            keys |= {(row.id, column): list(of_column) for column, of_column in _served_cells(row.served, plan).items()}
    return keys


def _served_cells(model: str, plan: Plan) -> dict[str, tuple[str, ...]]:
    """Return the cells that `atrl-bench evaluate MODEL --base-url URL` fills, by column; no table asks an endpoint."""
    from atrl_bench.models.chat_client import EndpointConfig

    return _by_column(plan, _cell_keys(model, _asked(plan.definition), plan, endpoint=EndpointConfig("", model)))


def _checkpoint(job: Job, run_dir: RunDir, store: Store) -> str | Path | None:
    if job.run_key is None:
        return job.model
    run = store.run(job.run_key)
    folder = run_dir.root / run.checkpoint if run is not None and run.state == "done" else None
    return folder if folder is not None and folder.is_dir() else None


# Running ------------------------------------------------------------------------------------------------------------


def run_table(plan: Plan, *, jobs: int | None = None, quiet: bool = False) -> Outcome:
    """Return the rendered table after everything it needs was trained and evaluated, as far as that succeeds."""
    from atrl_bench.experiments.ablation import save_points

    save_points(plan.definition, plan.run_dir)
    with Store.open(plan.run_dir.store_path) as store:
        # Rows that are one and the same, such as two base models that the mini model stands for, are one job.
        due = {(job.run_key, job.model): job for job in reversed(plan.due)}
        pending = [job for job in plan.due if due[job.run_key, job.model] is job and not _is_done(job, plan, store)]
        if pending:
            plan.run_dir.record_environment()
        failures = _carry_out_all(pending, plan, store, jobs=jobs, quiet=quiet) if pending else {}
        if pending and not failures:
            _look_for_overlap(plan)
        return _render(plan, store, num_done_now=len(pending) - len(failures), failures=failures)


def render(plan: Plan, *, max_problems: int | None = None) -> Outcome:
    """Return the rendered table, as far as the store is filled, without running anything.

    `max_problems` is how many problems of a number the pages of answers show; None shows all.
    """
    with Store.open(plan.run_dir.store_path) as store:
        return _render(plan, store, num_done_now=None, failures={}, max_problems=max_problems)


def read_table(plan: Plan, store: Store) -> Table:
    """Return the table as far as the store is filled; writes nothing."""
    from atrl_bench.report.build import build_table

    runs: dict[str, list[Run]] = {job.row.id: [] for job in plan.jobs if job.run_key}
    for job in plan.jobs:
        run = store.run(job.run_key) if job.run_key else None
        if run is not None:
            runs[job.row.id].append(run)
    return build_table(
        plan.definition,
        store,
        profile=plan.profile,
        cell_keys=cell_keys(plan, store),
        runs=runs,
        seeds=plan.seeds,
        environment=plan.run_dir.environment(),
        notes=_overlap_notes(plan),
        lacking=_lacking(plan),
    )


def _render(
    plan: Plan,
    store: Store,
    *,
    num_done_now: int | None,
    failures: dict[str, str],
    max_problems: int | None = None,
) -> Outcome:
    from atrl_bench.report.answers import AnswerSource, remembered_shades
    from atrl_bench.report.front_page import write_index
    from atrl_bench.report.write import write_report

    table, run_dir = read_table(plan, store), plan.run_dir
    keys, shades = cell_keys(plan, store), remembered_shades(run_dir)
    answers = AnswerSource(store, keys, run_dir.data_dir, plan.definition.baseline, shades, max_problems)
    files = write_report(table, run_dir.reports, answers)
    return Outcome(table, (*files, write_index(run_dir)), num_done_now, failures)


def _training_sets(plan: Plan) -> list[str]:
    return list(dict.fromkeys(job.recipe.data for job in plan.jobs if job.recipe is not None))


def _tasks(plan: Plan) -> list[str]:
    return list(dict.fromkeys(item.task for column in plan.definition.columns for item in evaluations_of(column)))


def _lacking(plan: Plan) -> dict[str, str]:
    """Return the columns that nothing here may fill, each with the reason."""
    reasons = {column.id: [lacking(item.task) for item in evaluations_of(column)] for column in plan.definition.columns}
    return {column: next(filter(None, found)) for column, found in reasons.items() if any(found)}


def _overlap_notes(plan: Plan) -> list[str]:
    from atrl_bench.analysis.contamination import overlap_note

    try:
        return [overlap_note(plan.run_dir, train, _tasks(plan)) for train in _training_sets(plan)]
    except MissingDataError:  # a partial table can be shown where the data is not
        return []


def _look_for_overlap(plan: Plan) -> None:
    """Count the test problems in the training data, unless these data were looked through before."""
    from atrl_bench.analysis.contamination import overlap, overlap_counts

    run_dir = plan.run_dir
    for train in _training_sets(plan):
        tasks = [task for task in _tasks(plan) if overlap_counts(run_dir, train, task) is None]
        if tasks:
            overlap(train, tasks, run_dir)


def _is_done(job: Job, plan: Plan, store: Store) -> bool:
    from atrl_bench.evaluation.cell import is_finished

    keys = evaluation_keys(job, plan, store)
    due = [key for item, key in keys.items() if lacking(item.task) is None]
    return len(keys) == len(job.evaluations) and all(is_finished(store, key, plan.run_dir.judge) for key in due)


def _carry_out_all(pending: list[Job], plan: Plan, store: Store, *, jobs: int | None, quiet: bool) -> dict[str, str]:
    num_workers = min(len(pending), jobs or default_jobs())
    failures: dict[str, str] = {}
    with ProcessPoolExecutor(
        num_workers, mp_context=multiprocessing.get_context("spawn"), initializer=start_worker, initargs=(os.getpid(),)
    ) as pool:
        try:
            futures = {pool.submit(carry_out, job, plan.run_dir): job for job in pending}
            with Watch(store, len(pending), num_workers, quiet=quiet) as watch:
                waiting: set[Future[None]] = set(futures)
                while waiting:
                    done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    for future in done:
                        error = future.exception()
                        if error is not None:
                            failures[futures[future].name] = _first_line(error)
                    watch.num_done += len(done)
        except BaseException:
            # Stored answers are safe at any moment, so stopping means stopping now, not after the running rows.
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.kill()
            raise
    return failures


def _first_line(error: BaseException) -> str:
    # Some errors, a bare assertion among them, have no text at all.
    return str(error).partition("\n")[0] or type(error).__name__


def default_jobs() -> int:
    """Return how many rows run side by side: one a core; on a GPU, which one row fills, one."""
    if Path("/dev/nvidiactl").exists():
        return 1
    # Only Linux tells which cores this process may use.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_worker(parent: int) -> None:
    """Make this process one thread wide, silent, and dead as soon as its parent is."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Renamings inside the libraries are news for us, not for the person who watches a table grow.
    warnings.filterwarnings("ignore", category=FutureWarning, module="(transformers|trl|accelerate|peft)")


def carry_out(job: Job, run_dir: RunDir) -> None:
    """Train the job's row if it has a recipe, then evaluate it; whatever is stored already is not done again.

    A benchmark that fails does not keep the others from being answered; the first failure is raised after them.
    """
    from atrl_bench.report.answers import shade_some

    run_dir = run_dir.with_model(job.model)
    failed: list[Exception] = []
    with Store.open(run_dir.store_path) as store:
        model: str | Path = job.model
        if job.recipe is not None:
            model = train_into(store, job.recipe, job.run_spec or {}, run_dir=run_dir, seed=job.seed)
        for task, frames in job.evaluations:
            if lacking(task):
                continue
            try:
                key = evaluate_into(store, model, task, run_dir=run_dir, run_seed=EVALUATION_SEED, frames=frames)
                shade_some(store, key, run_dir)
            except Exception as error:
                failed.append(error)
    if failed:
        raise failed[0]


def train_into(store: Store, recipe: Recipe, spec: dict[str, Any], *, run_dir: RunDir, seed: int) -> Path:
    """Return the folder of the recipe's checkpoint, trained now unless the store has it, and recorded there.

    A recipe that starts from another's checkpoint has that one trained first.
    """
    from atrl_bench.training.run import train

    key, base_model = store.add_run(spec), run_dir.base_model
    if recipe.start_from is not None:
        first = _first_stage(recipe)
        base_model = train_into(store, first, training_spec(first, run_dir, seed), run_dir=run_dir, seed=seed)
    try:
        result = train(
            recipe,
            profile=run_dir.profile,
            base_model=base_model,
            data_dir=run_dir.data_dir,
            out=run_dir.checkpoints,
            seed=seed,
            spec=spec,
            on_progress=lambda done, total: store.heartbeat("run", key, done, total),
        )
    except Exception as error:
        store.fail_run(key, f"{type(error).__name__}: {error}")
        raise
    store.finish_run(
        key,
        checkpoint=str(result.checkpoint.relative_to(run_dir.root)),
        digest=result.digest,
        seconds=result.seconds,
        summary=result.summary,
    )
    return result.checkpoint


def evaluate_into(
    store: Store,
    model: str | Path,
    task: str,
    *,
    run_dir: RunDir,
    run_seed: int,
    judge: JudgeConfig | None = None,
    **options: Any,
) -> str:
    """Return the key of the cell of `model` on `task`, filled now unless the store has it.

    The run folder's judge decides unless another is given.
    """
    from atrl_bench.evaluation.cell import evaluate
    from atrl_bench.evaluation.cell_spec import EvaluationOptions
    from atrl_bench.evaluation.tasks import find_task

    return evaluate(
        model,
        task,
        EvaluationOptions(run_seed=run_seed, judge=judge or run_dir.judge, **options),
        store=store,
        profile=run_dir.profile,
        data_dir=run_dir.provide(find_task(task).folder),
    )
