"""What `doctor --gpu` found, and its JSON, which gives cost estimates their constants."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from atrl_bench.analysis.gpu_check.checks import CheckResult
from atrl_bench.escape import folded

VERSION = 1
# Of a tiny model these say nothing about a large one: starting its kernels is all it does.
LARGE_MODEL_RATES = frozenset({"training_flops", "decoding_seconds_per_layer", "memory_bytes_per_second"})
GPU_RATES = LARGE_MODEL_RATES | {"device_gb"}


@dataclass(frozen=True)
class GpuCheck:
    """All checks so far, on this machine."""

    size: str
    model: str
    machine: Mapping[str, Any]
    checks: tuple[CheckResult, ...]
    seconds: float
    budget: float

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.state == "failed")

    @property
    def on_gpu(self) -> bool:
        """Whether a GPU was measured."""
        return "cuda" in self.machine

    @property
    def rates(self) -> dict[str, Any]:
        """The constants of cost estimates that were measured, as `experiments/cost.py` reads them."""
        measured: dict[str, float] = {}
        for check in self.checks:
            measured |= check.rates
        unfit = (LARGE_MODEL_RATES if self.size == "tiny" else frozenset()) if self.on_gpu else GPU_RATES
        return {"hardware": self.machine["hardware"]} | {
            name: value for name, value in measured.items() if name not in unfit
        }

    def count(self, state: str) -> int:
        """Return how many checks ended so."""
        return sum(check.state == state for check in self.checks)

    @property
    def summary(self) -> str:
        """One sentence: how many checks passed, failed and were skipped."""
        counts = ", ".join(f"{self.count(state)} {state}" for state in ("passed", "failed", "skipped"))
        return f"{counts}, in {self.seconds:.0f} of at most {self.budget:.0f} s."

    def document(self) -> dict[str, Any]:
        """Return the JSON that is sent back: no path, name or address of the machine is in it."""
        return {
            "version": VERSION,
            "size": self.size,
            "model": self.model,
            "seconds": self.seconds,
            "budget": self.budget,
            "machine": dict(self.machine),
            "rates": self.rates,
            "checks": [_for_json(asdict(check)) for check in self.checks],
        }


def check_text(check: CheckResult) -> str:
    """Return how a check ended, in two lines of a terminal: what was looked at, and what came out."""
    outcome = "; ".join(part for part in (check.reason, value_text(check)) if part)
    lines = folded(outcome, first=" " * 9, rest=" " * 9) if outcome else []
    return "\n".join([f"{check.state:<9}{check.name:<60}{check.seconds:7.1f} s", *lines])


def value_text(check: CheckResult) -> str:
    """Return a check's value with its unit and its limit."""
    if check.value is None:
        return ""
    limit = "" if check.limit is None else f", limit {check.limit:.3g}"
    return f"{check.value:.4g} {check.unit}{limit}"


def _for_json(value: Any) -> Any:
    """Return the value with words in place of numbers that JSON does not have."""
    if isinstance(value, Mapping):
        return {name: _for_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_for_json(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
