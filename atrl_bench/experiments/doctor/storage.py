"""The run folder, its store, and the space on its disk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

from atrl_bench.errors import AtrlBenchError
from atrl_bench.experiments.cost import GB, training_needs
from atrl_bench.experiments.doctor.diagnosis import Check, State
from atrl_bench.experiments.memory_check import existing, free_disk_gb
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.models.shape import model_shape
from atrl_bench.printable import counted
from atrl_bench.profiles import Profile
from atrl_bench.results import schema
from atrl_bench.training.recipe import load_recipe

MINI_DISK_GB = 1.0  # a mini table with its checkpoints, rounded up


def folder(run_dir: RunDir) -> Iterator[Check]:
    """Yield whether the run folder can be written."""
    parent = existing(run_dir.root)
    try:
        with tempfile.TemporaryFile(dir=parent):
            pass
    except OSError as error:
        yield Check("", "missing", f"{parent} cannot be written: {error.strerror}", "choose another with --out")
    else:
        later = "" if run_dir.root.is_dir() else " (made later)"
        yield Check("", "ok", f"{run_dir.root} can be written{later}")


def store(run_dir: RunDir) -> Iterator[Check]:
    """Yield what the result store holds, or why it cannot be read."""
    if not run_dir.store_path.is_file():
        yield Check("", "ok", f"none yet; version {schema.VERSION} will be written")
        return
    try:
        with run_dir.open_store(read_only=True) as store:
            cells, runs = store.cells(), store.runs()
    except AtrlBenchError as error:
        yield Check("", "missing", f"{error.what} {error.why}", error.next_step or "choose another with --out")
    else:
        failed = [cell for cell in cells if cell.state == "failed"]
        broken = f", {len(failed)} failed" if failed else ""
        found = f"{counted(len(cells), 'evaluation')}, {counted(len(runs), 'training')}{broken}"
        yield Check("", "ok", f"{found}; version {schema.VERSION} is understood")


def disk(run_dir: RunDir) -> Iterator[Check]:
    """Yield whether the disk has room for a first training."""
    wanted, why = disk_gb(run_dir.profile)
    free = free_disk_gb(run_dir.root)
    found = f"{free:.0f} GB free; about {wanted:.0f} GB are needed for {why}"
    state: State = "ok" if free >= wanted else "missing"
    yield Check("", state, found, "" if state == "ok" else "free some, or use another disk with --out")


def disk_gb(profile: Profile) -> tuple[float, str]:
    """Return the space a first training takes, with the download of the base model."""
    if profile.generated_data:
        return MINI_DISK_GB, "a table with its checkpoints"
    shape = model_shape(profile.model)
    download = 2 * shape.num_parameters / GB if shape else 0.0
    return training_needs(load_recipe("grpo"), profile).disk_gb + download, f"{profile.model} and one training of it"
