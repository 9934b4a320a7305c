"""`atrl-bench doctor`: what a profile needs that this machine lacks, and the command that mends it.

Five looks: Python with its packages, the GPU, models and data, the run folder on its disk, the judge. No model is
loaded, and no network is asked but the judge's.
"""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from atrl_bench.data.dataset import is_here
from atrl_bench.data.sets import find_set
from atrl_bench.engines.devices import memory_gb, visible_gpus
from atrl_bench.engines.model_server import INSTALL, find_vllm
from atrl_bench.errors import AtrlBenchError, EndpointError, MissingDataError
from atrl_bench.evaluation.tasks import expand
from atrl_bench.experiments.cost import GB, training_needs
from atrl_bench.experiments.definition import OWN, list_tables, load_table
from atrl_bench.experiments.fetch import existing, free_disk_gb
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.grading.judge.judge import JudgeConfig
from atrl_bench.models.chat_client import ChatClient
from atrl_bench.models.completion import NoReplyError
from atrl_bench.models.local import find_model
from atrl_bench.models.shape import model_shape
from atrl_bench.printable import Block, Command, Record, Rows, counted
from atrl_bench.profiles import Profile
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.rollout_engine import installed_vllm

State = Literal["ok", "missing", "note"]
SECONDS = 20  # for one attempt with a native library, or one answer from a program or a network
MINI_DISK_GB = 1.0  # a mini table with its checkpoints, rounded up
# Native libraries, each tried in a process of its own: a broken one may end the process that loads it.
NATIVE = {
    "METIS": ("import pymetis; pymetis.part_graph(2, adjacency=[[1], [0]])", "'pymetis>=2025.2'"),
    "decord": ("import decord", "decord av"),
}


@dataclass(frozen=True)
class Check:
    """One thing looked at. `missing` keeps the profile from running; a `note` is worth knowing."""

    name: str
    state: State
    found: str
    fix: str = ""

    @classmethod
    def of(cls, name: str, is_fine: bool, found: str, fix: str) -> Check:
        return cls(name, "ok", found) if is_fine else cls(name, "missing", found, fix)


@dataclass(frozen=True)
class Diagnosis(Record):
    """What was looked at on this machine, in order, for a run folder and its profile."""

    run_dir: RunDir
    checks: tuple[Check, ...]

    @property
    def is_healthy(self) -> bool:
        return not any(check.state == "missing" for check in self.checks)

    def document(self) -> dict[str, Any]:
        checks = [asdict(check) for check in self.checks]
        return {"profile": self.run_dir.profile.name, "healthy": self.is_healthy, "checks": checks}

    def blocks(self) -> Iterable[Block]:
        rows: list[tuple[str, ...]] = []
        for check in self.checks:
            rows.append(("MISSING" if check.state == "missing" else check.state, check.name, check.found))
            rows += [("", f"-> {check.fix}")] if check.fix else []
        yield Rows(rows, indent=0)
        yield ""
        name, missing = self.run_dir.profile.name, sum(check.state == "missing" for check in self.checks)
        if missing:
            yield f"Profile {name} lacks {counted(missing, 'thing')} here."
        else:
            yield f"Profile {name} can run here."
            yield Command(f"atrl-bench run-table main_7b {self.run_dir.options}")


def doctor(run_dir: RunDir) -> Diagnosis:
    """What was looked at; a look that breaks is itself a finding."""
    looks: dict[str, Callable[[], Iterator[Check]]] = {
        "packages": lambda: packages(run_dir),
        "GPU": lambda: gpu(run_dir.profile),
        "data": lambda: data(run_dir),
        "disk": lambda: disk(run_dir),
        "judge": lambda: ask_judge(run_dir.judge),
    }
    return Diagnosis(run_dir, tuple(check for name, look in looks.items() for check in _findings(name, look)))


def _findings(name: str, look: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    try:
        yield from look()
    except (OSError, ValueError, subprocess.SubprocessError, AtrlBenchError) as error:
        first = str(error).partition("\n")[0] or type(error).__name__
        yield Check(name, "note", f"could not be looked at: {first}", getattr(error, "next_step", ""))


def packages(run_dir: RunDir) -> Iterator[Check]:
    wanted = importlib.metadata.metadata("atrl-bench")["Requires-Python"]
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    is_new_enough = platform.python_version() in SpecifierSet(wanted, prereleases=True)
    yield Check.of("Python", is_new_enough, found, f"make a new environment of Python {wanted}")
    required = _requirements("atrl-bench")
    if unmet := dict(_unmet(required)):
        names = " ".join(f"'{requirement}'" for requirement in unmet)
        yield Check("packages", "missing", "; ".join(unmet.values()), f"pip install {names}")
    else:
        yield Check("packages", "ok", f"{len(required)} at versions that go together")
    yield vllm(run_dir)
    for name, (code, requirement) in NATIVE.items():
        yield native(name, code, f"pip install --force-reinstall {requirement}")


def vllm(run_dir: RunDir) -> Check:
    """Which vLLM there is, and whether it goes with the rest; only who is served by it cannot do without."""
    samples = run_dir.profile.rollouts.engine == "vllm"
    state: State = "missing" if samples or run_dir.engine is not None else "note"
    try:
        program = find_vllm()
    except MissingDataError as error:
        return Check("vLLM", state, "not here: transformers samples and answers", error.next_step)
    if run_dir.engine is not None and program.version != run_dir.engine.version:
        found = f"{program.version}, and {run_dir.root} is answered by {run_dir.engine.version}"
        return Check("vLLM", state, found, f"pip install vllm=={run_dir.engine.version}, or --serve to answer anew")
    if (version := installed_vllm()) is None:
        found = f"{program.version} at {program.program}, in another environment: it answers (--serve)"
        found += ", and cannot sample rollouts"
        return Check("vLLM", "missing" if samples else "ok", found, INSTALL if samples else "")
    trl, transformers = (importlib.metadata.version(name) for name in ("trl", "transformers"))
    wrong = [f"{why}, which TRL {trl} supports" for _, why in _unmet(_requirements("atrl-bench", "vllm"))]
    beside = [each for each in _requirements("vllm") if each.name in ("torch", "transformers")]
    wrong += [f"{why}, which vLLM {version} wants" for _, why in _unmet(beside)]
    if wrong:
        return Check("vLLM", state, "; ".join(wrong), INSTALL)
    return Check("vLLM", "ok", f"{version}, with transformers {transformers} and trl {trl}")


def _requirements(package: str, extra: str = "") -> list[Requirement]:
    wanted = [Requirement(line) for line in importlib.metadata.requires(package) or ()]
    always = [each for each in wanted if each.marker is None or each.marker.evaluate({"extra": ""})]
    added = [each for each in wanted if each not in always and each.marker and each.marker.evaluate({"extra": extra})]
    return added if extra else always


def _unmet(required: Iterable[Requirement]) -> Iterator[tuple[str, str]]:
    for each in required:
        # What was built for a CPU or a CUDA is the same version: 2.13.0+cpu is 2.13.0.
        specifier = SpecifierSet(re.sub(r"\+[\w.]+", "", str(each.specifier)))
        try:
            version = importlib.metadata.version(each.name)
        except importlib.metadata.PackageNotFoundError:
            yield str(each), f"{each.name} is not installed"
            continue
        if not specifier.contains(version.partition("+")[0], prereleases=True):
            yield str(each), f"{each.name} {version} is not {specifier}"


def native(name: str, code: str, fix: str) -> Check:
    # In the interpreter's own environment, but from nowhere in particular: the current folder may hold anything.
    command, environment = [sys.executable, "-c", code], os.environ | {"OMP_NUM_THREADS": "1"}
    try:
        tried = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment, check=False)
    except subprocess.TimeoutExpired:
        return Check(name, "missing", f"not within {SECONDS} s", fix)
    lines = tried.stderr.strip().splitlines() or [f"the process ended with {tried.returncode}"]
    is_fine = tried.returncode == 0
    return Check.of(name, is_fine, "yes" if is_fine else lines[-1], fix)


def gpu(profile: Profile) -> Iterator[Check]:
    gpus, needs_one = visible_gpus(os.environ), not profile.generated_data
    if not gpus and needs_one:
        found = f"none; profile {profile.name} trains a model of billions"
        yield Check("GPU", "missing", found, "use a machine with GPUs, or --profile mini")
    elif not gpus:
        yield Check("GPU", "ok", "none, none needed")
    else:
        found = ", ".join(f"{size:.0f} GB" if math.isfinite(size) else "size not known" for size in memory_gb(gpus))
        if importlib.metadata.version("torch").endswith("+cpu"):
            fix = "pip install --force-reinstall torch torchvision"
            state: State = "missing" if needs_one else "note"
            yield Check("GPU", state, f"{found}, but torch is built without CUDA", fix)
        else:
            yield Check("GPU", "ok", found)


def data(run_dir: RunDir) -> Iterator[Check]:
    is_offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    absent: State = "missing" if is_offline else "note"
    profile = run_dir.profile
    try:
        yield Check("base model", "ok", f"{profile.model} in {find_model(profile.model).folder}")
    except MissingDataError as error:
        if profile.model.count("/") == 1 and absent == "note":
            found = f"{profile.model} is not here; it is fetched when it is needed"
            yield Check("base model", "note", found, f"atrl-bench fetch {profile.model}")
        else:
            yield Check("base model", "missing", f"{profile.model} is not here. {error.why}", error.next_step)
    if profile.generated_data and run_dir.given_data is None:
        yield Check("datasets", "ok", "generated on this machine when they are needed")
        return
    tables = [load_table(name) for name in list_tables(OWN)]
    tasks = expand(list(dict.fromkeys(column.task for table in tables for column in table.columns)))
    needed = [*map(find_set, dict.fromkeys(table.data for table in tables)), *tasks]
    lacking = [each for each in needed if not is_here(each, run_dir.data_dir(each.folder))]
    found = f"{len(needed) - len(lacking)} of {len(needed)} datasets of the tables are here"
    if not lacking:
        yield Check("datasets", "ok", found)
    large = [each for each in lacking if each.hub_id is None or each.names_files or "video" in each.media]
    for name, how, those in (
        ("datasets", f"{found}; fetched when they are needed", [each for each in lacking if each not in large]),
        ("datasets in archives", "to be fetched and unpacked first", large),
    ):
        if those:
            words = f"{how}: {', '.join(each.name for each in those)}"
            yield Check(name, absent, words, f"atrl-bench fetch {those[0].name} {profile.option}")


def disk(run_dir: RunDir) -> Iterator[Check]:
    try:
        with tempfile.TemporaryFile(dir=existing(run_dir.root)):
            yield Check("run folder", "ok", f"{run_dir.root} can be written")
    except OSError as error:
        found = f"{run_dir.root} cannot be written: {error.strerror}"
        yield Check("run folder", "missing", found, "choose another with --out")
    yield _store(run_dir)
    wanted, why = disk_gb(run_dir.profile)
    free = free_disk_gb(run_dir.root)
    found = f"{free:.0f} GB free; about {wanted:.0f} GB are needed for {why}"
    yield Check.of("disk", free >= wanted, found, "free some, or use another disk with --out")


def _store(run_dir: RunDir) -> Check:
    if not run_dir.store_path.is_file():
        return Check("result store", "ok", "none yet")
    try:
        with run_dir.open_store(read_only=True) as store:
            cells, runs = store.cells(), store.runs()
    except AtrlBenchError as error:
        fix = error.next_step or "choose another with --out"
        return Check("result store", "missing", f"{error.what} {error.why}", fix)
    failed = sum(cell.state == "failed" for cell in cells)
    found = f"{counted(len(cells), 'evaluation')}, {counted(len(runs), 'training')}"
    return Check("result store", "ok", f"{found}, {failed} failed" if failed else found)


def disk_gb(profile: Profile) -> tuple[float, str]:
    if profile.generated_data:
        return MINI_DISK_GB, "a table with its checkpoints"
    shape = model_shape(profile.model)
    download = 2 * shape.num_parameters / GB if shape else 0.0
    return training_needs(load_recipe("grpo"), profile).disk_gb + download, f"{profile.model} and one training of it"


def ask_judge(judge: JudgeConfig | None) -> Iterator[Check]:
    if judge is None:
        yield Check("judge", "ok", "none given: the rule grader alone decides, and reports say so")
        return
    base = judge.base_url
    fix = f"start the server, or name another; its key is read from {judge.api_key_variable}"
    try:
        with ChatClient(judge) as client:
            names = client.served_models(SECONDS)
    except (NoReplyError, EndpointError) as error:
        found = f"{base} does not list its models: {str(error).partition(chr(10))[0]}"
        yield Check("judge", "missing", found, fix)
        return
    is_served, found = judge.model in names, f"{base} serves {', '.join(names[:5]) or 'nothing'}"
    found += "" if is_served else f", not {judge.model}"
    yield Check.of("judge", is_served, found, "atrl-bench judge URL --model MODEL")
