"""Refuses trainings that this machine does not hold, or has no engine for, before any of them is started."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from atrl_bench.engines.devices import Cluster, Machine
from atrl_bench.errors import MachineTooSmallError
from atrl_bench.experiments.plan import Plan, planned_key, planned_spec
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.training.cost_estimate import GB
from atrl_bench.training.fits import Capacity, free_disk_gb, require_fit, this_machine
from atrl_bench.training.recipe import Recipe, stages_of
from atrl_bench.training.rollout_engine import require_sampler, uses_verl
from atrl_bench.training.verl_configuration import require_verl_form
from atrl_bench.training.verl_run import verl_python


def require_room(recipes: Iterable[Recipe], run_dir: RunDir, where: Machine | Cluster, seed: int) -> None:
    """Raise for the first of these trainings that is not done and cannot be: `MachineTooSmallError` if too big."""
    capacity = this_machine(run_dir.root, where.gpus) if isinstance(where, Machine) else _largest_node(where, run_dir)
    for stage in (stage for recipe in recipes for stage in stages_of(recipe)):
        key = planned_key(*planned_spec(stage, run_dir, seed))
        if run_dir.run_state(key) != "done":
            if uses_verl(stage, run_dir.profile):  # on machines that verl knows of, and this one need not
                require_verl_form(stage, run_dir.profile)
                verl_python()
                continue
            require_sampler(stage, run_dir.profile)
            stored_gb = _size_gb(run_dir.checkpoints / key)
            require_fit(stage, run_dir.profile, capacity, run_dir.rates, stored_gb=stored_gb)


def require_room_for_plan(plan: Plan, where: Machine | Cluster) -> None:
    """Raise `MachineTooSmallError` if a row of a plan does not fit, with the rows that do."""
    refused: dict[str, MachineTooSmallError] = {}
    for job in plan.due:
        if job.recipe is not None and job.row.id not in refused:
            try:
                require_room([job.recipe], plan.run_dir.with_model(job.model), where, job.seed)
            except MachineTooSmallError as error:
                refused[job.row.id] = error
    if refused:
        rows = [row for row in dict.fromkeys(job.row.id for job in plan.due) if row not in refused]
        fitting = f"--rows {','.join(rows)} runs what fits" if rows else "--profile mini runs anywhere"
        first = next(iter(refused.values()))
        others = f"\nThe same is true of: {', '.join(list(refused)[1:])}." if len(refused) > 1 else ""
        raise MachineTooSmallError(first.what, why=first.why + others, next_step=f"choose what fits; {fitting}")


def _largest_node(cluster: Cluster, run_dir: RunDir) -> Capacity:
    """Return what a job on a cluster may fill; its GPUs are of the estimate's size, since no scheduler knows theirs."""
    gpus_gb, host_gb = (run_dir.rates.device_gb,) * cluster.gpus_per_node, cluster.memory_gb or math.inf
    return Capacity(gpus_gb, host_gb, free_disk_gb(run_dir.root), where="on the cluster's largest node")


def _size_gb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / GB
