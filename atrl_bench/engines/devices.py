"""Which GPUs there are, how large they are, and which of them one piece of work has; asks the driver, not torch.

A GPU is named as in CUDA_VISIBLE_DEVICES: by its number, or by the UUID of a GPU or of a MIG slice.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from atrl_bench.errors import InvalidFileError

VISIBLE = "CUDA_VISIBLE_DEVICES"
GPUS_PER_NODE = 8  # of a machine that nobody has described


@dataclass(frozen=True)
class Machines:
    """The machines of one piece of work, which of them this is, and where the first one's main process is met."""

    count: int
    index: int
    host: str
    port: int


@dataclass(frozen=True)
class Devices:
    """What work runs on: these GPUs, one process each, or without any so many CPU processes; on each of `machines`."""

    gpus: tuple[str, ...] = ()
    processes: int = 1
    machines: Machines | None = None

    @property
    def num_machines(self) -> int:
        return 1 if self.machines is None else self.machines.count

    @property
    def count(self) -> int:
        return (len(self.gpus) or self.processes) * self.num_machines

    @property
    def are_here(self) -> bool:
        return not self.gpus and self.count == 1

    @property
    def speak(self) -> bool:
        """Whether these are the devices of the machine that says what became of the work."""
        return self.machines is None or self.machines.index == 0

    def first(self, count: int) -> Devices:
        """So many of them, as many on each machine."""
        of_each = count // self.num_machines
        return replace(self, gpus=self.gpus[:of_each], processes=1 if self.gpus else of_each)


HERE = Devices()


@dataclass(frozen=True)
class Machine:
    """What a command may use, and whether its user said so: GPUs named by nobody are for work that needs one."""

    gpus: tuple[str, ...] = ()
    processes: int = 1
    is_chosen: bool = False

    def devices_for(self, num_gpus: int) -> Devices:
        """The devices of work that needs so many GPUs and has the machine to itself."""
        if self.gpus and (num_gpus or self.is_chosen):
            return Devices(self.gpus)
        return Devices(processes=self.processes)


@dataclass(frozen=True)
class Cluster:
    """Nodes of one size, whose scheduler says what runs where; 0 GB where nothing is known.

    A training that one node does not hold is spread over several, or over the number that its user gave.
    """

    gpus_per_node: int
    memory_gb: float
    nodes: int = 1
    nodes_per_training: int | None = None

    def nodes_for(self, num_gpus: int) -> int:
        return self.nodes_per_training or max(1, math.ceil(num_gpus / max(1, self.gpus_per_node)))


ONE_PROCESS = Machine()


def machine(gpus: str | None, processes: int | None, *, visible: Sequence[str] | None = None) -> Machine:
    """What `--gpus` and `--processes` leave of the GPUs that this command sees; without them, all."""
    if processes is not None:
        if gpus is not None:
            raise InvalidFileError("--gpus and --processes exclude each other.", next_step="give one of them")
        return Machine(processes=processes, is_chosen=True)
    visible = visible_gpus(os.environ) if visible is None else visible
    return Machine(tuple(visible) if gpus is None else _chosen(gpus, visible), is_chosen=gpus is not None)


def visible_gpus(environ: Mapping[str, str], root: Path = Path("/")) -> list[str]:
    """The GPUs here, or those of CUDA_VISIBLE_DEVICES up to its first name that is none, as in CUDA."""
    count = _num_gpus(root)
    if VISIBLE not in environ:
        return [str(number) for number in range(count)]
    names: list[str] = []
    for name in (name.strip() for name in environ[VISIBLE].split(",")):
        is_here = int(name) < count if name.isdecimal() else bool(count) and name.startswith(("GPU-", "MIG-"))
        if not is_here or name in names:
            break
        names.append(name)
    return names


def memory_gb(gpus: Sequence[str]) -> tuple[float, ...]:
    """The memory of each of these GPUs; infinite where the driver's tool does not say it, as of a MIG slice."""
    sizes = _driver_sizes() if gpus else {}
    return tuple(sizes.get(gpu, math.inf) for gpu in gpus)


@cache
def _driver_sizes() -> dict[str, float]:
    """The memory of every GPU in GB, by its number and by its UUID. The driver's tool may take seconds."""
    command = ["nvidia-smi", "--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = [[cell.strip() for cell in line.split(",")] for line in result.stdout.splitlines()]
    return {name: float(mebibytes) * 2**20 / 1e9 for *names, mebibytes in lines for name in names}


def environment(devices: Devices) -> dict[str, str]:
    return {VISIBLE: ",".join(devices.gpus), "CUDA_DEVICE_ORDER": os.environ.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")}


def _num_gpus(root: Path) -> int:
    """Count the driver's devices: a container has the files of its own GPUs, while /proc has those of the machine."""
    files = [path for path in (root / "dev").glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name)]
    return len(files) or len(list((root / "proc" / "driver" / "nvidia" / "gpus").glob("*")))


def _chosen(text: str, visible: Sequence[str]) -> tuple[str, ...]:
    """What `--gpus` names: one number is how many, a list says which of the visible ones."""
    here = f"{len(visible)} GPU{'' if len(visible) == 1 else 's'}"
    names = [name.strip() for name in text.split(",") if name.strip()]
    if text.strip().isdecimal():
        names = list(map(str, range(int(text))))
    of_name = {str(number): gpu for number, gpu in enumerate(visible)} | {gpu: gpu for gpu in visible if "-" in gpu}
    wrong = [name for name in names if name not in of_name]
    if wrong or len({of_name[name] for name in names}) < len(names) or not (names or text.strip() == "0"):
        raise InvalidFileError(
            f"--gpus {text} cannot be had: {here} can be used here.",
            next_step="say how many, or which: --gpus 2, --gpus 0,1,4, a single one with a comma, --gpus 4,",
        )
    return tuple(of_name[name] for name in names)
