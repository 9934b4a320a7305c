"""Datasets and models from the hub: a real HTTP server that speaks its protocol, programs with caches of their own."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from atrl_bench.models.hub import is_whole, split_files

from atrl_bench.errors import MissingDataError
from atrl_bench.evaluation import data, tasks
from atrl_bench.models import local

FIRST, SECOND = "1" * 40, "2" * 40
DATASET = "lmms-lab-encoder/DocVQA"  # of InfoVQA, in the subset InfographicVQA
SHARDS = [f"InfographicVQA/validation-0000{number}-of-00002.parquet" for number in (0, 1)]


@dataclass
class Repository:
    """A repository on the hub: the files of each commit, and which commit each branch is."""

    commits: dict[str, dict[str, bytes]]
    branches: dict[str, str] = field(default_factory=lambda: {"main": FIRST})
    gated: bool = False

    def commit(self, revision: str) -> str | None:
        return revision if revision in self.commits else self.branches.get(revision)


class Hub(ThreadingHTTPServer):
    """The few addresses of the hub that its client needs: info, tree, and the files."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, Repository] = {}
        self.sent: list[str] = []  # the files that were really downloaded

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        if parts[0] == "api":
            name, action = "/".join(parts[2:4]), parts[4] if len(parts) > 4 else "revision"
        else:
            parts = parts if parts[0] == "datasets" else ["models", *parts]
            name, action = "/".join(parts[1:3]), parts[3]
        if name == "broken/one":
            self.close_connection = True
            return self.connection.close()
        repository = self.server.repositories.get(name)
        if repository is None:
            return self.reply(401, b"", **{"X-Error-Code": "RepoNotFound"})
        revision = (parts[5] if len(parts) > 5 else "main") if parts[0] == "api" else parts[4]
        commit = repository.commit(revision)
        if commit is None:
            return self.reply(404, b"", **{"X-Error-Code": "RevisionNotFound"})
        files = repository.commits[commit]
        if action == "revision":
            siblings = [{"rfilename": path} for path in files]
            return self.reply(200, json.dumps({"id": name, "sha": commit, "siblings": siblings}).encode())
        if action == "tree":
            tree = [
                {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for path, content in files.items()
            ]
            return self.reply(200, json.dumps(tree).encode())
        if repository.gated:
            return self.reply(403, b"", **{"X-Error-Code": "GatedRepo"})
        path = "/".join(parts[5:])
        if self.command == "GET":
            self.server.sent.append(path)
        etag = f'"{hashlib.sha1(files[path]).hexdigest()}"'
        return self.reply(200, files[path], **{"ETag": etag, "X-Repo-Commit": commit})

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[Hub]:
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> dict[str, bytes]:
    """The rows of InfoVQA's twin in two files, as the hub keeps them, beside files that nobody asked for."""
    import io

    import pyarrow.parquet as pq

    from atrl_bench.mini import write_world
    from atrl_bench.profiles import load_profile

    world = write_world(tmp_path_factory.mktemp("world"), load_profile("smoke"), ["infovqa"])
    table = pq.read_table(world / "infovqa" / "InfographicVQA")
    half = len(table) // 2
    files = {"README.md": b"# DocVQA", "InfographicVQA/test-00000-of-00001.parquet": b"never asked for"}
    parts = {
        SHARDS[0]: table.slice(0, half),
        SHARDS[1]: table.slice(half),
        "DocVQA/validation-00000-of-00001.parquet": table,
    }
    for name, part in parts.items():
        buffer = io.BytesIO()
        pq.write_table(part, buffer)
        files[name] = buffer.getvalue()
    return files


def run(program: str, home: Path, endpoint: str, **environment: str) -> object:
    """Return what a program prints as JSON, run with a Hugging Face home and a hub of its own."""
    hidden = ("HF_", "HUGGING", "TRANSFORMERS_", "http", "HTTP", "all_", "ALL_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    own = {"HF_HOME": str(home), "HF_ENDPOINT": endpoint, "XDG_CACHE_HOME": str(home), "NO_PROXY": "*"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**clean, **own, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


ROWS = """
import json
from atrl_bench.evaluation.data import load_rows
from atrl_bench.evaluation.source import data_digest, is_here
from atrl_bench.evaluation.tasks import find_task
info = find_task("infovqa_val")
before, digest = is_here(info, None), data_digest(info, None)
rows = load_rows(info, None)
names = [info.module.problem_id(row) for row in rows.remove_columns("image")]
size = info.module.images(rows[0])[0].size
print(json.dumps([before, digest, len(names) == len(set(names)) == len(rows), min(size) > 0, is_here(info, None)]))
"""


LOCATED = """
import json, sys
from atrl_bench.models import hub
def commit_of(*arguments):
    where = hub.locate(*arguments)
    return [where.commit, len(hub.fetch(where))]
"""


def test_only_the_split_is_fetched_and_then_needs_no_network(hub, shards, tmp_path) -> None:
    hub.repositories[DATASET] = Repository({FIRST: shards})
    assert run(ROWS, tmp_path, hub.url) == [False, f"{DATASET}@{FIRST}", True, True, True]
    assert sorted(hub.sent) == SHARDS
    nobody = "http://127.0.0.1:9"
    assert run(ROWS, tmp_path, nobody, HF_HUB_OFFLINE="1") == [True, f"{DATASET}@{FIRST}", True, True, True]
    ask = LOCATED + f"print(json.dumps(commit_of('{DATASET}', 'validation', 'InfographicVQA')))"
    assert run(ask, tmp_path, nobody) == [FIRST, 2]  # what is here is not asked for again


def test_hf_download_is_all_that_an_offline_machine_needs(hub, shards, tmp_path) -> None:
    hub.repositories[DATASET] = Repository({FIRST: shards})
    download = f"""
import subprocess, sys
from pathlib import Path
command = [str(Path(sys.executable).parent / "hf"), "download", "--repo-type", "dataset", "{DATASET}"]
print("[" + str(subprocess.run(command, stdout=subprocess.DEVNULL).returncode) + "]")
"""
    assert run(download, tmp_path, hub.url) == [0]
    assert len(hub.sent) == len(shards)
    assert run(ROWS, tmp_path, hub.url, HF_HUB_OFFLINE="1") == [True, f"{DATASET}@{FIRST}", True, True, True]


def test_what_was_downloaded_stays_the_same_commit_when_the_hub_moves_on(hub, shards, tmp_path) -> None:
    repository = Repository({FIRST: shards})
    hub.repositories[DATASET] = repository
    ask = LOCATED + f"print(json.dumps(commit_of('{DATASET}', 'validation', 'InfographicVQA')))"
    assert run(ask, tmp_path, hub.url) == [FIRST, 2]
    repository.commits[SECOND] = {**shards, SHARDS[0]: b"newer"}
    repository.branches["main"] = SECOND
    assert run(ask, tmp_path, hub.url) == [FIRST, 2]
    other = LOCATED + f"print(json.dumps(commit_of('{DATASET}', 'validation', 'DocVQA')))"
    assert run(other, tmp_path, hub.url) == [FIRST, 1]  # another subset of the same dataset, of the same commit
    assert run(ask, tmp_path / "elsewhere", hub.url) == [SECOND, 2]


def test_a_download_that_lacks_a_shard_is_completed(hub, shards, tmp_path) -> None:
    hub.repositories[DATASET] = Repository({FIRST: shards})
    ask = LOCATED + f"print(json.dumps(commit_of('{DATASET}', 'validation', 'InfographicVQA')))"
    run(ask, tmp_path, hub.url)
    link = next(tmp_path.rglob(Path(SHARDS[1]).name))
    link.resolve().unlink()
    link.unlink()
    hub.sent.clear()
    assert run(ask, tmp_path, hub.url) == [FIRST, 2]
    assert hub.sent == [SHARDS[1]]


def test_a_pinned_revision_is_the_one_that_is_used(hub, shards, tmp_path) -> None:
    hub.repositories[DATASET] = Repository(
        {FIRST: shards, SECOND: {**shards, SHARDS[0]: b"newer"}}, {"main": SECOND, "v1": FIRST}
    )
    wanted = [("v1", FIRST), (FIRST, FIRST), (None, SECOND)]
    for revision, _ in wanted:
        ask = LOCATED + f"print(json.dumps(commit_of('{DATASET}', 'validation', 'InfographicVQA', {revision!r})))"
        assert run(ask, tmp_path, hub.url) == [dict(wanted)[revision], 2]
        assert run(ask, tmp_path, hub.url, HF_HUB_OFFLINE="1") == [dict(wanted)[revision], 2]


def test_a_task_file_pins_a_revision_under_dataset_kwargs() -> None:
    path = tasks.find_task("infovqa_val").yaml_path
    config = tasks._read(path)
    assert tasks._task(path, config).revision is None
    pinned = tasks._task(path, {**config, "dataset_kwargs": {"revision": "v1"}})
    assert pinned.revision == "v1"
    assert pinned.version != tasks.find_task("infovqa_val").version


FAILURES = """
import json, sys
from atrl_bench.errors import MissingDataError
from atrl_bench.models import hub
from atrl_bench.models.local import find_model
def outcome(call):
    try:
        call()
    except MissingDataError as error:
        return [error.what, error.why, error.next_step]
def rows(*arguments):
    return outcome(lambda: hub.fetch(hub.locate(*arguments)))
"""


def test_every_refusal_of_the_hub_says_what_to_do_next(hub, shards, tmp_path) -> None:
    hub.repositories["gated/data"] = Repository({FIRST: shards}, gated=True)
    hub.repositories["gated/model"] = Repository({FIRST: {"config.json": b"{}"}}, gated=True)
    hub.repositories[DATASET] = Repository({FIRST: shards})
    calls = f"""
print(json.dumps({{
    "gated": rows("gated/data", "validation", "InfographicVQA"),
    "missing": rows("no/such", "validation"),
    "cut": rows("broken/one", "validation"),
    "revision": rows("{DATASET}", "validation", "InfographicVQA", "v7"),
    "split": rows("{DATASET}", "train", "InfographicVQA"),
    "gated model": outcome(lambda: find_model("gated/model", download=True)),
    "missing model": outcome(lambda: find_model("no/model", download=True)),
    "cut model": outcome(lambda: find_model("broken/one", download=True)),
}}))
"""
    told = run(FAILURES + calls, tmp_path, hub.url)
    assert f"agree on {hub.url}/datasets/gated/data, then hf auth login" in told["gated"][2]
    assert f"agree on {hub.url}/gated/model, then hf auth login" in told["gated model"][2]
    for name in ("missing", "missing model"):
        assert "knows no such name" in told[name][1]
        assert "hf auth login with a token" in told[name][2]
    assert "hf download --repo-type dataset broken/one, or give --data-dir" in told["cut"][2]
    assert "hf download broken/one, or give a checkpoint folder" in told["cut model"][2]
    assert told["revision"][1] == "It has no such revision."
    assert "InfographicVQA/test-00000-of-00001.parquet" in told["split"][1]
    offline = run(FAILURES + "print(json.dumps(rows('a/b', 'test')))", tmp_path, hub.url, HF_HUB_OFFLINE="1")
    assert offline[1:] == [
        "HF_HUB_OFFLINE is set.",
        "HF_HUB_OFFLINE=0 hf download --repo-type dataset a/b, or give --data-dir, or use --profile mini",
    ]


def mini_model() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in local.MINI.iterdir()}


def test_a_model_of_the_hub_is_fetched_once_without_its_other_files(hub, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    others = {"pytorch_model.bin": b"a pickle", "modeling_x.py": b"code", "README.md": b"", "plot.png": b""}
    hub.repositories["Some/Mini"] = Repository({FIRST: {**mini_model(), **others}})
    program = """
import json
from atrl_bench.models.local import find_model
ref = find_model("Some/Mini", download=True)
print(json.dumps([ref.name, ref.digest]))
"""
    expected = ["Some/Mini", local.find_model("mini").digest]
    assert run(program, tmp_path, hub.url) == expected
    assert not set(hub.sent) & set(others)
    assert run(program, tmp_path, "http://127.0.0.1:9", HF_HUB_OFFLINE="1") == expected


@pytest.mark.slow
def test_a_model_and_a_dataset_of_the_hub_are_evaluated_without_a_network(hub, shards, tmp_path) -> None:
    hub.repositories[DATASET] = Repository({FIRST: shards})
    hub.repositories["Some/Mini"] = Repository({FIRST: mini_model()})
    fetch = """
import json
from atrl_bench.evaluation.source import parquet_files
from atrl_bench.evaluation.tasks import find_task
from atrl_bench.models.local import find_model
find_model("Some/Mini", download=True)
print(len(parquet_files(find_task("infovqa_val"), None)))
"""
    assert run(fetch, tmp_path, hub.url) == 2
    evaluate = f"""
import json
from pathlib import Path
from atrl_bench.evaluation.cell import evaluate
from atrl_bench.evaluation.cell_spec import EvaluationOptions
from atrl_bench.profiles import load_profile
from atrl_bench.results.store import Store
if __name__ == "__main__":
    with Store.open(Path({str(tmp_path)!r}) / "store.sqlite") as store:
        smoke = load_profile("smoke")
        options = EvaluationOptions(repeats=1, limit=2)
        key = evaluate("Some/Mini", "infovqa_val", options, store=store, profile=smoke, data_dir=None)
        print(json.dumps([store.cell(key).spec["data_digest"], len(store.samples(key))]))
"""
    got = run(evaluate, tmp_path, "http://127.0.0.1:9", HF_HUB_OFFLINE="1")
    assert got == [f"{DATASET}@{FIRST}", 2]


# Layouts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "split", "config", "found"),
    [
        (["data/test-00000-of-00001.parquet", "README.md"], "test", None, ["data/test-00000-of-00001.parquet"]),
        (["test.parquet", "testmini.parquet"], "test", None, ["test.parquet"]),
        (["testmini.parquet", "testmini_text_only.parquet"], "testmini", "testmini", ["testmini.parquet"]),
        (["A/val-0.parquet", "B/val-0.parquet"], "val", "B", ["B/val-0.parquet"]),
        (["val-0.parquet"], "val", "B", ["val-0.parquet"]),  # a local copy of the one subset
        (["A/val-0.parquet"], "val", "B", []),
        (["ten (A-J)/test-0.parquet", "vision/test-0.parquet"], "test", "ten (A-J)", ["ten (A-J)/test-0.parquet"]),
        (["default/train/0000.parquet", "default/test/0000.parquet"], "test", None, ["default/test/0000.parquet"]),
        (["B/test/0001.parquet", "B/test/0000.parquet"], "test", "B", ["B/test/0000.parquet", "B/test/0001.parquet"]),
        (["test.json", "images/test.parquet.png"], "test", None, []),
    ],
)  # fmt: skip
def test_the_files_of_a_split_are_found_in_every_layout(names, split, config, found) -> None:
    assert split_files(names, split, config) == found


@pytest.mark.parametrize(
    ("names", "whole"),
    [
        (["test.parquet"], True),
        (["test-00000-of-00002.parquet"], False),
        (["test-00000-of-00002.parquet", "test-00001-of-00002.parquet"], True),
        ([], False),
    ],
)
def test_a_split_is_whole_when_every_shard_it_counts_is_there(names, whole) -> None:
    assert is_whole(names) is whole


def test_half_of_a_local_copy_is_not_taken_for_the_benchmark(tmp_path) -> None:
    info = tasks.find_task("infovqa_val")
    for name in SHARDS:
        assert not data.is_here(info, tmp_path)
        file = tmp_path / "infovqa" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        if name == SHARDS[0]:
            with pytest.raises(MissingDataError, match="A part of the InfoVQA data") as caught:
                data.parquet_files(info, tmp_path)
            assert SHARDS[0] in caught.value.why
    assert data.is_here(info, tmp_path)
    assert data.parquet_files(info, tmp_path) == [tmp_path / "infovqa" / name for name in SHARDS]
