"""What the processes of one launch are told to do: a file in the run folder's `logs/`, beside what they print.

`rank.py` is what each of them runs.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from atrl_bench.engines import launch
from atrl_bench.engines.devices import Devices, memory_gb
from atrl_bench.engines.launch import Configuration
from atrl_bench.evaluation.cell_spec import EvaluationOptions
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.results.files import write_atomically
from atrl_bench.training.arguments import most_devices
from atrl_bench.training.recipe import PreferenceRecipe, RolloutRecipe, SupervisedRecipe
from atrl_bench.training.run import gpus_of


class _Order(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    run_dir: RunDir


class TrainingOrder(_Order):
    """One training: its recipe, what names it, and what it starts from."""

    recipe: RolloutRecipe | SupervisedRecipe | PreferenceRecipe
    spec: dict[str, Any]
    seed: int
    base_model: Path | str


class EvaluationOrder(_Order):
    """Tasks that one model answers one after another; `shaded` problems of each have the credit of their answers."""

    model: Path | str
    evaluations: list[tuple[str, EvaluationOptions]]
    shaded: int


class LaunchOrder(BaseModel):
    """One of the two."""

    training: TrainingOrder | None = None
    evaluation: EvaluationOrder | None = None


def train_over(devices: Devices, order: TrainingOrder, name: str) -> None:
    """Have this trained over as many of the devices as it can be spread over evenly."""
    profile = order.run_dir.profile
    devices = devices.first(most_devices(order.recipe, profile, devices.count))
    rates = order.run_dir.rates.on(memory_gb(devices.gpus))
    configuration: Configuration = "fsdp2" if gpus_of(order.recipe, profile, rates) > 1 else "ddp"
    _run(LaunchOrder(training=order), f"{name}.train-{order.recipe.name}", order.run_dir, devices, configuration, name)


def evaluate_over(devices: Devices, order: EvaluationOrder, name: str) -> None:
    """Have this answered by all of the devices, each of which has the model."""
    _run(LaunchOrder(evaluation=order), f"{name}.evaluate", order.run_dir, devices, "ddp", name)


def _run(
    order: LaunchOrder, stem: str, run_dir: RunDir, devices: Devices, configuration: Configuration, name: str
) -> None:
    logs = run_dir.root / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    path = logs / f"{file_name(stem)}.json"
    write_atomically(path, order.model_dump_json(indent=2).encode())
    on_gpus = configuration if devices.gpus else "cpu"
    launch.run("atrl_bench.experiments.rank", path, on_gpus, devices, logs / f"{file_name(name)}.log")


def file_name(name: str) -> str:
    """Return a name under which files of a job may lie."""
    return re.sub(r"[^\w.=+-]+", "-", name)
