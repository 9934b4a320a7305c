"""What one job does: train its row, then answer its benchmarks, each unless the store has it already.

Each writes to the store as it goes, so killing it at any moment loses nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from atrl_bench.engines.devices import Devices, environment
from atrl_bench.engines.launch import LaunchError
from atrl_bench.errors import EndpointError, reason_of
from atrl_bench.evaluation.cell import evaluate
from atrl_bench.evaluation.cell_spec import EvaluationOptions, is_served
from atrl_bench.evaluation.finished import is_finished
from atrl_bench.evaluation.tasks import find_task
from atrl_bench.experiments.answer_credit import is_shaded, shade
from atrl_bench.experiments.orders import EvaluationOrder, TrainingOrder, evaluate_over, train_over
from atrl_bench.experiments.plan import EVALUATION_SEED, Job, cell_key, is_answered, obstacle, training_spec
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.experiments.serving import endpoint_of, require_engine, serving
from atrl_bench.grading.judge.judge import JudgeConfig
from atrl_bench.results.store import Store
from atrl_bench.training.recipe import Recipe, first_stage
from atrl_bench.training.rollout_engine import uses_verl
from atrl_bench.training.run import train
from atrl_bench.training.sets import folder_of

HERE = Devices()
SHADED_PROBLEMS = 2  # of a cell: the credit of each of their answers takes the model another forward pass


def carry_out(job: Job, devices: Devices, run_dir: RunDir) -> None:
    """Train the job's row if it has a recipe, then evaluate it, over these devices.

    A benchmark that fails does not keep the others from being answered; the first failure is raised after them.
    """
    os.environ.update(environment(devices))
    run_dir = run_dir.with_model(job.model)
    with run_dir.open_store() as store:
        model: str | Path = job.model
        if job.recipe is not None:
            spec, seed = job.run_spec or {}, job.seed
            model = train_into(store, job.recipe, spec, run_dir=run_dir, seed=seed, devices=devices, name=job.name)
        evaluations = [
            (task, EvaluationOptions(frames=frames, run_seed=EVALUATION_SEED))
            for task, frames in job.evaluations
            if not obstacle(task)
        ]
        answer_all(store, model, evaluations, run_dir, devices, job.name)


def train_into(
    store: Store | None,
    recipe: Recipe,
    spec: dict[str, Any],
    *,
    run_dir: RunDir,
    seed: int,
    devices: Devices = HERE,
    name: str = "",
) -> Path:
    """Return the folder of the recipe's checkpoint, trained now unless the store has it, and recorded there.

    A recipe that starts from another's checkpoint has that one trained first. A process that helps the main one of its
    launch has neither store nor spec. `name` is that of the log of other processes.
    """
    base_model: str | Path = run_dir.profile.model
    if (first := first_stage(recipe)) is not None:
        first_spec = training_spec(first, run_dir, seed) if store else {}
        base_model = train_into(
            store, first, first_spec, run_dir=run_dir, seed=seed, devices=devices, name=name or recipe.name
        )
    # verl starts what it needs itself, on one machine or over a cluster.
    if devices.are_here or store is None or uses_verl(recipe, run_dir.profile):
        return train_here(store, recipe, spec, base_model, run_dir, seed)
    key = store.add_run(spec)
    if (checkpoint := run_dir.checkpoint_of(store, key)) is None:
        try:
            order = TrainingOrder(run_dir=run_dir, recipe=recipe, spec=spec, seed=seed, base_model=base_model)
            train_over(devices, order, name or recipe.name)
        except Exception as error:
            store.fail_run(key, reason_of(error))
            raise
        checkpoint = run_dir.checkpoint_of(store, key)
        assert checkpoint is not None
    return checkpoint


def train_here(
    store: Store | None, recipe: Recipe, spec: dict[str, Any], base_model: Path | str, run_dir: RunDir, seed: int
) -> Path:
    """Return the folder of the recipe's checkpoint, trained in this process, with those of its launch, and recorded."""
    key = store.add_run(spec) if store else ""
    kept_in = run_dir.checkpoint_store

    def heartbeat(done: int, total: int) -> None:
        if store is not None:
            store.heartbeat("run", key, done, total)

    try:
        if kept_in is not None and store is not None and (run := store.run(key)) is not None and run.digest:
            kept_in.require_same(key, run.digest)
        result = train(
            recipe,
            profile=run_dir.profile,
            base_model=base_model,
            data_dir=run_dir.data_dir(folder_of(recipe.data)) if store else None,
            out=run_dir.checkpoints,
            seed=seed,
            spec=spec,
            on_progress=heartbeat,
            trackers=run_dir.trackers,
            kept_in=kept_in,
        )
        if kept_in is not None and store is not None:  # the main process of its launch
            kept_in.put(result.checkpoint, result.digest)
    except Exception as error:
        if store is not None:
            store.fail_run(key, reason_of(error))
        raise
    if store is not None:
        store.finish_run(
            key,
            checkpoint=str(result.checkpoint.relative_to(run_dir.root)),
            digest=result.digest,
            seconds=result.seconds,
            summary=result.summary,
        )
    return result.checkpoint


def answer_all(
    store: Store,
    model: str | Path,
    evaluations: Sequence[tuple[str, EvaluationOptions]],
    run_dir: RunDir,
    devices: Devices,
    name: str,
) -> None:
    """Have the folder's engine or these devices answer all of these; the first failure is raised after them."""
    failures, rest = answered_by_engine(store, model, evaluations, run_dir, devices, name)
    evaluate_all = _evaluated_here if devices.are_here else partial(evaluated_over, devices, name)
    failures += evaluate_all(store, model, rest, run_dir)
    if failures:
        raise failures[0]


def answered_by_engine(
    store: Store,
    model: str | Path,
    evaluations: Sequence[tuple[str, EvaluationOptions]],
    run_dir: RunDir,
    devices: Devices,
    name: str,
) -> tuple[list[Exception], list[tuple[str, EvaluationOptions]]]:
    """Have the folder's engine answer what it answers of these; return its failures, and what is not among them.

    Its server is gone when this returns: whoever loads the model next has the devices to itself.
    """
    waiting = [
        (task, options)
        for task, options in evaluations
        if run_dir.engine is not None and is_served(task) and not is_answered(store, model, task, options, run_dir)
    ]
    failed: dict[str, Exception] = {}
    if waiting:
        require_engine(run_dir)
        try:
            with serving(model, run_dir, devices, name) as server:
                for task, options in waiting:
                    own = replace(options, engine=run_dir.engine, endpoint=endpoint_of(server))
                    try:
                        evaluate_into(store, model, task, own, run_dir)
                    except Exception as error:
                        failed[task] = error if server.is_running else server.died()
        except EndpointError as error:  # it did not start
            failed = {task: error for task, _ in waiting}
    return list(failed.values()), [item for item in evaluations if item[0] not in failed]


def _evaluated_here(
    store: Store, model: str | Path, evaluations: Sequence[tuple[str, EvaluationOptions]], run_dir: RunDir
) -> list[Exception]:
    """Answer the tasks one after another and return the errors of those that failed."""
    failures: list[Exception] = []
    for task, options in evaluations:
        try:
            key = evaluate_into(store, model, task, options, run_dir)
            shade(store, key, run_dir, SHADED_PROBLEMS)  # now, so that a report needs no model
        except Exception as error:
            failures.append(error)
    return failures


def evaluated_over(
    devices: Devices,
    name: str,
    store: Store,
    model: str | Path,
    evaluations: Sequence[tuple[str, EvaluationOptions]],
    run_dir: RunDir,
) -> list[Exception]:
    """Return the same over devices; the processes end with the first task that fails, and others begin after it."""
    failures: list[Exception] = []
    waiting = [
        (task, options)
        for task, options in evaluations
        if not is_complete(store, cell_key(model, task, options, run_dir), run_dir, options.judge or run_dir.judge)
    ]
    while waiting:
        order = EvaluationOrder(run_dir=run_dir, model=model, evaluations=waiting, shaded=SHADED_PROBLEMS)
        try:
            evaluate_over(devices, order, name)
            break
        except LaunchError as error:
            failures.append(error)
            waiting = waiting[error.progress + 1 :]
    return failures


def is_complete(store: Store, key: str | None, run_dir: RunDir, judge: JudgeConfig | None) -> bool:
    """Return whether a job has nothing left to do for a cell: answered, graded by this judge, shaded for its pages."""
    return key is not None and is_finished(store, key, judge) and is_shaded(key, run_dir)


def evaluate_into(
    store: Store,
    model: str | Path,
    task: str,
    options: EvaluationOptions,
    run_dir: RunDir,
) -> str:
    """Return the key of the cell of `model` on `task`, filled now unless the store has it.

    The run folder's judge decides unless the options name another.
    """
    options = run_dir.with_choices(options)
    data_dir = run_dir.data_dir(find_task(task).folder)
    return evaluate(model, task, options, store=store, profile=run_dir.profile, data_dir=data_dir)
