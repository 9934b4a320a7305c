"""What machine this is, as far as it decides how fast it is: no name, no address, no path."""

from __future__ import annotations

import importlib.metadata
import platform
from pathlib import Path
from typing import Any

import torch

from atrl_bench.experiments.doctor.machine import output

GB = 1e9
PACKAGES = ("atrl-bench", "torch", "transformers", "trl", "accelerate", "peft", "flash-attn")
# What the driver is asked, and under which name its answer is kept.
DRIVER_FIELDS = {
    "driver_version": "driver",
    "clocks.sm": "sm_clock_mhz",
    "clocks.max.sm": "max_sm_clock_mhz",
    "clocks.mem": "memory_clock_mhz",
    "power.limit": "power_limit_w",
    "temperature.gpu": "temperature_c",
}


def device() -> torch.device:
    """Return the GPU, or the CPU where there is none."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def hardware() -> str:
    """Return the name of the GPU, or of the processor."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else _processor()


def facts() -> dict[str, Any]:
    """Return what the JSON says of the machine."""
    found: dict[str, Any] = {
        "hardware": hardware(),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "threads": torch.get_num_threads(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
    }
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        found |= {
            "cuda": torch.version.cuda,
            "capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "memory_gb": properties.total_memory / GB,
        } | driver_facts(str(getattr(properties, "uuid", "")))
    return found


def driver_facts(uuid: str) -> dict[str, str]:
    """Return what nvidia-smi says of this GPU; nothing where it does not answer."""
    # Its numbering ignores CUDA_VISIBLE_DEVICES, hence the identifier.
    which = ["-i", uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"] if uuid else []
    query = ["nvidia-smi", f"--query-gpu={','.join(DRIVER_FIELDS)}", "--format=csv,noheader,nounits", *which]
    values = [value.strip() for value in output(query).partition("\n")[0].split(",")]
    return dict(zip(DRIVER_FIELDS.values(), values, strict=True)) if len(values) == len(DRIVER_FIELDS) else {}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
