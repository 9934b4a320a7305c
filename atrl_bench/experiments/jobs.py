"""Train a recipe, answer benchmarks: the two things that every command has done, each unless the store has it already.

    train(job, where, store) -> the folder of the checkpoint
    answer(job, where, store)

`where` is this process (`HERE`), or processes of this machine on its GPUs or cores; on a Ray cluster a node does the
same (`cluster_jobs.py`). Both write to the store as they go, so killing them at any moment loses nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from atrl_bench.data.sets import find_set
from atrl_bench.digests import spec_key
from atrl_bench.engines import launch
from atrl_bench.engines.devices import HERE, Devices, environment, memory_gb
from atrl_bench.engines.launch import Configuration, LaunchError
from atrl_bench.engines.processes import launched
from atrl_bench.errors import EndpointError, reason_of
from atrl_bench.evaluation.cell import evaluate
from atrl_bench.evaluation.cell_spec import EvaluationOptions, is_cell_done, is_served
from atrl_bench.evaluation.tasks import find_task
from atrl_bench.experiments.answer_credit import is_shaded, shade
from atrl_bench.experiments.cost import MachineRates, gpus_of, gpus_to_serve
from atrl_bench.experiments.plan import Job, cell_key, obstacle, trained_model, training_spec
from atrl_bench.experiments.protocol import asked_in
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.experiments.serving import endpoint_of, file_name, require_engine, serving
from atrl_bench.results.files import write_atomically, writing
from atrl_bench.results.store import Store
from atrl_bench.settings import Settings
from atrl_bench.training import run
from atrl_bench.training.arguments import most_devices
from atrl_bench.training.recipe import PreferenceRecipe, RolloutRecipe, SupervisedRecipe, first_stage
from atrl_bench.training.rollout_engine import uses_verl

SECONDS_TO_SAY = 60.0  # that the last words of a training may take from one machine to another
SHADED_PROBLEMS = 2  # of a cell: the credit of each of their answers takes the model another forward pass


class _Job(Settings):
    run_dir: RunDir
    name: str  # of the logs of other processes


class TrainingJob(_Job):
    """One training: its recipe, what names it, and what it starts from where that is known already."""

    recipe: RolloutRecipe | SupervisedRecipe | PreferenceRecipe
    spec: dict[str, Any]
    seed: int
    base_model: Path | str | None = None

    def num_gpus(self, rates: MachineRates) -> int:
        return gpus_of(self.recipe, self.run_dir.profile, rates)


class EvaluationJob(_Job):
    """Benchmarks that one model answers; a model that is a training is trained first."""

    model: TrainingJob | Path | str
    evaluations: tuple[tuple[str, EvaluationOptions], ...]
    num_shaded: int = SHADED_PROBLEMS  # whose answers have their credit computed, for the pages that show it

    @property
    def model_here(self) -> Path | str:
        assert not isinstance(self.model, TrainingJob)
        return self.model

    def num_gpus(self, rates: MachineRates) -> int:
        """How many GPUs the answers need: a server spreads a model over several, this process has one for it."""
        profile = self.run_dir.profile
        if not isinstance(self.model, TrainingJob):
            profile = profile.model_copy(update={"model": str(self.model)})
        gpus = gpus_to_serve(profile, rates)
        return min(1, gpus) if self.run_dir.engine is None else gpus


LAUNCH_SPEC: TypeAdapter[TrainingJob | EvaluationJob] = TypeAdapter(TrainingJob | EvaluationJob)


def job_of_row(job: Job, run_dir: RunDir) -> EvaluationJob:
    run_dir = run_dir.with_model(job.model)
    asked = asked_in(job.protocol, run_dir)
    model: TrainingJob | str = job.model
    if job.recipe is not None:
        spec = job.run_spec or {}
        model = TrainingJob(run_dir=run_dir, name=job.name, recipe=job.recipe, spec=spec, seed=job.seed)
    evaluations = tuple(item for item in job.evaluations if not obstacle(item.task))
    return EvaluationJob(run_dir=asked, name=job.name, model=model, evaluations=evaluations)


def is_done(job: TrainingJob | EvaluationJob, store: Store) -> bool:
    """Whether nothing of a job is left to do: trained, answered, graded by its judge, shaded for its pages."""
    if isinstance(job, TrainingJob):
        return trained_model(spec_key(job.spec), store) is not None
    is_trained = not isinstance(job.model, TrainingJob) or is_done(job.model, store)
    return is_trained and not remaining(job, store).evaluations


def remaining(job: EvaluationJob, store: Store) -> EvaluationJob:
    model = trained_model(spec_key(job.model.spec), store) if isinstance(job.model, TrainingJob) else job.model

    def is_left(task: str, options: EvaluationOptions) -> bool:
        key = None if model is None else cell_key(model, task, options, job.run_dir)
        if key is None or not is_cell_done(store, key, options.judge or job.run_dir.judge):
            return True
        return bool(job.num_shaded) and not is_shaded(key, job.run_dir)

    return job.model_copy(update={"evaluations": tuple(item for item in job.evaluations if is_left(*item))})


def run_job(job: TrainingJob | EvaluationJob, where: Devices) -> None:
    os.environ.update(environment(where))
    with job.run_dir.open_store() as store:
        if isinstance(job, TrainingJob):
            train(job, where, store)
        else:
            answer(job, where, store)


def train(job: TrainingJob, where: Devices, store: Store | None) -> Path:
    """The folder of the checkpoint, trained unless the store has it; a process that helps the main one has no store."""
    if job.base_model is None:
        job = job.model_copy(update={"base_model": _base_model(job, where, store)})
    if store is None:
        return _train_here(job, None, "").checkpoint
    key = store.add_run(job.spec)
    try:
        # verl starts what it needs itself, on one machine or over a cluster.
        if where.are_here or uses_verl(job.recipe, job.run_dir.profile):
            result = _train_here(job, store, key)
            store.finish_run(
                key,
                checkpoint=str(result.checkpoint.relative_to(job.run_dir.root)),
                digest=result.digest,
                seconds=result.seconds,
                summary=result.summary,
            )
            return result.checkpoint
        if (checkpoint := job.run_dir.checkpoint_of(store, key)) is None:
            _train_over(job, where)
            checkpoint = _said_by_the_first_machine(job, store, key)
        return checkpoint
    except Exception as error:
        if where.speak:
            store.fail_run(key, reason_of(error))
        raise


def _said_by_the_first_machine(job: TrainingJob, store: Store, key: str) -> Path:
    """The checkpoint of a launch that has ended here; its main process, on another machine, may just be saying so."""
    deadline = time.monotonic() + SECONDS_TO_SAY
    while (checkpoint := job.run_dir.checkpoint_of(store, key)) is None:
        assert time.monotonic() < deadline, f"no checkpoint of {job.name}"
        time.sleep(0.2)
    return checkpoint


def _base_model(job: TrainingJob, where: Devices, store: Store | None) -> Path | str:
    first = first_stage(job.recipe)
    if first is None:
        return job.run_dir.profile.model
    spec = training_spec(first, job.run_dir, job.seed) if store else {}
    return train(job.model_copy(update={"recipe": first, "spec": spec}), where, store)


def _train_here(job: TrainingJob, store: Store | None, key: str) -> run.TrainingResult:
    """Train in this process, with those of its launch, of which the main one alone touches the run folder."""
    run_dir, kept_in = job.run_dir, job.run_dir.checkpoint_store
    if kept_in is not None and store is not None and (stored := store.run(key)) is not None and stored.digest:
        kept_in.has(key, stored.digest)
    assert job.base_model is not None
    result = run.train(
        job.recipe,
        profile=run_dir.profile,
        base_model=job.base_model,
        data_dir=run_dir.data_dir(find_set(job.recipe.data).folder) if store else None,
        out=run_dir.checkpoints,
        seed=job.seed,
        spec=job.spec,
        on_progress=lambda done, total: store.heartbeat("run", key, done, total) if store else None,
        trackers=run_dir.trackers,
        kept_in=kept_in,
        gpus=gpus_of(job.recipe, run_dir.profile),
    )
    if kept_in is not None and store is not None:
        kept_in.put(result.checkpoint, result.digest)
    return result


def _train_over(job: TrainingJob, devices: Devices) -> None:
    recipe, profile = job.recipe, job.run_dir.profile
    devices = devices.first(most_devices(recipe, profile, devices.count, devices.num_machines))
    rates = job.run_dir.rates.on(memory_gb(devices.gpus))
    configuration: Configuration = "fsdp2" if gpus_of(recipe, profile, rates) > 1 else "ddp"
    _launch(job, f"{job.name}.train-{recipe.name}", devices, configuration)


def answer(job: EvaluationJob, where: Devices, store: Store) -> None:
    """Have the job's benchmarks answered; one that fails keeps no other from it, and its error is raised after."""
    if isinstance(job.model, TrainingJob):
        job = job.model_copy(update={"model": train(job.model, where, store)})
    errors, job = _answer_by_engine(job, where, store)
    errors += (_answer_here if where.are_here else _answer_over)(job, where, store)
    if errors:
        raise errors[0]


def _answer_by_engine(job: EvaluationJob, where: Devices, store: Store) -> tuple[list[Exception], EvaluationJob]:
    """The errors of what the folder's engine was asked, and the job without it; its server is gone by then."""
    if job.run_dir.engine is None:
        return [], job
    unanswered = remaining(job.model_copy(update={"num_shaded": 0}), store).evaluations
    waiting = [(task, options) for task, options in unanswered if is_served(task)]
    if not waiting:
        return [], job
    require_engine(job.run_dir)
    failed: dict[str, Exception] = {}
    try:
        with serving(job.model_here, job.run_dir, where, job.name) as server:
            for task, options in waiting:
                served = replace(options, engine=job.run_dir.engine, endpoint=endpoint_of(server))
                try:
                    answer_task(store, job.model_here, task, served, job.run_dir)
                except Exception as error:
                    failed[task] = error if server.is_running else server.died()
    except EndpointError as error:  # it did not start
        failed = {task: error for task, _ in waiting}
    rest = tuple((task, options) for task, options in job.evaluations if task not in failed)
    return list(failed.values()), job.model_copy(update={"evaluations": rest})


def _answer_here(job: EvaluationJob, where: Devices, store: Store) -> list[Exception]:
    errors: list[Exception] = []
    for task, options in job.evaluations:
        try:
            answer_and_shade(job, task, options, store)
        except Exception as error:
            errors.append(error)
    return errors


def _answer_over(job: EvaluationJob, where: Devices, store: Store) -> list[Exception]:
    """The same over devices: the processes end with the first task that fails, and others go on after it."""
    errors: list[Exception] = []
    job = remaining(job, store)
    while job.evaluations:
        try:
            _launch(job, f"{job.name}.evaluate", where, "ddp")
            break
        except LaunchError as error:
            errors.append(error)
            job = job.model_copy(update={"evaluations": job.evaluations[error.progress + 1 :]})
    return errors


def answer_and_shade(job: EvaluationJob, task: str, options: EvaluationOptions, store: Store) -> None:
    key = answer_task(store, job.model_here, task, options, job.run_dir)
    if job.num_shaded and launched().is_main:
        shade(store, key, job.run_dir, job.num_shaded)


def answer_task(store: Store, model: str | Path, task: str, options: EvaluationOptions, run_dir: RunDir) -> str:
    """Fill the cell of `model` on `task` unless the store has it, by the folder's judge and engine; returns its key."""
    options = run_dir.with_choices(options)
    data_dir = run_dir.data_dir(find_task(task).folder)
    return evaluate(model, task, options, store=store, profile=run_dir.profile, data_dir=data_dir)


def _launch(job: TrainingJob | EvaluationJob, stem: str, devices: Devices, configuration: Configuration) -> None:
    logs = job.run_dir.root / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    path = logs / f"{file_name(stem)}.json"
    write_atomically(path, LAUNCH_SPEC.dump_json(job, indent=2))
    on_gpus = configuration if devices.gpus else "cpu"
    log, saves = logs / f"{file_name(job.name)}.log", isinstance(job, TrainingJob)
    with writing(log):
        launch.run("atrl_bench.experiments.jobs", path, on_gpus, devices, log, saves=saves)


def do_part(path: Path) -> None:
    """Do the part of one process of a launch; of a training only the main process touches the run folder."""
    job, answered = LAUNCH_SPEC.validate_json(path.read_bytes()), list[str]()

    def work() -> None:
        if isinstance(job, TrainingJob):
            with job.run_dir.open_store() if launched().is_main else contextlib.nullcontext() as store:
                train(job, HERE, store)
            return
        with job.run_dir.open_store() as store:
            for task, options in job.evaluations:
                answer_and_shade(job, task, options, store)
                answered.append(task)

    launch.rank(work, path.with_suffix(".error"), lambda: len(answered))


if __name__ == "__main__":
    do_part(Path(sys.argv[1]))
