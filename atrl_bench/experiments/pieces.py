"""What a job is on a cluster: its training, then each of its benchmarks by itself; one process writes the store."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from atrl_bench.engines.cluster import CPUS_PER_GPU, Cluster, Resources, WorkPiece, over_cluster
from atrl_bench.engines.devices import Devices, environment
from atrl_bench.evaluation.cell_spec import EvaluationOptions
from atrl_bench.experiments.jobs import answer_all, carry_out, is_complete, train_into
from atrl_bench.experiments.plan import Evaluation, Job, Plan, evaluation_keys, obstacle, training_spec
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.results.remote import TOKEN, written_here
from atrl_bench.results.store import Store
from atrl_bench.training.cost_estimate import RUNTIME_GB, gpus_to_answer, gpus_to_serve, training_needs
from atrl_bench.training.recipe import Recipe
from atrl_bench.training.run import gpus_of


def jobs_on(
    cluster: Cluster, jobs: Sequence[Job], plan: Plan, store: Store
) -> Iterator[tuple[Job, BaseException | None]]:
    """Yield each job when its pieces have ended on the cluster, with the first error among them."""
    whole = {job.name: job for job in jobs}
    of_job = {name: pieces_of(job, plan, store) for name, job in whole.items()}
    left = {name: sum(piece.num_pieces for piece in pieces) for name, pieces in of_job.items()}
    errors: dict[str, BaseException] = {}
    with sent_to(cluster, store, plan.run_dir) as (run_dir, variables):
        pieces = [piece for of_one in of_job.values() for piece in of_one]
        for piece, error in over_cluster(cluster, partial(carry_out, run_dir=run_dir), pieces, variables):
            name = piece.item.name
            left[name] -= 1 if error is None else piece.num_pieces
            if error is not None:
                errors.setdefault(name, error)
            if not left[name]:
                yield whole[name], errors.get(name)


@contextmanager
def sent_to(cluster: Cluster, store: Store, run_dir: RunDir) -> Iterator[tuple[RunDir, Mapping[str, str]]]:
    """Yield the run folder as the cluster's machines have it, whose store is written here, and the variables for it."""
    with written_here(store, cluster.host) as writer:
        variables = {TOKEN: writer.token}
        if run_dir.judge is not None and (key := os.environ.get(run_dir.judge.api_key_variable)):
            variables[run_dir.judge.api_key_variable] = key
        if run_dir.checkpoint_store is not None:
            variables |= run_dir.checkpoint_store.credentials()
        yield replace(run_dir, writer=writer.url), variables


def pieces_of(job: Job, plan: Plan, store: Store) -> tuple[WorkPiece[Job], ...]:
    """Return what is left of a job: its training with its benchmarks behind it, or the benchmarks that it lacks.

    Where a server answers, the benchmarks are one piece: it takes minutes to start.
    """
    run_dir = plan.run_dir.with_model(job.model)
    keys = evaluation_keys(job, plan, store)  # none before there is a checkpoint
    lacking = tuple(
        one for one in job.evaluations if obstacle(one.task) is None and not _is_there(store, keys.get(one), run_dir)
    )
    groups: list[tuple[Evaluation, ...]] = [(one,) for one in lacking]
    if run_dir.engine is not None and lacking:
        groups = [lacking]
    evaluations = tuple(_evaluation(replace(job, evaluations=group), run_dir) for group in groups)
    if job.recipe is None or (keys and lacking):
        return evaluations
    return (_training(replace(job, evaluations=()), run_dir, evaluations),)


def _is_there(store: Store, key: str | None, run_dir: RunDir) -> bool:
    return key is not None and is_complete(store, key, run_dir, run_dir.judge)


def _training(job: Job, run_dir: RunDir, then: tuple[WorkPiece[Job], ...]) -> WorkPiece[Job]:
    assert job.recipe is not None
    return WorkPiece(job, f"train {job.name}", training_resources(job.recipe, run_dir), then)


def _evaluation(job: Job, run_dir: RunDir) -> WorkPiece[Job]:
    tasks = ", ".join(evaluation.task for evaluation in job.evaluations)
    return WorkPiece(job, f"evaluate {job.name} on {tasks}", answering_resources(run_dir))


def train_on(cluster: Cluster, recipes: Sequence[Recipe], run_dir: RunDir, store: Store, seed: int) -> Iterator[Recipe]:
    """Yield each of these recipes when its training has ended on the cluster; raises the first error after all."""
    errors = []
    with sent_to(cluster, store, run_dir) as (theirs, variables):
        pieces = [WorkPiece(each, f"train {each.name}", training_resources(each, run_dir)) for each in recipes]
        for piece, error in over_cluster(cluster, partial(_train, run_dir=theirs, seed=seed), pieces, variables):
            errors += [error] if error is not None else []
            yield piece.item
    if errors:
        raise errors[0]


def _train(recipe: Recipe, devices: Devices, *, run_dir: RunDir, seed: int) -> None:
    os.environ.update(environment(devices))
    with run_dir.open_store() as store:
        spec = training_spec(recipe, run_dir, seed)
        train_into(store, recipe, spec, run_dir=run_dir, seed=seed, devices=devices)


def answer_on(
    cluster: Cluster, model: str, evaluations: Sequence[tuple[str, EvaluationOptions]], run_dir: RunDir, store: Store
) -> Iterator[str]:
    """Yield each of these tasks when a model has answered it on the cluster; raises the first error after all."""
    own = replace(run_dir, profile=run_dir.profile.model_copy(update={"model": model}))
    groups: list[Sequence[tuple[str, EvaluationOptions]]] = [[one] for one in evaluations]
    if run_dir.engine is not None:
        groups = [evaluations]
    errors = []
    with sent_to(cluster, store, run_dir) as (theirs, variables):
        pieces = [
            WorkPiece(group, f"evaluate {model} on {', '.join(task for task, _ in group)}", answering_resources(own))
            for group in groups
        ]
        for piece, error in over_cluster(cluster, partial(_answer, run_dir=theirs, model=model), pieces, variables):
            errors += [error] if error is not None else []
            yield from (task for task, _ in piece.item)
    if errors:
        raise errors[0]


def _answer(
    evaluations: Sequence[tuple[str, EvaluationOptions]], devices: Devices, *, run_dir: RunDir, model: str
) -> None:
    os.environ.update(environment(devices))
    with run_dir.open_store() as store:
        answer_all(store, model, evaluations, run_dir, devices, f"evaluate {model}")


def training_resources(recipe: Recipe, run_dir: RunDir) -> Resources:
    """Return what a training asks for, by its estimate."""
    needs = training_needs(recipe, run_dir.profile, run_dir.rates)
    return _resources(gpus_of(recipe, run_dir.profile, run_dir.rates), needs.host_gb_per_node)


def answering_resources(run_dir: RunDir) -> Resources:
    """Return what the answers of the folder's model ask for: a GPU, or as many as a server of it needs."""
    alone, rates = run_dir.engine is None, run_dir.rates
    gpus = gpus_to_answer(run_dir.profile) if alone else gpus_to_serve(run_dir.profile, rates)
    return _resources(gpus, gpus * RUNTIME_GB)


def _resources(gpus: int, memory_gb: float) -> Resources:
    return Resources(gpus, gpus * CPUS_PER_GPU, memory_gb) if gpus else Resources()
