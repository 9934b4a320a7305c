"""Which job gets which GPUs, and when: first fit over the ids of a machine. Nothing here starts anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from atrl_bench.engines.devices import Devices, Machine

ItemT = TypeVar("ItemT")


@dataclass(frozen=True)
class Demand:
    """How many GPUs a piece of work cannot do without, and how many more it could use."""

    least: int
    most: int


class Placement(Generic[ItemT]):
    """Work that waits, and the GPUs that are free for it."""

    def __init__(self, demands: Sequence[tuple[ItemT, Demand]], machine: Machine) -> None:
        self._waiting, self._machine = list(demands), machine
        self._free = list(machine.gpus)

    def next(self) -> tuple[ItemT, Devices] | None:
        """Return the first piece of work that fits on what is free, with its devices; None where none does."""
        for place, (item, demand) in enumerate(self._waiting):
            if demand.least <= len(self._free):
                del self._waiting[place]
                gpus, self._free = self._free[: demand.most], self._free[demand.most :]
                return item, Devices(tuple(gpus)) if gpus else Devices(processes=self._machine.processes)
        return None

    def give_back(self, devices: Devices) -> None:
        """Free the devices of work that has ended."""
        self._free = [gpu for gpu in self._machine.gpus if gpu in {*self._free, *devices.gpus}]
