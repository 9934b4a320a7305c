"""Refuses trainings that this machine does not hold, or has no engine or credit rule for, before any is started."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from atrl_bench.credit.rules import credit_rule
from atrl_bench.engines.devices import Cluster, Machine, memory_gb
from atrl_bench.errors import MachineTooSmallError
from atrl_bench.experiments.cost import ASSUMED, GB, MARGIN, MachineRates, Needs, training_needs
from atrl_bench.experiments.fetch import free_disk_gb
from atrl_bench.experiments.plan import Plan, planned_key, planned_spec
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import Profile
from atrl_bench.training.recipe import PreferenceRecipe, Recipe, RolloutRecipe, stages_of
from atrl_bench.training.rollout_engine import require_sampler, uses_verl
from atrl_bench.training.verl import require_verl_form, verl_python

LARGEST_GB = 141.0  # of an H200
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class Capacity:
    """What a training may fill of each GPU of a node, of the node's memory and of the run folder's disk."""

    gpus_gb: tuple[float, ...]
    host_gb: float
    disk_gb: float
    nodes: int = 1
    where: str = "here"

    @property
    def num_gpus(self) -> int:
        return len(self.gpus_gb) * self.nodes


def require_plan_fits(plan: Plan, where: Machine | Cluster) -> None:
    refused: dict[str, MachineTooSmallError] = {}
    for job in plan.due:
        if job.recipe is not None and job.row.id not in refused:
            try:
                require_training_fits(job.recipe, plan.run_dir.with_model(job.model), where, job.seed)
            except MachineTooSmallError as error:
                refused[job.row.id] = error
    if refused:
        rows = [row for row in dict.fromkeys(job.row.id for job in plan.due) if row not in refused]
        fitting = f"--rows {','.join(rows)} runs what fits" if rows else "--profile mini runs anywhere"
        first = next(iter(refused.values()))
        others = f"\nThe same is true of: {', '.join(list(refused)[1:])}." if len(refused) > 1 else ""
        raise MachineTooSmallError(first.what, why=first.why + others, next_step=f"choose what fits; {fitting}")


def require_training_fits(recipe: Recipe, run_dir: RunDir, where: Machine | Cluster, seed: int) -> None:
    """Raise for the first of its stages that is not done and cannot be: `MachineTooSmallError` if too big."""
    if isinstance(where, Machine):
        capacity = this_machine(run_dir.root, where.gpus)
    else:
        # Its GPUs are of the estimate's size, since no scheduler knows theirs.
        gpus_gb, host_gb = (run_dir.rates.device_gb,) * where.gpus_per_node, where.memory_gb or math.inf
        disk_gb, many = free_disk_gb(run_dir.root), f"on the {where.nodes} nodes of the cluster"
        place = many if where.nodes > 1 else "on the cluster's largest node"
        capacity = Capacity(gpus_gb, host_gb, disk_gb, where.nodes, place)
    for stage in stages_of(recipe):
        key = planned_key(*planned_spec(stage, run_dir, seed))
        if run_dir.run_state(key) == "done":
            continue
        if isinstance(stage, RolloutRecipe | PreferenceRecipe):
            credit_rule(stage.credit.rule)
        if uses_verl(stage, run_dir.profile):  # on machines that verl knows of, and this one need not
            require_verl_form(stage, run_dir.profile)
            verl_python()
            continue
        require_sampler(stage, run_dir.profile)
        stored = sum(path.stat().st_size for path in (run_dir.checkpoints / key).rglob("*") if path.is_file())
        # Checkpoints that are there already fill the disk that the rest of the training needs no more.
        own = replace(capacity, disk_gb=capacity.disk_gb + stored / GB)
        require_fit(stage, run_dir.profile, own, run_dir.rates)


def require_fit(recipe: Recipe, profile: Profile, machine: Capacity, rates: MachineRates = ASSUMED) -> None:
    needs = training_needs(recipe, profile, rates.on(machine.gpus_gb))
    if reasons := misfits(needs, machine):
        raise MachineTooSmallError(
            f"Training {recipe.name} on {profile.model} does not fit {machine.where}.",
            why="\n".join([*reasons, *_alternatives(recipe, profile, machine, rates)]),
            next_step="choose what fits, or --profile mini",
        )


def misfits(needs: Needs, machine: Capacity) -> list[str]:
    reasons = []
    smallest = min(machine.gpus_gb, default=0.0)
    if needs.gpus and needs.gb_per_gpu > (1 - MARGIN) * smallest and machine.gpus_gb:
        reasons.append(
            f"On {needs.gpus} GPUs it fills {needs.gb_per_gpu:.0f} GB of each; "
            f"of {smallest:.0f} GB {100 * MARGIN:.0f} % have to stay free."
        )
    elif needs.gpus > machine.num_gpus:
        count = {0: "none", 1: "one"}.get(machine.num_gpus, str(machine.num_gpus))
        reasons.append(
            f"It needs {needs.gpus} GPUs, {needs.gb_per_gpu:.0f} GB of each; {count} can be used {machine.where}."
        )
    if needs.host_gb_per_node > machine.host_gb:
        reasons.append(
            f"Loading and saving take {needs.host_gb_per_node:.0f} GB of memory; {machine.host_gb:.0f} are free."
        )
    if needs.disk_gb > machine.disk_gb:
        reasons.append(
            f"Checkpoints take {_space(needs.disk_gb)} in the run folder; {_space(machine.disk_gb)} are free there. "
            "Another disk: --out."
        )
    return reasons


def _alternatives(recipe: Recipe, profile: Profile, machine: Capacity, rates: MachineRates) -> Iterator[str]:
    here = rates.on(machine.gpus_gb)
    for size in dict.fromkeys((here.device_gb, ASSUMED.device_gb, LARGEST_GB)):
        needs = training_needs(recipe, profile, rates.on([size]))
        per_node = math.ceil(needs.gpus / needs.nodes)
        larger = Capacity((size,) * per_node, host_gb=math.inf, disk_gb=math.inf, nodes=needs.nodes)
        if needs.gpus > machine.num_gpus and not misfits(needs, larger):
            nodes = f" on {needs.nodes} nodes" if needs.nodes > 1 else ""
            yield f"Would do: {needs.gpus} GPUs of {size:.0f} GB{nodes}."
            break
    lora = training_needs(recipe.model_copy(update={"finetuning": "lora"}), profile, here)
    if recipe.finetuning == "full" and not misfits(lora, machine):
        gpus = f", on {lora.gpus} of {machine.num_gpus} GPUs." if machine.num_gpus else ""
        yield f"Fits {machine.where}: atrl-bench train {recipe.name} --set finetuning=lora{gpus}"


def _space(gb: float) -> str:
    return f"{gb:.0f} GB" if gb >= 1 else f"{1000 * gb:.0f} MB"


def this_machine(run_dir: Path, gpus: Sequence[str]) -> Capacity:
    """These GPUs and what else is free here and now; all machines of one launch are taken to be equal."""
    processes, per_node = (int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    return Capacity(
        gpus_gb=memory_gb(gpus),
        host_gb=min([float(psutil.virtual_memory().available), *_cgroup_room()]) / GB,
        disk_gb=free_disk_gb(run_dir),
        nodes=max(1, processes // per_node),
    )


def _cgroup_room() -> Iterator[float]:
    for path in map(Path, CGROUP_LIMITS):
        if path.is_file() and (limit := path.read_text(encoding="ascii").strip()).isdigit():
            used = path.with_name("memory.current" if path.name == "memory.max" else "memory.usage_in_bytes")
            yield float(limit) - float(used.read_text(encoding="ascii"))
