"""Whether a machine holds a training, asked before anything is loaded: devices, host memory, disk."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from atrl_bench.errors import MachineTooSmallError
from atrl_bench.profiles import Profile
from atrl_bench.training.cost_estimate import GB, MARGIN, TrainingNeeds, training_needs
from atrl_bench.training.machine_rates import ASSUMED, MachineRates
from atrl_bench.training.recipe import Recipe

DEVICES = Path("/dev")
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class Capacity:
    """What a training may fill: the memory of each GPU of a node, the node's own, and the disk of the run folder."""

    gpus_gb: tuple[float, ...]
    host_gb: float
    disk_gb: float
    cache_gb: float = math.inf  # free where models and datasets are downloaded to
    nodes: int = 1

    @property
    def num_gpus(self) -> int:
        """The GPUs of all nodes."""
        return len(self.gpus_gb) * self.nodes

    def rates(self, rates: MachineRates) -> MachineRates:
        """Return rates for devices of this machine's size."""
        known = [size for size in self.gpus_gb if math.isfinite(size)]
        return replace(rates, device_gb=min(known)) if known else rates


def misfits(needs: TrainingNeeds, machine: Capacity, download_gb: float = 0.0) -> list[str]:
    """Return why a training that downloads so much first does not fit a machine; nothing if it does."""
    reasons = []
    smallest = min(machine.gpus_gb, default=0.0)
    if needs.gpus and needs.gb_per_gpu > (1 - MARGIN) * smallest and machine.gpus_gb:
        reasons.append(
            f"On {needs.gpus} GPUs it fills {needs.gb_per_gpu:.0f} GB of each; "
            f"of {smallest:.0f} GB {100 * MARGIN:.0f} % have to stay free."
        )
    elif needs.gpus > machine.num_gpus:
        count = {0: "none is here", 1: "one is here"}.get(machine.num_gpus, f"{machine.num_gpus} are here")
        reasons.append(f"It needs {needs.gpus} GPUs, {needs.gb_per_gpu:.0f} GB of each; {count}.")
    if needs.host_gb_per_node > machine.host_gb:
        reasons.append(f"Loading takes {needs.host_gb_per_node:.0f} GB of memory; {machine.host_gb:.0f} are free.")
    if needs.disk_gb > machine.disk_gb:
        reasons.append(
            f"Checkpoints take {needs.disk_gb:.0f} GB in the run folder; {machine.disk_gb:.0f} are free there."
        )
    if download_gb > machine.cache_gb:
        reasons.append(f"Downloads take {download_gb:.0f} GB; {machine.cache_gb:.0f} are free where they are kept.")
    return reasons


def require_fit(
    recipe: Recipe,
    profile: Profile,
    machine: Capacity,
    rates: MachineRates = ASSUMED,
    *,
    stored_gb: float = 0.0,
    download_gb: float = 0.0,
) -> None:
    """Raise `MachineTooSmallError` with what would fit; `stored_gb` of its checkpoints are on the disk already."""
    needs = training_needs(recipe, profile, machine.rates(rates))
    room = replace(machine, disk_gb=machine.disk_gb + stored_gb)
    if reasons := misfits(needs, room, download_gb):
        raise MachineTooSmallError(
            f"Training {recipe.name} on {profile.model} does not fit this machine.",
            why="\n".join([*reasons, *alternatives(recipe, profile, room, rates)]),
            next_step="choose what fits, or --profile mini",
        )


def alternatives(recipe: Recipe, profile: Profile, machine: Capacity, rates: MachineRates = ASSUMED) -> list[str]:
    """Return what would fit: more devices of this kind or larger ones, adapters in place of all weights."""
    fitting = []
    for size in dict.fromkeys((machine.rates(rates).device_gb, ASSUMED.device_gb)):
        needs = training_needs(recipe, profile, replace(rates, device_gb=size))
        per_node = math.ceil(needs.gpus / needs.nodes)
        larger = replace(machine, gpus_gb=(size,) * per_node, nodes=needs.nodes, host_gb=math.inf, disk_gb=math.inf)
        if needs.gpus > machine.num_gpus and not misfits(needs, larger):
            nodes = f" on {needs.nodes} nodes" if needs.nodes > 1 else ""
            fitting.append(f"Would do: {needs.gpus} GPUs of {size:.0f} GB{nodes}.")
            break
    lora = training_needs(recipe.model_copy(update={"finetuning": "lora"}), profile, machine.rates(rates))
    if recipe.finetuning == "full" and not misfits(lora, machine):
        gpus = f"on {lora.gpus} of {machine.num_gpus} GPUs"
        fitting.append(f"Fits here: atrl-bench train {recipe.name} --set finetuning=lora, {gpus}.")
    return fitting


# This machine ---------------------------------------------------------------------------------------------------------


def this_machine(run_dir: Path) -> Capacity:
    """Return what is free here and now, without torch; of several machines of one launch all are taken to be equal."""
    processes, per_node = (int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    return Capacity(
        gpus_gb=visible_gpus_gb(),
        host_gb=min(_free_memory(), *_cgroup_room()) / GB,
        disk_gb=_free_disk(run_dir) / GB,
        cache_gb=_free_disk(hub_cache()) / GB,
        nodes=max(1, processes // per_node),
    )


def hub_cache() -> Path:
    """Return where huggingface_hub keeps what it downloads; read from the environment as it does."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache"))
    home = Path(os.environ.get("HF_HOME", cache / "huggingface"))
    return Path(os.environ.get("HF_HUB_CACHE", home / "hub")).expanduser()


def count_gpus() -> int:
    """Return how many GPUs of NVIDIA's driver there are, by its device files: at once, and without their sizes."""
    return sum(path.name.removeprefix("nvidia").isdigit() for path in DEVICES.glob("nvidia*"))


def visible_gpus_gb() -> tuple[float, ...]:
    """Return the memory of each GPU that this process may use, as the driver's own tool says."""
    command = ["nvidia-smi", "--query-gpu=index,memory.total", "--format=csv,noheader,nounits"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return ()
    sizes = {}
    for line in result.stdout.splitlines():
        index, _, mebibytes = line.partition(",")
        sizes[index.strip()] = float(mebibytes) * 2**20 / GB
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    chosen = sizes if visible is None else [index.strip() for index in visible.split(",")]
    # Names other than numbers, of parts of a GPU among them, are not in this list: their size is not known.
    return tuple(sizes.get(index, math.inf) for index in chosen if index and index != "-1")


def _free_disk(folder: Path) -> float:
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return float(shutil.disk_usage(existing).free)


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
