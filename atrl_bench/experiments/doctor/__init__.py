"""`atrl-bench doctor`: what a profile needs that this machine lacks, and the command that mends it.

Loads no model and asks no network unless told to.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from atrl_bench.errors import AtrlBenchError
from atrl_bench.experiments.doctor import inputs, libraries, machine, network, storage
from atrl_bench.experiments.doctor.diagnosis import Check, Diagnosis
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.grading.judge.judge import JudgeConfig


def doctor(run_dir: RunDir, *, judge: JudgeConfig | None = None, online: bool = False) -> Diagnosis:
    """Return what was looked at; a check that breaks is itself a finding.

    Without `judge`, the run folder's is looked at; one without a model's name may serve any. With `online`, the hub is
    asked whether it answers.
    """
    profile = run_dir.profile
    looks: dict[str, Callable[[], Iterator[Check]]] = {
        "Python": machine.python,
        "packages": machine.packages,
        "vLLM": partial(machine.vllm, run_dir),
        "GPU": partial(machine.gpu, profile),
        "CPU": machine.cpu,
        "limits": machine.limits,
        "run folder": partial(storage.folder, run_dir),
        "result store": partial(storage.store, run_dir),
        "disk": partial(storage.disk, run_dir),
        "METIS partitions a graph": partial(libraries.native, libraries.TRY_METIS, libraries.MEND_METIS),
        "decord decodes an MP4": partial(libraries.native, libraries.TRY_VIDEO, libraries.MEND_VIDEO),
        "isolation of programs": libraries.isolation,
        "base model": partial(inputs.model, profile),
        "datasets": partial(inputs.data, run_dir),
        "hub": partial(network.hub, profile, online),
        "judge": partial(network.judge, judge or run_dir.judge),
        "optional tools": libraries.tools,
    }
    checks = [replace(check, name=check.name or name) for name, look in looks.items() for check in _findings(look)]
    return Diagnosis(run_dir, tuple(checks))


def _findings(look: Callable[[], Iterator[Check]]) -> list[Check]:
    try:
        return list(look())
    except (OSError, ValueError, subprocess.SubprocessError, AtrlBenchError) as error:
        first = str(error).partition("\n")[0] or type(error).__name__
        return [Check("", "note", f"could not be looked at: {first}", getattr(error, "next_step", ""))]
