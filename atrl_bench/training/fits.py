"""Whether a machine holds a training, asked before anything is loaded: devices, host memory, disk."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from atrl_bench.engines.devices import memory_gb
from atrl_bench.errors import MachineTooSmallError
from atrl_bench.profiles import Profile
from atrl_bench.training.cost_estimate import GB, MARGIN, TrainingNeeds, training_needs
from atrl_bench.training.machine_rates import ASSUMED, MachineRates
from atrl_bench.training.recipe import Recipe

CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class Capacity:
    """What a training may fill: the memory of each GPU of a node, the node's own, and the disk of the run folder.

    `where` says in errors what has it.
    """

    gpus_gb: tuple[float, ...]
    host_gb: float
    disk_gb: float
    nodes: int = 1
    where: str = "here"

    @property
    def num_gpus(self) -> int:
        """The GPUs of all nodes."""
        return len(self.gpus_gb) * self.nodes


def misfits(needs: TrainingNeeds, machine: Capacity) -> list[str]:
    """Return why a training does not fit a machine; nothing if it does."""
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
        reasons.append(f"Loading takes {needs.host_gb_per_node:.0f} GB of memory; {machine.host_gb:.0f} are free.")
    if needs.disk_gb > machine.disk_gb:
        reasons.append(
            f"Checkpoints take {needs.disk_gb:.0f} GB in the run folder; {machine.disk_gb:.0f} are free there."
        )
    return reasons


def require_fit(
    recipe: Recipe,
    profile: Profile,
    machine: Capacity,
    rates: MachineRates = ASSUMED,
    *,
    stored_gb: float = 0.0,
) -> None:
    """Raise `MachineTooSmallError` with what would fit; `stored_gb` of its checkpoints are on the disk already."""
    needs = training_needs(recipe, profile, rates.on(machine.gpus_gb))
    room = replace(machine, disk_gb=machine.disk_gb + stored_gb)
    if reasons := misfits(needs, room):
        raise MachineTooSmallError(
            f"Training {recipe.name} on {profile.model} does not fit {machine.where}.",
            why="\n".join([*reasons, *alternatives(recipe, profile, room, rates)]),
            next_step="choose what fits, or --profile mini",
        )


def alternatives(recipe: Recipe, profile: Profile, machine: Capacity, rates: MachineRates = ASSUMED) -> list[str]:
    """Return what would fit: more devices of this kind or larger ones, adapters in place of all weights."""
    fitting = []
    for size in dict.fromkeys((rates.on(machine.gpus_gb).device_gb, ASSUMED.device_gb)):
        needs = training_needs(recipe, profile, replace(rates, device_gb=size))
        per_node = math.ceil(needs.gpus / needs.nodes)
        larger = replace(machine, gpus_gb=(size,) * per_node, nodes=needs.nodes, host_gb=math.inf, disk_gb=math.inf)
        if needs.gpus > machine.num_gpus and not misfits(needs, larger):
            nodes = f" on {needs.nodes} nodes" if needs.nodes > 1 else ""
            fitting.append(f"Would do: {needs.gpus} GPUs of {size:.0f} GB{nodes}.")
            break
    lora = training_needs(recipe.model_copy(update={"finetuning": "lora"}), profile, rates.on(machine.gpus_gb))
    if recipe.finetuning == "full" and not misfits(lora, machine):
        gpus = f"on {lora.gpus} of {machine.num_gpus} GPUs"
        fitting.append(f"Fits {machine.where}: atrl-bench train {recipe.name} --set finetuning=lora, {gpus}.")
    return fitting


# This machine ---------------------------------------------------------------------------------------------------------


def this_machine(run_dir: Path, gpus: Sequence[str]) -> Capacity:
    """Return these GPUs and what else is free here and now; all machines of one launch are taken to be equal."""
    processes, per_node = (int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    return Capacity(
        gpus_gb=memory_gb(gpus),
        host_gb=min(_free_memory(), *_cgroup_room()) / GB,
        disk_gb=free_disk_gb(run_dir),
        nodes=max(1, processes // per_node),
    )


def free_disk_gb(folder: Path) -> float:
    """Return the free space of the disk on which a folder is, or will be."""
    return shutil.disk_usage(existing(folder)).free / GB


def existing(folder: Path) -> Path:
    """Return the folder itself, or the nearest one above it that exists."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())


def _free_memory() -> float:
    meminfo = Path("/proc/meminfo")
    lines = meminfo.read_text(encoding="ascii").splitlines() if meminfo.is_file() else []
    return next((float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), math.inf)


def _cgroup_room() -> Iterator[float]:
    """Yield what the container may still take, for each limit that it has."""
    for path in map(Path, CGROUP_LIMITS):
        if path.is_file() and (limit := path.read_text(encoding="ascii").strip()).isdigit():
            used = path.with_name("memory.current" if path.name == "memory.max" else "memory.usage_in_bytes")
            yield float(limit) - float(used.read_text(encoding="ascii"))
    yield math.inf
