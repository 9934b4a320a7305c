"""Jobs on a Ray cluster: a training, then each of its benchmarks by itself; one process, here, writes the store."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from atrl_bench.engines.ray_cluster import CPUS_PER_GPU, ClusterJob, RayCluster, Resources
from atrl_bench.experiments.cost import RUNTIME_GB, training_needs
from atrl_bench.experiments.jobs import EvaluationJob, TrainingJob, is_done, remaining, run_job
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.results.shared_store import WRITER, served
from atrl_bench.results.store import Store

AnyJob = TrainingJob | EvaluationJob
JobT = TypeVar("JobT", TrainingJob, EvaluationJob)


def run_on_cluster(
    cluster: RayCluster, jobs: Sequence[JobT], store: Store
) -> Iterator[tuple[JobT, BaseException | None]]:
    """Yield each of a run folder's jobs when the last of its parts has ended, with the first error among them."""
    by_name = {job.name: job for job in jobs}
    parts = [part for job in jobs for part in parts_of(job, store)]
    left = Counter(each.item.name for part in parts for each in part.all_jobs())
    errors: dict[str, BaseException] = {}
    with _store_for(cluster, store, jobs[0].run_dir) as variables:
        for part, error in cluster.run(run_job, parts, variables):
            name = part.item.name
            left[name] -= 1 if error is None else len(list(part.all_jobs()))
            if error is not None:
                errors.setdefault(name, error)
            if not left[name]:
                yield by_name[name], errors.get(name)


@contextmanager
def _store_for(cluster: RayCluster, store: Store, run_dir: RunDir) -> Iterator[Mapping[str, str]]:
    """The variables with which other machines reach what they need: this store, and the judge."""
    with served(store, cluster.host) as address:
        variables = {WRITER: address.text}
        if run_dir.judge is not None and (key := os.environ.get(run_dir.judge.api_key_variable)):
            variables[run_dir.judge.api_key_variable] = key
        yield variables


def parts_of(job: AnyJob, store: Store) -> tuple[ClusterJob[AnyJob], ...]:
    """What is left of a job: its training with its benchmarks behind it, or the benchmarks that it lacks.

    Where a server answers, the benchmarks are one part: it takes minutes to start.
    """
    if isinstance(job, TrainingJob):
        return (_training(job),)
    left = remaining(job, store).evaluations
    groups = [left] if job.run_dir.engine is not None and left else [(one,) for one in left]
    answers = tuple(_evaluation(job.model_copy(update={"evaluations": group})) for group in groups)
    if isinstance(job.model, TrainingJob) and not is_done(job.model, store):
        return (_training(job.model, answers),)
    return answers


def _training(job: TrainingJob, then: tuple[ClusterJob[AnyJob], ...] = ()) -> ClusterJob[AnyJob]:
    rates = job.run_dir.rates
    needs = training_needs(job.recipe, job.run_dir.profile, rates)
    return ClusterJob(job, f"train {job.name}", _resources(job.num_gpus(rates), needs.host_gb_per_node), then)


def _evaluation(job: EvaluationJob) -> ClusterJob[AnyJob]:
    """The part that answers these benchmarks: on a GPU, or on as many as a server of the model needs."""
    gpus = job.num_gpus(job.run_dir.rates)
    name = f"evaluate {job.name} on {', '.join(task for task, _ in job.evaluations)}"
    return ClusterJob(job, name, _resources(gpus, gpus * RUNTIME_GB))


def _resources(gpus: int, memory_gb: float) -> Resources:
    return Resources(gpus, gpus * CPUS_PER_GPU, memory_gb) if gpus else Resources()
