"""How fast a machine is, and how much of it a run may fill: every constant of a cost estimate.

`ASSUMED` stands where nothing has been measured. `atrl-bench doctor --gpu` writes what it measures on a real GPU to a
file; `load_rates` reads that file, and keeps the assumed value of each constant that it does not have.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from atrl_bench.errors import InvalidFileError


def _rate(value: float, unit: str, basis: str) -> Any:
    return field(default=value, metadata={"unit": unit, "basis": basis})


@dataclass(frozen=True)
class MachineRates:
    """The constants of cost estimates. Those named in `measured` come from a file, the others are assumed."""

    hardware: str = "A100 80 GB"
    device_gb: float = _rate(80.0, "GB", "memory of one A100 or H100")
    reserved_gb: float = _rate(9.0, "GB", "of a device, for the runtime, its libraries and fragmentation")
    training_flops: float = _rate(
        0.4 * 312e12, "FLOP/s", "one device, forward and backward passes: 40 % of an A100's peak in bfloat16"
    )
    decoding_seconds_per_layer: float = _rate(
        0.9e-3, "s", "one decoding step of one layer by transformers: starting its kernels, for any usual batch"
    )
    memory_bytes_per_second: float = _rate(
        1.4e12, "byte/s", "at which a device reads its weights: 70 % of an A100's peak"
    )
    gather_bytes_per_second: float = _rate(
        255e9, "byte/s", "at which a device gathers sharded weights from its node: 65 ms for 7B, between 50 and 80"
    )
    gather_bytes_per_second_across_nodes: float = _rate(
        100e9, "byte/s", "the same from other nodes: half of eight network cards of 200 Gbit/s"
    )
    vllm_decoding: float = _rate(
        2_500 * 8.29e9, "token/s times parameters", "one device, vLLM, as many responses at once as it holds"
    )
    cpu_flops: float = _rate(5e10, "FLOP/s", "one core in float32; measured on the machines of docs/performance.md")
    measured: frozenset[str] = frozenset()

    @property
    def basis(self) -> str:
        """One sentence: what these constants rest on."""
        num_rates = sum("unit" in each.metadata for each in fields(self))
        if not self.measured:
            return f"assumed rates of an {self.hardware}; atrl-bench doctor --gpu measures this machine's"
        return f"{len(self.measured)} of {num_rates} rates measured on {self.hardware}, the others assumed"

    def on(self, gpus_gb: Sequence[float]) -> MachineRates:
        """Return the same rates for devices of these sizes: the smallest one counts, as far as it is known."""
        finite = [size for size in gpus_gb if math.isfinite(size)]
        return replace(self, device_gb=min(finite)) if finite else self

    def source(self, name: str) -> str:
        """Return "measured" or "assumed" for one constant."""
        return "measured" if name in self.measured else "assumed"


ASSUMED = MachineRates()


def load_rates(path: Path) -> MachineRates:
    """Return the rates in the file that `atrl-bench doctor --gpu` wrote: `{"rates": {"hardware": ..., ...}}`."""
    known = {each.name for each in fields(MachineRates) if "unit" in each.metadata}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))["rates"]
        hardware = str(content["hardware"])
        values = {name: float(value) for name, value in content.items() if name != "hardware"}
        if unknown := values.keys() - known:
            raise ValueError(f"there is no rate {', '.join(sorted(unknown))}")
        if wrong := [name for name, value in values.items() if not 0 < value < float("inf")]:
            raise ValueError(f"{', '.join(wrong)} must be above zero")
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidFileError(
            f"{path} has no rates of a machine.", why=str(error), next_step=f"rm {path} && atrl-bench doctor --gpu"
        ) from None
    return replace(ASSUMED, hardware=hardware, measured=frozenset(values), **values)
