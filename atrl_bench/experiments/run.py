"""Run what a plan lacks: its jobs side by side, each in a process of its own, or in pieces on a cluster.

Jobs do not depend on each other and write to the store as they go; this process only watches the store. The next run
plans from the store again and finds the same keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from atrl_bench.engines.devices import Devices, Machine, memory_gb
from atrl_bench.engines.local import DeadWorkerError, default_workers, side_by_side
from atrl_bench.engines.placement import Demand, Placement
from atrl_bench.errors import reason_of
from atrl_bench.experiments.ablation import save_points
from atrl_bench.experiments.jobs import carry_out, is_complete
from atrl_bench.experiments.pieces import jobs_on
from atrl_bench.experiments.plan import Job, Plan, best_rates, evaluation_keys, is_trained, obstacle
from atrl_bench.experiments.progress import Watch
from atrl_bench.experiments.room import require_room_for_plan
from atrl_bench.experiments.serving import require_engine
from atrl_bench.profiles import Profile
from atrl_bench.results.store import Store
from atrl_bench.training.cost_estimate import gpus_to_answer, gpus_to_serve
from atrl_bench.training.machine_rates import ASSUMED, MachineRates
from atrl_bench.training.run import gpus_of


@dataclass(frozen=True)
class PlanRun:
    """How many jobs a run has finished, and of the others why not, by their names."""

    num_done: int = 0
    failures: dict[str, str] = field(default_factory=dict)


def run_plan(plan: Plan, machine: Machine, *, jobs: int | None = None, quiet: bool = False) -> PlanRun:
    """Return what became of the jobs that the store lacks, as many at a time as fit on the machine, `jobs` at most."""
    require_room_for_plan(plan, machine)  # before anybody fetches what it needs
    for job in plan.due:
        if job.missing is not None:
            raise job.missing
    plan.run_dir.keep_engine()
    plan.run_dir.keep_rollouts()
    save_points(plan.definition, plan.run_dir)
    with plan.run_dir.open_store() as store:
        plan.run_dir.keep_checkpoint_store(store)
        pending = _pending(plan, store)
        if not pending:
            return PlanRun()
        require_engine(plan.run_dir)
        plan.run_dir.record_environment()
        tried, failures = list[Job](), dict[str, str]()
        while pending:
            failures |= _carried_out(pending, plan, store, machine, jobs, quiet)
            tried += pending
            # Once every rate is trained the best is known, and with it what is left: its other seeds, its benchmarks.
            pending = [job for job in _pending(plan, store) if job not in tried]
    return PlanRun(len(tried) - len(failures), failures)


def _carried_out(
    pending: Sequence[Job], plan: Plan, store: Store, machine: Machine, jobs: int | None, quiet: bool
) -> dict[str, str]:
    """Carry these jobs out and return why some of them failed."""
    num_workers = len(pending) if machine.cluster else min(len(pending), jobs or default_workers(machine))
    rates, failures = plan.run_dir.rates.on(memory_gb(machine.gpus)), dict[str, str]()
    is_served = plan.run_dir.engine is not None
    demands = [(job, demand(job, plan.profile, machine, len(pending), rates, is_served)) for job in pending]
    with Watch(store, len(pending), num_workers, quiet=quiet) as watch:
        if machine.cluster is not None:
            ended = jobs_on(machine.cluster, pending, plan, store)
        else:
            ended = side_by_side(partial(carry_out, run_dir=plan.run_dir), demands, machine, num_workers)
        for job, error in ended:
            if error is not None:
                failures[job.name] = reason_of(error)
            if isinstance(error, DeadWorkerError):  # the dead write down nothing
                _fail(job, error.what, plan, store)
            watch.row_done()
    return failures


def demand(
    job: Job,
    profile: Profile,
    machine: Machine,
    num_jobs: int,
    rates: MachineRates = ASSUMED,
    is_served: bool = False,
) -> Demand:
    """Return how many GPUs a job needs and could use; none where there is none, or the CPU will do.

    A server spreads a model that one GPU does not hold over several; this process has one GPU for it.
    """
    own = profile if profile.generated_data else profile.model_copy(update={"model": job.model})
    to_answer = gpus_to_serve(own, rates) if is_served else gpus_to_answer(own)
    if job.recipe is None:
        return _demand(to_answer, machine, len(machine.gpus))
    to_train = gpus_of(job.recipe, own, rates)
    return _demand(max(to_train, to_answer) if is_served else to_train, machine, len(machine.gpus) // num_jobs)


def devices_for(least: int, machine: Machine) -> Devices:
    """Return the devices of work that needs so many GPUs and has the machine to itself."""
    placed = Placement([("", _demand(least, machine, len(machine.gpus)))], machine).next()
    assert placed is not None
    return placed[1]


def _demand(least: int, machine: Machine, most: int) -> Demand:
    """Return the demand of work that needs so many GPUs; those that the user chose are used in any case.

    What needs more than there are was refused before (`room.py`), unless it is trained and only to be evaluated.
    """
    least = min(max(least, int(machine.is_chosen)), len(machine.gpus))
    return Demand(least, max(least, most) if least else 0)


def _pending(plan: Plan, store: Store) -> list[Job]:
    # Rows that are one and the same, such as two base models that the mini model stands for, are one job.
    jobs = plan.needed(best_rates(plan, store))
    due = {(job.run_key, job.model): job for job in reversed(jobs)}
    return [job for job in jobs if due[job.run_key, job.model] is job and not is_done(job, plan, store)]


def is_done(job: Job, plan: Plan, store: Store) -> bool:
    """Return whether everything of a job that this machine may run is there, the shading of its pages included."""
    if not is_trained(job, store):
        return False
    keys = evaluation_keys(job, plan, store)
    due = [key for item, key in keys.items() if obstacle(item.task) is None]
    run_dir = plan.run_dir
    return len(keys) == len(job.evaluations) and all(is_complete(store, key, run_dir, run_dir.judge) for key in due)


def _fail(job: Job, reason: str, plan: Plan, store: Store) -> None:
    """Record why what a job has begun is not done: its training, else each of its cells."""
    run = store.run(job.run_key) if job.run_key else None
    if run is not None and run.state == "pending":
        store.fail_run(run.key, reason)
    for key in evaluation_keys(job, plan, store).values():
        if (cell := store.cell(key)) is not None and cell.state == "pending":
            store.fail_cell(key, reason)
