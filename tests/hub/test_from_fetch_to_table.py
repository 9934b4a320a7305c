"""Benchmarks, training sets and models of the hub in use: read, evaluated, trained on, in a table."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import subprocess
import sys

import hub_layouts
import pyarrow.parquet as pq
import pytest
from local_hub import FIRST, NOBODY, LocalHub, environment, run

from atrl_bench.errors import MissingDataError
from atrl_bench.evaluation import source, tasks
from atrl_bench.models.local import MINI, model_ref

DOCVQA = "lmms-lab-encoder/DocVQA"  # of InfoVQA, in the subset InfographicVQA
SHARDS = [f"InfographicVQA/validation-0000{number}-of-00002.parquet" for number in (0, 1)]


@pytest.fixture(scope="module")
def docvqa(mini_world) -> dict[str, bytes]:
    """The rows of InfoVQA's twin in two files, as the hub keeps them, beside files that nobody asked for."""
    table = pq.read_table(mini_world / "infovqa" / "InfographicVQA")
    half = len(table) // 2
    parts = {
        SHARDS[0]: table.slice(0, half),
        SHARDS[1]: table.slice(half),
        "DocVQA/validation-00000-of-00001.parquet": table,
    }
    files = {"README.md": b"# DocVQA", "InfographicVQA/test-00000-of-00001.parquet": b"never asked for"}
    for name, part in parts.items():
        buffer = io.BytesIO()
        pq.write_table(part, buffer)
        files[name] = buffer.getvalue()
    return files


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


def test_only_the_split_is_fetched_and_then_needs_no_network(local_hub: LocalHub, docvqa, tmp_path) -> None:
    local_hub.add("dataset", DOCVQA, docvqa)
    before, digest, *others = run(ROWS, tmp_path, local_hub.url)
    assert (before, others) == (False, [True, True, True])
    assert sorted(local_hub.sent) == SHARDS
    assert run(ROWS, tmp_path, NOBODY, HF_HUB_OFFLINE="1") == [True, digest, True, True, True]
    assert run(ROWS, tmp_path, NOBODY) == [True, digest, True, True, True]  # what is here is not asked for


def test_a_task_file_pins_a_revision_under_dataset_kwargs() -> None:
    path = tasks.find_task("infovqa_val").yaml_path
    config = tasks._read(path)
    assert tasks._task(path, config).revision is None
    pinned = tasks._task(path, {**config, "dataset_kwargs": {"revision": "v1"}})
    assert pinned.revision == "v1"
    assert pinned.version != tasks.find_task("infovqa_val").version


def test_half_of_a_local_copy_is_not_taken_for_the_benchmark(tmp_path) -> None:
    info = tasks.find_task("infovqa_val")
    for name in SHARDS:
        assert not source.is_here(info, tmp_path)
        file = tmp_path / "infovqa" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        if name == SHARDS[0]:
            with pytest.raises(MissingDataError, match="A part of the InfoVQA data") as caught:
                source.parquet_files(info, tmp_path)
            assert SHARDS[0] in caught.value.why
    assert source.is_here(info, tmp_path)
    assert source.parquet_files(info, tmp_path) == [tmp_path / "infovqa" / name for name in SHARDS]


FOUND = """
import json
from atrl_bench.models.local import find_model
ref = find_model("someone/tiny-vl", download=True)
print(json.dumps([ref.name, ref.digest]))
"""


def test_a_model_of_the_hub_is_fetched_once_without_its_other_files(local_hub, tmp_path) -> None:
    others = {"pytorch_model.bin": b"a pickle", "modeling_x.py": b"code", "README.md": b"", "plot.png": b""}
    local_hub.add("model", "someone/tiny-vl", MINI).commits[FIRST].update(others)
    expected = ["someone/tiny-vl", model_ref("mini").digest]
    assert run(FOUND, tmp_path, local_hub.url) == expected
    assert not set(local_hub.sent) & set(others)
    assert run(FOUND, tmp_path, NOBODY, HF_HUB_OFFLINE="1") == expected


MODEL = "someone/tiny-vl"
PROFILE = "hub_smoke"
SMALLER = {
    "name: smoke": f"name: {PROFILE}",
    "model: mini": f"model: {MODEL}",
    "generated_data: true": "generated_data: false",
    "num_rollouts: 2\n  num_epochs": "num_rollouts: 1\n  num_epochs",
    "group_size: 8": "group_size: 4",
    "max_response_tokens: 48": "max_response_tokens: 16",
    "max_new_tokens: 48": "max_new_tokens: 16",
    "num_repeats: 2": "num_repeats: 1",
    "max_problems: 24": "max_problems: null",
}
OF_MAIN_7B = ("geoqa", "mathverse", "mathvision", "mathvista", "wemath", "virl39k", "r1_vl")


class User:
    """Somebody with an empty cache and a profile of their own, who types commands in a folder."""

    def __init__(self, checkout, hub: LocalHub) -> None:
        self.checkout, self.hub, self.home = checkout, hub, checkout.folder / "home"
        profile = checkout.read("recipes/profiles/smoke.yaml")
        for theirs, ours in SMALLER.items():
            assert profile.count(theirs) == 1, theirs
            profile = profile.replace(theirs, ours)
        (checkout.folder / "own.yaml").write_text(profile, encoding="utf-8")

    def type(self, *arguments: str, endpoint: str | None = None) -> str:
        """Return what a command prints; it must succeed."""
        done = subprocess.run(
            [sys.executable, "-m", "atrl_bench", *arguments, "--profile", "own.yaml"],
            cwd=self.checkout.folder,
            env=environment(
                self.home, endpoint or self.hub.url, PYTHONPATH=str(self.checkout.root), OMP_NUM_THREADS="1"
            ),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
        return done.stdout

    def plan(self, *arguments: str, endpoint: str = NOBODY) -> tuple[dict[tuple[str, int], str], list[str]]:
        """Return the keys of the trainings by row and seed, and the states of the cells."""
        plan = json.loads(self.type("plan", "main_7b", *ROWS_OF_TABLE, *arguments, "--json", endpoint=endpoint))
        keys = {(job["row"], job["seed"]): job["run"] for job in plan["jobs"] if job["run"]}
        return keys, [cell["state"] for cell in plan["cells"]]


ROWS_OF_TABLE = ("--rows", "grpo,grpo_atrl")


@pytest.fixture
def user(local_hub, mini_world, checkout) -> User:
    """A user, and a hub with the main table's model and data as they are published, GeoQA in its two sources."""
    local_hub.add("model", MODEL, MINI)
    for folder in OF_MAIN_7B[1:]:
        for hub_id in hub_layouts.REPOSITORIES_OF[folder]:
            local_hub.add("dataset", hub_id, hub_layouts.repositories(mini_world)[hub_id])
    questions, geo170k = hub_layouts.geoqa_sources(mini_world)
    local_hub.add("dataset", "Luckyjhg/Geo170K", geo170k)
    local_hub.add("dataset", "of/R1-V", {"geoqa_test_prompts.jsonl": questions})
    published = checkout.read("tasks/_published.yaml")
    address, sha256 = re.search(r"url: (\S+geoqa_test_prompts.jsonl)\s+sha256: (\w+)", published).groups()
    here = f"{local_hub.url}/datasets/of/R1-V/resolve/main/geoqa_test_prompts.jsonl"
    published = published.replace(address, here).replace(sha256, hashlib.sha256(questions).hexdigest())
    checkout.write("tasks/_published.yaml", published)
    return User(checkout, local_hub)


@pytest.mark.slow
def test_the_main_table_is_fetched_trained_and_evaluated_with_a_model_and_data_of_the_hub(user, mini_world) -> None:
    """Without --data-dir; the same command again does nothing, and the keys are those of any other way to the data."""
    assert "8 of 8 are here" in user.type("fetch", "main_7b")
    sent = list(user.hub.sent)
    keys, states = user.plan()
    assert (len(keys), states) == (2, ["to do"] * 10)
    ran = user.type("run-table", "main_7b", *ROWS_OF_TABLE, "--yes", endpoint=NOBODY)
    assert "GRPO + AT-RL" in ran
    runs = user.checkout.folder / "runs" / PROFILE
    assert {path.name for path in (runs / "checkpoints").iterdir()} == set(keys.values())
    assert user.plan() == (keys, ["done"] * 10)
    files = {path: path.stat().st_mtime_ns for path in runs.glob("checkpoints/**/*")}
    assert "Everything was in the store" in user.type("run-table", "main_7b", *ROWS_OF_TABLE, "--yes", endpoint=NOBODY)
    assert files == {path: path.stat().st_mtime_ns for path in runs.glob("checkpoints/**/*")}
    assert user.hub.sent == sent

    shutil.move(user.home, user.checkout.folder / "first_home")
    user.type("fetch", "main_7b")  # from the beginning
    assert len(user.hub.sent) == 2 * len(sent)
    assert user.plan() == (keys, ["done"] * 10)
    data = user.checkout.folder / "DATA"
    for folder in OF_MAIN_7B[1:]:
        hub_layouts.unpack_by_hand(hub_layouts.local_dir(mini_world, folder, data) / folder)
    shutil.copytree(user.home / "atrl_bench" / "geoqa", data / "geoqa")
    shutil.rmtree(user.home)
    assert user.plan("--data-dir", "DATA") == (keys, ["done"] * 10)
