"""`atrl-bench doctor`: what a profile needs that this machine lacks, and the command that mends it.

Loads no model and asks no network unless told to. Native libraries are tried in a process of their own: a broken one
may end the process that loads it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from atrl_bench.errors import AtrlBenchError, MissingDataError
from atrl_bench.evaluation.data import is_here
from atrl_bench.evaluation.tasks import expand
from atrl_bench.experiments.definition import list_tables, load_table
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.grading.judge.judge import JudgeConfig
from atrl_bench.models.local import find_model
from atrl_bench.printable import Block, Command, Record, Rows
from atrl_bench.profiles import Profile
from atrl_bench.results import schema
from atrl_bench.sandbox.isolation import available_backend
from atrl_bench.training.cost_estimate import model_shape
from atrl_bench.training.data import describe
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.run import resolved_arguments

State = Literal["ok", "missing", "note"]
GB = 1e9
SECONDS = 20  # for one attempt with a native library, or one answer from a network
MINI_DISK_GB = 1.0  # a mini table with its checkpoints, rounded up
MIN_OPEN_FILES = 256
MIN_PROCESSES = 256
MIN_SHARED_MEMORY_GB = 0.06  # what a container gets when nobody asks for more

TRY_METIS = """
import pymetis
cuts, parts = pymetis.part_graph(2, adjacency=[[1, 2], [0, 2], [0, 1, 3], [2, 4, 5], [3, 5], [3, 4]])
assert (cuts, len(set(parts))) == (1, 2), (cuts, parts)
"""
TRY_VIDEO = """
import tempfile
import numpy as np
from atrl_bench.models.video import decode
from atrl_bench.mini.videos import encode
with tempfile.NamedTemporaryFile(suffix=".mp4") as file:
    file.write(encode(np.zeros((4, 32, 32, 3), np.uint8), 4))
    file.flush()
    assert decode(file.name, 2).frames.shape == (2, 32, 32, 3)
"""


@dataclass(frozen=True)
class Check:
    """One thing looked at. `missing` keeps the profile from running; a `note` is worth knowing."""

    name: str
    state: State
    found: str
    fix: str = ""


@dataclass(frozen=True)
class Diagnosis(Record):
    """What was looked at on this machine, in order, for a run folder and its profile."""

    run_dir: RunDir
    checks: tuple[Check, ...]

    @property
    def is_healthy(self) -> bool:
        """Whether the profile can run: the command ends with 1 where it cannot."""
        return not any(check.state == "missing" for check in self.checks)

    def document(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        checks = [asdict(check) for check in self.checks]
        return {"profile": self.run_dir.profile.name, "healthy": self.is_healthy, "checks": checks}

    def blocks(self) -> Iterable[Block]:
        """Yield the checks, each with the command that mends it, and whether the profile can run."""
        rows: list[tuple[str, ...]] = []
        for check in self.checks:
            rows.append(("MISSING" if check.state == "missing" else check.state, check.name, check.found))
            rows += [("", f"-> {check.fix}")] if check.fix else []
        yield Rows(rows, indent=0)
        yield ""
        name, missing = self.run_dir.profile.name, sum(check.state == "missing" for check in self.checks)
        if missing:
            yield f"Profile {name} lacks {missing} thing{'s' * (missing != 1)} here."
        else:
            yield f"Profile {name} can run here."
            yield Command(f"atrl-bench run-table main_7b {self.run_dir.options}")


def doctor(run_dir: RunDir, *, judge: JudgeConfig | None = None, online: bool = False) -> Diagnosis:
    """Return what was looked at; a check that breaks is itself a finding.

    Without `judge`, the run folder's is looked at; one without a model's name may serve any. With `online`, the hub is
    asked whether it answers.
    """
    profile = run_dir.profile
    looks: dict[str, Callable[[], Iterator[Check]]] = {
        "Python": _python,
        "packages": _packages,
        "GPU": partial(_gpu, profile),
        "CPU": _cpu,
        "limits": _limits,
        "run folder": partial(_folder, run_dir),
        "result store": partial(_store, run_dir),
        "disk": partial(_disk, run_dir),
        "METIS partitions a graph": partial(_native, TRY_METIS, "pip install --force-reinstall 'pymetis>=2025.2'"),
        "decord decodes an MP4": partial(_native, TRY_VIDEO, "pip install --force-reinstall decord av"),
        "isolation of programs": _isolation,
        "base model": partial(_model, profile),
        "datasets": partial(_data, run_dir),
        "hub": partial(_hub, profile, online),
        "judge": partial(_judge, judge or run_dir.judge),
        "optional tools": _tools,
    }
    checks = [replace(check, name=check.name or name) for name, look in looks.items() for check in _findings(look)]
    return Diagnosis(run_dir, tuple(checks))


def _findings(look: Callable[[], Iterator[Check]]) -> list[Check]:
    try:
        return list(look())
    except (OSError, ValueError, subprocess.SubprocessError, AtrlBenchError) as error:
        first = str(error).partition("\n")[0] or type(error).__name__
        return [Check("", "note", f"could not be looked at: {first}", getattr(error, "next_step", ""))]


# This machine ---------------------------------------------------------------------------------------------------------


def _python() -> Iterator[Check]:
    wanted = importlib.metadata.metadata("atrl-bench")["Requires-Python"]
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if platform.python_version() in SpecifierSet(wanted, prereleases=True):
        yield Check("", "ok", found)
    else:
        yield Check("", "missing", f"{found}; {wanted} is needed", "install it and make a new environment")


def _packages() -> Iterator[Check]:
    """Yield one check of all requirements of the package as it is installed, without its extras."""
    wrong, num_good = [], 0
    for line in importlib.metadata.requires("atrl-bench") or ():
        wanted = Requirement(line)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            version = importlib.metadata.version(wanted.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append((str(wanted), f"{wanted.name} is not installed"))
            continue
        if wanted.specifier.contains(version, prereleases=True):
            num_good += 1
        else:
            wrong.append((str(wanted), f"{wanted.name} {version} is not {wanted.specifier}"))
    if wrong:
        names = " ".join(f"'{requirement}'" for requirement, _ in wrong)
        yield Check("", "missing", "; ".join(why for _, why in wrong), f"pip install {names}")
    else:
        yield Check("", "ok", f"{num_good} at versions that go together")


def _gpu(profile: Profile) -> Iterator[Check]:
    needs_one = not profile.generated_data
    driver, built_for = Path("/dev/nvidiactl").exists(), _torch_cuda()
    if not driver:
        found = "no NVIDIA driver" + (f"; profile {profile.name} trains a model of billions" if needs_one else "")
        fix = "use a machine with GPUs, or --profile mini" if needs_one else ""
        yield Check("", "missing" if needs_one else "ok", f"{found}" + ("" if needs_one else ", none needed"), fix)
        return
    names = _output(["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"])
    found = "; ".join(line for line in names.splitlines() if line.strip()) or "driver here, nvidia-smi says nothing"
    if built_for is None:
        yield Check(
            "",
            "missing" if needs_one else "note",
            f"{found}, but torch is built without CUDA",
            "pip install --force-reinstall torch torchvision",
        )
    else:
        yield Check("", "ok", f"{found}; torch for CUDA {built_for}")


def _torch_cuda() -> str | None:
    """Return which CUDA the installed torch is for, read from its file: importing it takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).with_name("version.py")
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    found = re.search(r"^cuda.*=\s*'([\d.]+)'", text, re.MULTILINE)
    return found.group(1) if found else None


def _cpu() -> Iterator[Check]:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = os.environ.get("OMP_NUM_THREADS")
    found = f"{usable} of {os.cpu_count()} cores; OMP_NUM_THREADS {threads or 'not set'}"
    if threads and threads.isdigit() and int(threads) > usable:
        yield Check("", "note", f"{found}: more threads than cores", f"export OMP_NUM_THREADS={usable}")
    else:
        yield Check("", "ok", f"{found} (rows of a table run side by side, one thread each)")


def _limits() -> Iterator[Check]:
    """Yield what the system allows a process that starts others and shares memory with them."""
    shared = Path("/dev/shm")
    if shared.is_dir():
        free = shutil.disk_usage(shared).total / GB
        small = free < MIN_SHARED_MEMORY_GB
        fix = "start the container with --shm-size=1g" if small else ""
        yield Check("shared memory", "note" if small else "ok", f"{free:.2f} GB in {shared}", fix)
    if sys.platform != "win32":
        import resource

        files, processes = resource.getrlimit(resource.RLIMIT_NOFILE)[0], resource.getrlimit(resource.RLIMIT_NPROC)[0]
        limits = [("open files", files, MIN_OPEN_FILES, "ulimit -n 4096")]
        limits += [("processes", processes, MIN_PROCESSES, "ulimit -u 4096")]
        for name, limit, least, fix in limits:
            unlimited = limit == resource.RLIM_INFINITY
            if not unlimited and limit < least:
                yield Check(f"limit of {name}", "missing", f"{limit}; {least} are needed", fix)
        yield Check("limits", "ok", f"{_limit(files)} open files, {_limit(processes)} processes")


def _limit(value: int) -> str:
    return f"{value:,}" if 0 <= value < 1 << 60 else "any number of"


# The run folder -------------------------------------------------------------------------------------------------------


def _folder(run_dir: RunDir) -> Iterator[Check]:
    parent = _existing(run_dir.root)
    try:
        with tempfile.TemporaryFile(dir=parent):
            pass
    except OSError as error:
        yield Check("", "missing", f"{parent} cannot be written: {error.strerror}", "choose another with --out")
    else:
        later = "" if run_dir.root.is_dir() else " (made later)"
        yield Check("", "ok", f"{run_dir.root} can be written{later}")


def _store(run_dir: RunDir) -> Iterator[Check]:
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
        found = f"{len(cells)} cells, {len(runs)} trainings" + (f", {len(failed)} cells failed" if failed else "")
        yield Check("", "ok", f"{found}; version {schema.VERSION} is understood")


def _disk(run_dir: RunDir) -> Iterator[Check]:
    wanted, why = _disk_gb(run_dir.profile)
    free = shutil.disk_usage(_existing(run_dir.root)).free / GB
    found = f"{free:.0f} GB free; about {wanted:.0f} GB are needed for {why}"
    state: State = "ok" if free >= wanted else "missing"
    yield Check("", state, found, "" if state == "ok" else "free some, or use another disk with --out")


def _disk_gb(profile: Profile) -> tuple[float, str]:
    """Return the space a first training takes, with the download of the base model."""
    if profile.generated_data:
        return MINI_DISK_GB, "a table with its checkpoints"
    needs = resolved_arguments(load_recipe("grpo"), profile)["needs"]
    shape = model_shape(profile.model)
    download = 2 * shape.num_parameters / GB if shape else 0.0
    return needs.get("disk_gb", 0.0) + download, f"{profile.model} and one training of it"


def _existing(path: Path) -> Path:
    """Return the folder itself or its nearest parent that exists."""
    path = path.absolute()
    return next(parent for parent in (path, *path.parents) if parent.exists())


# Libraries, models, data ----------------------------------------------------------------------------------------------


def _native(code: str, fix: str) -> Iterator[Check]:
    # In the interpreter's own environment, but from nowhere in particular: the current folder may hold anything.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    try:
        tried = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        yield Check("", "missing", f"not within {SECONDS} s", fix)
        return
    if tried.returncode == 0:
        yield Check("", "ok", "yes")
        return
    lines = tried.stderr.strip().splitlines()
    why = lines[-1] if lines else f"the process ended with {tried.returncode}"
    yield Check("", "missing", why, fix)


def _isolation() -> Iterator[Check]:
    try:
        backend = available_backend()
    except AtrlBenchError as error:
        # Only benchmarks that run programs of a model want it, and their cells then say so.
        yield Check("", "note", f"none, so ChartMimic is not measured. {error.why}", error.next_step)
    else:
        yield Check("", "ok", f"{backend.name} (used only with --allow-code)")


def _model(profile: Profile) -> Iterator[Check]:
    try:
        yield Check("", "ok", f"{profile.model} in {find_model(profile.model).folder}")
    except MissingDataError as error:
        found, fix = f"{profile.model} is not here", f"hf download {profile.model}"
        if profile.model.count("/") == 1 and not _is_offline():
            yield Check("", "note", f"{found}; it is fetched when it is needed", fix)
        else:
            yield Check("", "missing", f"{found}. {error.why}", error.next_step)


def _data(run_dir: RunDir) -> Iterator[Check]:
    """Yield which benchmarks of the shipped tables have their rows here."""
    if run_dir.profile.generated_data and run_dir.given_data is None:
        yield Check("datasets", "ok", "generated on this machine when they are needed")
        return
    tables = [load_table(name) for name in list_tables()]
    yield from _training_sets(dict.fromkeys(table.data for table in tables), run_dir)
    tasks = expand(list(dict.fromkeys(column.task for table in tables for column in table.columns)))
    here = [info for info in tasks if is_here(info, run_dir.given_data)]
    absent = [info for info in tasks if info not in here]
    found = f"{len(here)} of {len(tasks)} benchmarks of the tables are here"
    if not absent:
        yield Check("datasets", "ok", found)
        return
    manual = [info for info in absent if info.hub_id is None or info.shows_videos or run_dir.given_data is not None]
    fetched = [info for info in absent if info not in manual]
    if fetched:
        words = f"{found}; fetched when they are needed: {', '.join(info.name for info in fetched)}"
        fix = f"hf download {fetched[0].hub_id} --repo-type dataset"
        yield Check("datasets", "missing" if _is_offline() else "note", words, fix)
    if manual:
        words = f"to be laid into --data-dir by hand: {', '.join(info.name for info in manual)}"
        yield Check("datasets by hand", "note", words, "see docs/reproducing.md; then --data-dir DATA")


def _training_sets(names: Iterable[str], run_dir: RunDir) -> Iterator[Check]:
    from huggingface_hub import constants

    for name in names:
        described = describe(name)
        if run_dir.given_data is not None:
            root = run_dir.given_data / (described.folder or name)
        else:
            root = Path(constants.HF_HUB_CACHE) / f"datasets--{described.hub_id.replace('/', '--')}"
        if root.is_dir():
            yield Check(f"training set {name}", "ok", str(root))
        else:
            how = "to be laid into --data-dir by hand" if described.media else "fetched when it is needed"
            found = f"{described.hub_id} is not here" + ("" if run_dir.given_data else f"; {how}")
            state: State = "missing" if run_dir.given_data or _is_offline() else "note"
            yield Check(f"training set {name}", state, found, f"hf download {described.hub_id} --repo-type dataset")


def _is_offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


# Networks and tools ---------------------------------------------------------------------------------------------------


def _hub(profile: Profile, online: bool) -> Iterator[Check]:
    if not online:
        yield Check("", "ok" if profile.generated_data else "note", "not asked (--online asks it)")
        return
    import httpx
    from huggingface_hub import constants

    url = f"{constants.ENDPOINT}/api/models/{profile.model if '/' in profile.model else 'gpt2'}"
    try:
        answer = httpx.get(url, timeout=SECONDS)
    except httpx.HTTPError as error:
        state: State = "note" if profile.generated_data else "missing"
        yield Check("", state, f"{constants.ENDPOINT} does not answer: {error}", "set HTTPS_PROXY or HF_ENDPOINT")
        return
    if answer.is_success:
        yield Check("", "ok", f"{constants.ENDPOINT} answers")
    else:
        yield Check("", "note", f"{constants.ENDPOINT} answers {answer.status_code} for {url}", "hf auth login")


def _judge(judge: JudgeConfig | None) -> Iterator[Check]:
    if judge is None:
        yield Check("", "ok", "none given: the rule grader alone decides, and reports say so")
        return
    import httpx

    base = judge.base_url.rstrip("/").removesuffix("/chat/completions")
    key = os.environ.get(judge.api_key_variable)
    fix = f"start the server, or name another; its key is read from {judge.api_key_variable}"
    try:
        answer = httpx.get(f"{base}/models", timeout=SECONDS, headers={"Authorization": f"Bearer {key}"} if key else {})
        names = [str(item["id"]) for item in answer.raise_for_status().json()["data"]]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
        yield Check("", "missing", f"{base} does not list its models: {str(error) or type(error).__name__}", fix)
        return
    if judge.model in ("", *names):
        yield Check("", "ok", f"{base} serves {', '.join(names[:5])}")
    else:
        models = ", ".join(names[:5]) or "nothing"
        yield Check("", "missing", f"{base} serves {models}, not {judge.model}", "correct --judge-model")


def _tools() -> Iterator[Check]:
    latex = shutil.which("pdflatex") or shutil.which("tectonic")
    found = latex or "no pdflatex: tables are written as LaTeX but not compiled"
    yield Check("LaTeX (optional)", "ok" if latex else "note", found)
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next((path for name in names if (path := shutil.which(name))), None)
    yield Check("browser (optional)", "ok" if browser else "note", browser or "none: reports open on another machine")


def _output(command: Sequence[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
