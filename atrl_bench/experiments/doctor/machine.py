"""Python, its packages, GPUs, cores, and what the system allows a process."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from atrl_bench.cores import usable_cores
from atrl_bench.engines.model_server import INSTALL, find_vllm
from atrl_bench.errors import MissingDataError
from atrl_bench.experiments.doctor.diagnosis import SECONDS, Check, State
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import Profile
from atrl_bench.training.rollout_engine import installed_vllm

GB = 1e9
MIN_OPEN_FILES = 256
MIN_PROCESSES = 256
MIN_SHARED_MEMORY_GB = 0.06  # what a container gets when nobody asks for more


def python() -> Iterator[Check]:
    """Yield whether this version of Python will do."""
    wanted = importlib.metadata.metadata("atrl-bench")["Requires-Python"]
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if platform.python_version() in SpecifierSet(wanted, prereleases=True):
        yield Check("", "ok", found)
    else:
        yield Check("", "missing", f"{found}; {wanted} is needed", "install it and make a new environment")


def packages() -> Iterator[Check]:
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


def vllm(run_dir: RunDir) -> Iterator[Check]:
    """Yield which vLLM there is, and whether TRL, torch and transformers go with it.

    Only a folder whose tables it answers, or whose trainings it samples for, cannot do without.
    """
    samples = run_dir.profile.rollouts.engine == "vllm"
    state: State = "missing" if samples or run_dir.engine is not None else "note"
    try:
        program = find_vllm()
    except MissingDataError as error:
        yield Check("", state, "not here: transformers samples and answers", error.next_step)
        return
    if run_dir.engine is not None and program.version != run_dir.engine.version:
        found = f"{program.version}, and {run_dir.root} is answered by {run_dir.engine.version}"
        yield Check("", state, found, f"pip install vllm=={run_dir.engine.version}, or --serve to answer anew")
        return
    if (version := installed_vllm()) is None:
        where = f"{program.version} at {program.program}, in another environment: it answers (--serve)"
        found = f"{where}, and cannot sample rollouts"
        yield Check("", "missing", found, INSTALL) if samples else Check("", "ok", found)
        return
    wrong = [*_unlike(_wanted_by("atrl-bench", "vllm"), f", which TRL {_version('trl')} supports")]
    wrong += _unlike(_wanted_by("vllm", "torch", "transformers"), f", which vLLM {version} wants")
    if wrong:
        yield Check("", state, "; ".join(wrong), INSTALL)
    else:
        yield Check("", "ok", f"{version}, with transformers {_version('transformers')} and trl {_version('trl')}")


def _wanted_by(package: str, *names: str) -> list[Requirement]:
    """Return what an installed package asks of these others, in its extras too."""
    wanted = [Requirement(line) for line in importlib.metadata.requires(package) or ()]
    extras = ("", "vllm")
    return [
        each
        for each in wanted
        if each.name in names and (not each.marker or any(each.marker.evaluate({"extra": name}) for name in extras))
    ]


def _unlike(wanted: Iterable[Requirement], why: str) -> Iterator[str]:
    for requirement in wanted:
        # What was built for a CPU or a CUDA is the same version: 2.13.0+cpu is 2.13.0.
        specifier = SpecifierSet(re.sub(r"\+[\w.]+", "", str(requirement.specifier)))
        version = _version(requirement.name)
        if not specifier.contains(version.partition("+")[0], prereleases=True):
            yield f"{requirement.name} {version} is not {specifier}{why}"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "(none)"


def gpu(profile: Profile) -> Iterator[Check]:
    """Yield which GPUs there are, and whether torch can use them."""
    needs_one = not profile.generated_data
    driver, built_for = Path("/dev/nvidiactl").exists(), _torch_cuda()
    if not driver:
        found = "no NVIDIA driver" + (f"; profile {profile.name} trains a model of billions" if needs_one else "")
        fix = "use a machine with GPUs, or --profile mini" if needs_one else ""
        yield Check("", "missing" if needs_one else "ok", f"{found}" + ("" if needs_one else ", none needed"), fix)
        return
    names = output(["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"])
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


def cpu() -> Iterator[Check]:
    """Yield how many cores this process may use."""
    usable = usable_cores()
    threads = os.environ.get("OMP_NUM_THREADS")
    found = f"{usable} of {os.cpu_count()} cores; OMP_NUM_THREADS {threads or 'not set'}"
    if threads and threads.isdigit() and int(threads) > usable:
        yield Check("", "note", f"{found}: more threads than cores", f"export OMP_NUM_THREADS={usable}")
    else:
        yield Check("", "ok", f"{found} (rows of a table run side by side, one thread each)")


def limits() -> Iterator[Check]:
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


def output(command: Sequence[str]) -> str:
    """Return what a program prints; nothing where it is not there, or says nothing in time."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
