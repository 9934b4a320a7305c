"""Run what a plan lacks: its jobs side by side, each in a process of its own, or in parts on a cluster.

Jobs do not depend on each other and write to the store as they go; this process only watches the store. The next run
plans from the store again and finds the same keys.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from atrl_bench.engines.devices import Cluster, Machine, memory_gb
from atrl_bench.engines.local import DeadWorkerError, Demand, default_workers, side_by_side
from atrl_bench.engines.ray_cluster import CPUS_PER_GPU, ClusterJob, RayCluster, Resources
from atrl_bench.errors import reason_of
from atrl_bench.evaluation.tasks import expand, statistic_of
from atrl_bench.experiments.ablation import save_points
from atrl_bench.experiments.cost import ASSUMED, RUNTIME_GB, MachineRates, training_needs
from atrl_bench.experiments.definition import ColumnDefinition
from atrl_bench.experiments.jobs import EvaluationJob, TrainingJob, is_done, job_of_row, remaining, run_job
from atrl_bench.experiments.memory_check import require_plan_fits
from atrl_bench.experiments.plan import Job, Plan, best_rates, evaluation_keys, trained_model
from atrl_bench.experiments.progress import Watch
from atrl_bench.experiments.serving import require_engine
from atrl_bench.results.shared_store import WRITER, served
from atrl_bench.results.statistics.metrics import parse_metric
from atrl_bench.results.store import Store


@dataclass(frozen=True)
class PlanRun:
    """How many jobs a run has finished, and of the others why not, by their names."""

    num_done: int = 0
    failures: dict[str, str] = field(default_factory=dict)


def run_plan(plan: Plan, where: Machine | Cluster, *, jobs: int | None = None, quiet: bool = False) -> PlanRun:
    require_plan_fits(plan, where)  # before anybody fetches what it needs
    for job in plan.due:
        if job.missing is not None:
            raise job.missing
    plan.run_dir.keep_choices()
    save_points(plan.definition, plan.run_dir)
    with plan.run_dir.open_store() as store:
        plan.run_dir.keep_checkpoint_store(store)
        pending = _pending(plan, store)
        if not pending:
            return PlanRun()
        require_engine(plan.run_dir)
        _require_metrics(plan.definition.columns)
        plan.run_dir.record_environment()
        tried, failures = list[Job](), dict[str, str]()
        while pending:
            failures |= _run_jobs(pending, plan, store, where, jobs, quiet)
            tried += pending
            # Once every rate is trained it is known at which each seed is judged: its benchmarks are left.
            pending = [job for job in _pending(plan, store) if job not in tried]
    return PlanRun(len(tried) - len(failures), failures)


def _require_metrics(columns: Sequence[ColumnDefinition]) -> None:
    """Raise for a metric that its task does not define: it would be noticed when all is answered."""
    for column in columns:
        for task in expand([column.task]):
            parse_metric(*statistic_of(task.name, column.metric))


def _run_jobs(
    pending: Sequence[Job], plan: Plan, store: Store, where: Machine | Cluster, most: int | None, quiet: bool
) -> dict[str, str]:
    rows, jobs = {job.name: job for job in pending}, longest_first([job_of_row(job, plan.run_dir) for job in pending])
    failures = dict[str, str]()
    num_workers = len(jobs) if isinstance(where, Cluster) else min(len(jobs), most or default_workers(where))
    with Watch(store, len(jobs), num_workers, quiet=quiet) as watch:
        if isinstance(where, Machine):
            rates = plan.run_dir.rates.on(memory_gb(where.gpus))
            demands = [(job, demand(job, where, len(jobs), rates)) for job in jobs]
            ended = side_by_side(run_job, demands, where, num_workers)
        else:
            assert isinstance(where, RayCluster)
            ended = run_on_cluster(where, jobs, store)
        for job, error in ended:
            if error is not None:
                failures[job.name] = reason_of(error)
            if isinstance(error, DeadWorkerError):  # the dead write down nothing
                _fail(rows[job.name], error.what, plan, store)
            watch.row_done()
    return failures


def longest_first(jobs: Sequence[EvaluationJob]) -> list[EvaluationJob]:
    """Models that are there, then seed by seed the longest training, so that none is begun when all others end."""
    seeds = [job.model.seed for job in jobs if isinstance(job.model, TrainingJob)]

    def place(job: EvaluationJob) -> tuple[int, float]:
        if not isinstance(training := job.model, TrainingJob):
            return -1, 0.0
        needs = training_needs(training.recipe, training.run_dir.profile, training.run_dir.rates)
        return seeds.index(training.seed), -needs.hours

    return sorted(jobs, key=place)


def demand(job: EvaluationJob, machine: Machine, num_jobs: int, rates: MachineRates = ASSUMED) -> Demand:
    """How many GPUs a job needs and could use: those that the user chose in any case, none where the CPU will do."""
    least, most = job.num_gpus(rates), len(machine.gpus)
    if isinstance(job.model, TrainingJob):
        # A server needs its own number; this process answers on the GPUs that trained.
        least = max(job.model.num_gpus(rates), least if job.run_dir.engine is not None else 0)
        most //= num_jobs
    least = min(max(least, int(machine.is_chosen)), len(machine.gpus))
    return Demand(least, max(least, most) if least else 0)


def _pending(plan: Plan, store: Store) -> list[Job]:
    # Rows that are one and the same, such as two base models that the mini model stands for, are one job.
    jobs = list(plan.needed(best_rates(plan, store)))
    due = {(job.run_key, job.model, job.protocol, job.evaluations): job for job in reversed(jobs)}
    jobs = [job for job in jobs if due[job.run_key, job.model, job.protocol, job.evaluations] is job]
    # A training that is asked under several protocols is one job until it is trained.
    trains = {job.run_key: job for job in reversed(jobs) if job.run_key and not trained_model(job.run_key, store)}
    jobs = [job for job in jobs if job.run_key not in trains or trains[job.run_key] is job]
    return [job for job in jobs if not is_done(job_of_row(job, plan.run_dir), store)]


def _fail(job: Job, reason: str, plan: Plan, store: Store) -> None:
    """Record why what a job has begun is not done: its training, else each of its cells."""
    run = store.run(job.run_key) if job.run_key else None
    if run is not None and run.state == "pending":
        store.fail_run(run.key, reason)
    for key in evaluation_keys(job, plan, store).values():
        if (cell := store.cell(key)) is not None and cell.state == "pending":
            store.fail_cell(key, reason)


# On a Ray cluster: a training, then each of its benchmarks by itself; one process, here, writes the store -------------

AnyJob = TrainingJob | EvaluationJob
JobT = TypeVar("JobT", TrainingJob, EvaluationJob)


def run_on_cluster(
    cluster: RayCluster, jobs: Sequence[JobT], store: Store
) -> Iterator[tuple[JobT, BaseException | None]]:
    by_name = {job.name: job for job in jobs}
    parts = [part for job in jobs for part in parts_of(job, store, cluster)]
    left = Counter(each.item.name for part in parts for each in part.all_jobs())
    errors: dict[str, BaseException] = {}
    judge = jobs[0].run_dir.judge
    with served(store, cluster.host) as address:
        variables = {WRITER: address.text}
        if judge is not None and (key := os.environ.get(judge.api_key_variable)):
            variables[judge.api_key_variable] = key
        for part, error in cluster.run(run_job, parts, variables):
            name = part.item.name
            left[name] -= 1 if error is None else len(list(part.all_jobs()))
            if error is not None:
                errors.setdefault(name, error)
            if not left[name]:
                yield by_name[name], errors.get(name)


def parts_of(job: AnyJob, store: Store, cluster: Cluster) -> tuple[ClusterJob[AnyJob], ...]:
    """What is left of a job; the benchmarks that a server answers are one part: it takes minutes to start."""
    if isinstance(job, TrainingJob):
        return (_training(job, cluster),)
    left = remaining(job, store).evaluations
    groups = [left] if job.run_dir.engine is not None and left else [(one,) for one in left]
    answers = tuple(_evaluation(job.model_copy(update={"evaluations": group})) for group in groups)
    if isinstance(job.model, TrainingJob) and not is_done(job.model, store):
        return (_training(job.model, cluster, answers),)
    return answers


def _training(job: TrainingJob, cluster: Cluster, then: tuple[ClusterJob[AnyJob], ...] = ()) -> ClusterJob[AnyJob]:
    rates = job.run_dir.rates
    needs, gpus = training_needs(job.recipe, job.run_dir.profile, rates), job.num_gpus(rates)
    resources = _resources(gpus, needs.host_gb_per_node)
    if (nodes := cluster.nodes_for(gpus)) > 1:  # whole ones
        resources = replace(_resources(cluster.gpus_per_node if gpus else 0, needs.host_gb_per_node), nodes=nodes)
    return ClusterJob(job, f"train {job.name}", resources, then)


def _evaluation(job: EvaluationJob) -> ClusterJob[AnyJob]:
    gpus = job.num_gpus(job.run_dir.rates)
    name = f"evaluate {job.name} on {', '.join(task for task, _ in job.evaluations)}"
    return ClusterJob(job, name, _resources(gpus, gpus * RUNTIME_GB))


def _resources(gpus: int, memory_gb: float) -> Resources:
    return Resources(gpus, gpus * CPUS_PER_GPU, memory_gb) if gpus else Resources()
