"""Fixtures any test may use: a tiny model with random weights, its processor, a mini world, real rows, a judge."""

import contextlib
import gc
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import hub_layouts
import hypothesis
import psutil
import pytest
from http_servers import Body, ChatServer, Reply
from local_hub import LocalHub
from programs import ended

import atrl_bench
from atrl_bench import resources
from atrl_bench.data.repository import LISTINGS
from atrl_bench.grading.judge.calibration import calibration_set
from atrl_bench.grading.judge.prompt import judge_messages
from atrl_bench.results.shared_store import SharedStore

pytest_plugins = ["fake_backend", "needs", "table_fixtures"]
# The first example may import what is slow to import, and a busy machine is slow with any.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")
# trackio reads this once, when TRL imports it; the user's own runs are elsewhere.
os.environ["TRACKIO_DIR"] = tempfile.mkdtemp()
os.environ.pop("TRACKIO_SPACE_ID", None)
if threading.current_thread() is threading.main_thread():
    # A shell that starts the tests in the background has them ignore Ctrl-C, and so would the commands that they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["HF_HUB_OFFLINE"] = "1"  # no test asks the real hub; the local one is asked by processes of their own


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """One more than there are cores, for slow tests wait a quarter of their time for processes that begin or die."""
    return (psutil.cpu_count() or 1) + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is made by now lives as long as the tests: to look for garbage in it takes a worker ten seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config, items):
    """Leave tests marked `large` out unless `-m` names the mark, and begin with the files that hold slow ones."""
    if "large" not in config.option.markexpr:
        large = [item for item in items if item.get_closest_marker("large")]
        config.hook.pytest_deselected(items=large)
        items[:] = [item for item in items if item not in large]
    slow_files = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow_files)  # else a worker is left alone with one at the end


@pytest.fixture(scope="session")
def mini_processor():
    from atrl_bench.mini.model import build_processor

    return build_processor()


@pytest.fixture(scope="session")
def tiny_model():
    from atrl_bench.mini.model import build_model

    return build_model(0)


@pytest.fixture(scope="session")
def mini_world(tmp_path_factory):
    """The folder of all generated datasets."""
    from atrl_bench.mini.world import write_world
    from atrl_bench.profiles import load_profile

    return write_world(tmp_path_factory.mktemp("world"), load_profile("smoke"))


@pytest.fixture
def run_dir(tmp_path):
    """An empty run folder under the smoke profile."""
    from atrl_bench.experiments.run_dir import RunDir
    from atrl_bench.profiles import load_profile

    return RunDir.at(tmp_path, load_profile("smoke"))


@pytest.fixture
def store(tmp_path):
    """An empty store, where `run_dir` has its own."""
    with SharedStore(tmp_path / "store.sqlite") as opened:
        yield opened


@pytest.fixture
def local_hub():
    """A hub on this machine, without repositories."""
    with LocalHub() as hub:
        yield hub


class Ended(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture(name="atrl_bench")
def _command_line(monkeypatch, capsys, tmp_path) -> Callable[..., Ended]:
    """Return a function that gives a command in this process and in an empty folder."""
    from atrl_bench import cli

    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["atrl-bench", *map(str, arguments)])
        with patch.dict(os.environ), pytest.raises(SystemExit) as ended:
            cli.main()
        return Ended(ended.value.code, *capsys.readouterr())

    return run


# A copy of the project that a test may change ------------------------------------------------------------------------


@dataclass(frozen=True)
class Checkout:
    """A copy of the package and of the folders that a user edits, beside a folder in which its commands run."""

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "checkout"

    def read(self, path: str) -> str:
        return (self.root / path).read_text(encoding="utf-8")

    def write(self, path: str, text: str) -> None:
        (self.root / path).write_text(text, encoding="utf-8")

    def python(self, *arguments: str) -> str:
        """Return what a Python command prints that imports the copy; it must succeed."""
        done = self._run(*arguments)
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        return done.stdout

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        import matplotlib

        environment = {"PYTHONPATH": str(self.root), "PATH": "/usr/bin:/bin", "HOME": str(self.folder)}
        environment["MPLCONFIGDIR"] = matplotlib.get_cachedir()  # else each test has all fonts listed anew
        return ended(*arguments, cwd=self.folder, env=environment | {"OMP_NUM_THREADS": "1"}, timeout=600)

    def error(self, *arguments: str) -> str:
        """Return what a command of atrl-bench says when it refuses."""
        done = self._run("-m", "atrl_bench", *arguments)
        assert done.returncode != 0, done.stdout
        return " ".join(done.stderr.split())

    def install(self, project: str, files: Mapping[str, str]) -> None:
        """Lay a package beside ours as pip does: its files, and the entry points of its pyproject.toml."""
        settings = tomllib.loads(project)["project"]
        groups = settings["entry-points"].items()
        lines = [line for group, names in groups for line in (f"[{group}]", *(f"{n} = {v}" for n, v in names.items()))]
        metadata = f"Metadata-Version: 2.1\nName: {settings['name']}\nVersion: {settings['version']}\n"
        info = f"{settings['name'].replace('-', '_')}-{settings['version']}.dist-info"
        installed = {f"{info}/METADATA": metadata, f"{info}/entry_points.txt": "\n".join(lines)}
        for path, text in {**files, **installed}.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            self.write(path, text)

    def run(self, *arguments: str) -> str:
        """Return what a command of atrl-bench prints."""
        return self.python("-m", "atrl_bench", *arguments)


@pytest.fixture
def checkout(tmp_path):
    package = shutil.copytree(Path(atrl_bench.__file__).parent, tmp_path / "checkout" / "atrl_bench")
    shutil.rmtree(package / "_shipped", ignore_errors=True)
    for name in ("tasks", "recipes", "reports"):
        shutil.copytree(resources.folder(name), tmp_path / "checkout" / name)
    (tmp_path / "checkout" / "pyproject.toml").touch()
    return Checkout(tmp_path)


@pytest.fixture
def published_world(local_hub, mini_world, checkout):
    """A hub with all data of the mini world as its originals are published; the checkout has its address for GeoQA."""
    for hub_id, files in hub_layouts.repositories(mini_world).items():
        local_hub.add("dataset", hub_id, files)
    questions, geo170k = hub_layouts.geoqa_sources(mini_world)
    local_hub.add("dataset", "Luckyjhg/Geo170K", geo170k)
    local_hub.add("dataset", "on_github/R1-V", {"geoqa_test_prompts.jsonl": questions})
    published = checkout.read("tasks/_published.yaml")
    address, sha256 = re.search(r"url: (\S+geoqa_test_prompts.jsonl)\s+sha256: (\w+)", published).groups()
    here = f"{local_hub.url}/datasets/on_github/R1-V/resolve/main/geoqa_test_prompts.jsonl"
    published = published.replace(address, here).replace(sha256, hashlib.sha256(questions).hexdigest())
    checkout.write("tasks/_published.yaml", published)
    return local_hub


# Endpoints ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def serve():
    """Start a server; all are stopped after the test."""
    with contextlib.ExitStack() as servers:
        yield lambda *replies, answer=None: servers.enter_context(ChatServer(*replies, answer=answer))


@pytest.fixture
def fit():
    """Make a function that says what a fit judge says to its calibration set, and `otherwise(messages)` to the rest."""
    expected = {
        judge_messages(item.candidate)[1]["content"]: "Correct" if item.kind == "right" else "Incorrect"
        for item in calibration_set()
    }

    def make(otherwise: Callable[[list[dict[str, str]]], Reply]) -> Callable[[Body], Reply]:
        return lambda body: expected.get(body["messages"][1]["content"]) or otherwise(body["messages"])

    return make


@pytest.fixture
def entered_files() -> Callable[[], contextlib.AbstractContextManager[set[str]]]:
    """Return a context that gives the files of the package in which something runs meanwhile."""
    package = Path(atrl_bench.__file__).parent

    @contextlib.contextmanager
    def watch() -> Iterator[set[str]]:
        files: set[str] = set()

        def enter(frame, event, _):
            path = Path(frame.f_code.co_filename)
            ours = path.suffix == ".py" and path.is_relative_to(package)  # not the templates of an installed package
            if event == "call" and ours and frame.f_code.co_name != "<module>":
                files.add(path.relative_to(package).as_posix())

        sys.setprofile(enter)
        try:
            yield files
        finally:
            sys.setprofile(None)

    return watch


@pytest.fixture(autouse=True)
def _own_listings():
    """Forget after each test where a command kept its listings: a command line does so once, for its processes too."""
    yield
    os.environ.pop(LISTINGS, None)
