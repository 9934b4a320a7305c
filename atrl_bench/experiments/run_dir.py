"""The run folder: one store, the checkpoints it speaks of, the data that was generated, the judge, the reports.

`run.json` beside the store has what the folder was chosen to be run with, and what its numbers were last made with, so
that the next command there, be it a report or a plan, speaks of the same cells and trainings.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import importlib.metadata
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from shlex import quote
from typing import Any

from pydantic import BaseModel, ConfigDict

from atrl_bench.data.layout import holding
from atrl_bench.errors import InvalidFileError, MissingDataError, StoreError
from atrl_bench.evaluation.cell_spec import Engine, EvaluationOptions
from atrl_bench.evaluation.tasks import is_table
from atrl_bench.experiments.cost import ASSUMED, MachineRates, load_rates
from atrl_bench.grading.judge.judge import JudgeConfig
from atrl_bench.locks import alone_in
from atrl_bench.mini import CODE_WORDS
from atrl_bench.mini.world import write_world
from atrl_bench.models.bases import list_bases
from atrl_bench.models.checkpoint_store import CheckpointStore
from atrl_bench.models.local import DONE, find_model
from atrl_bench.profiles import Profile
from atrl_bench.results.files import write_atomically
from atrl_bench.results.shared_store import WRITER, RemoteStore, SharedStore
from atrl_bench.results.store import Run, Store
from atrl_bench.results.write_lock import Address
from atrl_bench.settings import first_mistake
from atrl_bench.training.rollout_engine import installed_vllm, usual_sampler
from atrl_bench.training.trackers import Trackers

GPU_CHECK = "gpu_check.json"  # what `doctor --gpu` measured
SETTINGS_FILE = "run.json"
STORE = "store.sqlite"
PACKAGES = ("atrl-bench", "torch", "transformers", "trl", "lmms-eval", "pymetis", "math-verify")


@cache
def _spare_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="atrl-bench-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@dataclass(frozen=True)
class RunDir:
    """A run folder under one profile; `given_data` is the user's own `--data-dir`, `engine` answers in its place."""

    root: Path
    profile: Profile
    given_data: Path | None = None
    judge: JudgeConfig | None = None
    report_to: tuple[str, ...] = ()
    engine: Engine | None = None
    checkpoint_store: CheckpointStore | None = None

    @classmethod
    def at(cls, root: Path | None, profile: Profile, data_dir: Path | None = None) -> RunDir:
        if data_dir is not None and not data_dir.is_dir():
            raise MissingDataError(f"There is no folder {data_dir}.", next_step="give --data-dir a folder of datasets")
        root = root or Path("runs") / profile.name
        settings = read_settings(root)
        if not profile.names_sampler:
            usual = "local" if (root / STORE).is_file() else usual_sampler(profile)  # one that is begun goes on
            if (sampler := settings.rollouts or usual) != "local":
                profile = profile.sampled_by(sampler)
        judge, engine, checkpoints = settings.judge, settings.engine, settings.checkpoint_store
        return cls(root, profile, data_dir, judge, engine=engine, checkpoint_store=checkpoints)

    @property
    def options(self) -> str:
        """The options that lead a command typed next to this folder; its default place needs no naming."""
        return self._after(self.profile.option)

    @property
    def training_options(self) -> str:
        return self._after(self.profile.training_option)

    def _after(self, options: str) -> str:
        if self.root != Path("runs") / self.profile.name:
            options += f" --out {quote(str(self.root))}"
        return options if self.given_data is None else f"{options} --data-dir {quote(str(self.given_data))}"

    @property
    def store_path(self) -> Path:
        return self.root / STORE

    def open_store(self, *, read_only: bool = False) -> Store:
        """The opened result store, a new one where there is none; one that is only read has to be there."""
        if (writer := os.environ.get(WRITER)) is not None:
            return RemoteStore(self.store_path, Address.parse(writer))
        if read_only and not self.store_path.is_file():
            then = f"atrl-bench run-table main_7b {self.training_options}"
            raise MissingDataError(f"There is no result store in {self.root}.", next_step=then)
        self._require_whole_store()
        return Store.open(self.store_path, read_only=True) if read_only else SharedStore(self.store_path)

    def _require_whole_store(self) -> None:
        """Raise where the store was emptied: what is beside it was made from what it held."""
        made = [path.name for path in (self.checkpoints, self.reports, self.root / "credit") if path.is_dir()]
        if made and self.store_path.is_file() and self.store_path.stat().st_size == 0:
            why = f"{' and '.join(made)} beside it were made from answers that it held; something else emptied it."
            then = f"restore it from a copy, or delete {self.store_path} to begin again"
            raise StoreError(f"The result store {self.store_path} is empty: 0 bytes.", why=why, next_step=then)

    def run_state(self, key: str) -> str | None:
        if not self.store_path.is_file():
            return None
        with self.open_store(read_only=True) as store:
            run = store.run(key)
        return run.state if run is not None else None

    def checkpoint_of(self, store: Store, key: str) -> Path | None:
        """The checkpoint of a training that is done, None where there is none; one that changed is refused."""
        run = store.run(key)
        folder = self.folder_of(run) if run is not None and run.state == "done" else None
        return find_model(folder).folder if folder is not None and (folder / DONE).is_file() else None

    def folder_of(self, run: Run) -> Path:
        """The folder of a checkpoint, fetched where only the checkpoints' store has it; it may be in neither."""
        folder = self.root / run.checkpoint
        if self.checkpoint_store is not None and not (folder / DONE).is_file():
            self.checkpoint_store.fetch(folder, run.digest)
        return folder

    @property
    def trackers(self) -> Trackers:
        """Where its trainings report to: mini's numbers and the paper's are in different projects."""
        return Trackers(self.report_to, f"atrl-bench-{self.profile.name}", self.root)

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def reports(self) -> Path:
        return self.root / "reports"

    @property
    def listings(self) -> Path:
        return self.root / "hub"

    def with_choices(self, options: EvaluationOptions) -> EvaluationOptions:
        engine = options.engine or (self.engine if options.endpoint is None else None)
        return replace(options, judge=options.judge or self.judge, engine=engine)

    def data_dir(self, folder: str) -> Path | None:
        """The data folder that has dataset `folder`: the user's, the generated one; None stands for the hub.

        Of a benchmark of the user's own it is the file itself, as it was evaluated here; None where it is named whole.
        """
        if Path(folder).is_absolute():  # the user's own
            return None
        if is_table(folder):
            path = read_settings(self.root).tables.get(folder)
            return None if path is None else Path(path)
        if folder in CODE_WORDS:
            return self._write_world([folder])
        return self.provide(folder) if self.given_data is None else holding(self.given_data, folder)

    def provide(self, *folders: str) -> Path | None:
        """Write these datasets of the mini world unless they are there; None where the data is not generated."""
        if self.given_data is not None or not self.profile.generated_data:
            return None
        world = self._worlds.get(folders)
        if world is None or not all((world / folder).is_dir() for folder in folders):
            world = self._worlds[folders] = self._write_world(folders)
        return world

    def _write_world(self, folders: Sequence[str]) -> Path:
        """In this folder, or in a temporary one where it may only be read: a table's plan needs all of its data."""
        try:
            return write_world(self.root / "data", self.profile, folders)
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES):
                raise
            return write_world(_spare_folder(), self.profile, folders)

    @cached_property
    def _worlds(self) -> dict[tuple[str, ...], Path]:
        """Where datasets of the mini world are: a plan asks hundreds of times, and its name takes a while to find."""
        return {}

    def with_model(self, model: str | None) -> RunDir:
        """This folder with another base model; on generated data the profile's own stands for all but bases."""
        if model is None or (self.profile.generated_data and model not in list_bases()):
            return self
        return replace(self, profile=self.profile.model_copy(update={"model": model}))

    @cached_property
    def vllm(self) -> str | None:
        """The version of vLLM that sampled for the trainings here, None where none did."""
        return read_settings(self.root).vllm

    @cached_property
    def rates(self) -> MachineRates:
        """What estimates are made by: what `doctor --gpu` measured into this folder, else what is assumed."""
        path = self.root / GPU_CHECK
        return load_rates(path) if path.is_file() else ASSUMED

    @cached_property
    def tokens_per_answer(self) -> float | None:
        if not self.store_path.is_file():
            return None
        with self.open_store(read_only=True) as store:
            return store.mean_tokens()

    def keep_choices(self) -> None:
        rollouts = version = None
        if self.profile.rollouts.engine != "local":
            rollouts = self.profile.rollouts.server or self.profile.rollouts.engine
            version = installed_vllm() or self.vllm  # a machine without vLLM leaves what is known
        keep_settings(self.root, engine=self.engine, rollouts=rollouts, vllm=version)

    def keep_checkpoint_store(self, store: Store) -> None:
        """Write down where checkpoints are kept beside this folder, once those that it has are there, too."""
        if self.checkpoint_store is not None:
            self.checkpoint_store.require_open()
            if read_settings(self.root).checkpoint_store != self.checkpoint_store:
                for run in store.runs():
                    if run.state == "done" and (self.root / run.checkpoint / DONE).is_file():
                        self.checkpoint_store.put(self.root / run.checkpoint, run.digest)
        keep_settings(self.root, checkpoint_store=self.checkpoint_store)

    def record_environment(self) -> None:
        environment = environment_here("flash-attn", *(["vllm"] if self.profile.rollouts.engine == "vllm" else []))
        if self.engine is not None:
            environment[self.engine.name] = self.engine.version
        keep_settings(self.root, environment=environment)

    def environment(self) -> dict[str, str]:
        return read_settings(self.root).environment


class RunSettings(BaseModel):
    """What options and `judge` have named for a folder; None for what nobody named."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    judge: JudgeConfig | None = None
    engine: Engine | None = None  # what answers in place of the command's process
    rollouts: str | None = None  # what `--rollouts` named
    vllm: str | None = None  # the version that sampled for the trainings, where one did
    checkpoint_store: CheckpointStore | None = None
    environment: dict[str, str] = {}
    points: dict[str, tuple[tuple[str, ...], ...]] = {}  # of ablations, by their settings, beside those of their files
    looks: dict[str, int] = {}  # at most how many seeds a table was given while somebody looked after each
    tables: dict[str, str] = {}  # where the user's own benchmarks lie, by the names in their cells


def read_settings(root: Path) -> RunSettings:
    path = root / SETTINGS_FILE
    try:
        return RunSettings.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return RunSettings()
    except ValueError as error:
        raise InvalidFileError(
            f"{path} does not say what this folder is run with.",
            why=first_mistake(error),
            next_step=f"correct {path}, or delete it and choose again: atrl-bench judge URL --out {quote(str(root))}, "
            "and --serve, --rollouts, --checkpoints",
        ) from None


def keep_settings(root: Path, change: Callable[[RunSettings], Mapping[str, Any]] | None = None, **changes: Any) -> None:
    """Write down what was chosen for the run folder at `root`; what nobody speaks of stays as it is.

    `change` gives what depends on what is kept, which another command may be changing.
    """

    def changed(settings: RunSettings) -> RunSettings:
        return settings.model_copy(update={**changes, **(change(settings) if change else {})})

    if changed(settings := read_settings(root)) != settings:
        root.mkdir(parents=True, exist_ok=True)
        with alone_in(root):
            content = changed(read_settings(root)).model_dump_json(indent=2, exclude_none=True)
            write_atomically(root / SETTINGS_FILE, f"{content}\n".encode())


def environment_here(*if_installed: str) -> dict[str, str]:
    """What numbers are made with on this machine: no name, address or path of it."""
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
