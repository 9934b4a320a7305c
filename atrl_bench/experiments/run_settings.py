"""What a run folder was chosen to be run with, and what its numbers were last made with: `run.json` beside its store.

So that the next command there, be it a report or a plan, speaks of the same cells and trainings.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from atrl_bench.errors import InvalidFileError
from atrl_bench.evaluation.cell_spec import Engine
from atrl_bench.grading.judge.judge import JudgeConfig
from atrl_bench.models.checkpoint_store import CheckpointStore
from atrl_bench.results.files import write_atomically

FILE = "run.json"
PACKAGES = ("atrl-bench", "torch", "transformers", "trl", "lmms-eval", "pymetis", "math-verify")


class RunSettings(BaseModel):
    """What options and `judge` have named for a folder; None for what nobody named."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    judge: JudgeConfig | None = None
    engine: Engine | None = None  # what answers in place of the command's process
    rollouts: str | None = None  # what `--rollouts` named
    vllm: str | None = None  # the version that sampled for the trainings, where one did
    checkpoint_store: CheckpointStore | None = None
    environment: dict[str, str] = {}


def read_settings(root: Path) -> RunSettings:
    """What was chosen for the run folder at `root`, nothing where it has no such file."""
    path = root / FILE
    try:
        return RunSettings.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return RunSettings()
    except ValueError as error:
        raise InvalidFileError(
            f"{path} does not say what this folder is run with.",
            why=" ".join(str(error).splitlines()[:3]),
            next_step=f"correct {path}, or delete it and choose again: atrl-bench judge URL --out {root}, "
            "and --serve, --rollouts, --checkpoints",
        ) from None


def keep_settings(root: Path, **changes: Any) -> None:
    """Write down what was chosen for the run folder at `root`; what nobody speaks of stays as it is."""
    settings = read_settings(root)
    changed = settings.model_copy(update=changes)
    if changed != settings:
        write_atomically(root / FILE, (changed.model_dump_json(indent=2, exclude_none=True) + "\n").encode())


def environment_here(*if_installed: str) -> dict[str, str]:
    """Return what numbers are made with on this machine: no name, address or path of it."""
    content = {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
    content["cpu"] = f"{os.cpu_count()} x {_processor()}"
    content |= {package: importlib.metadata.version(package) for package in PACKAGES}
    for package in if_installed:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            content[package] = importlib.metadata.version(package)
    return content


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"
