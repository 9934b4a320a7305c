"""Benchmarks, training sets and models of the hub in use: read, evaluated, trained on, in a table."""

from __future__ import annotations

import io
import json
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


PROFILE = "hub_smoke"


@pytest.mark.slow
def test_a_table_is_fetched_trained_and_evaluated_with_a_model_and_data_of_the_hub(
    local_hub, mini_world, checkout
) -> None:
    """Without --data-dir, and with the same keys once the cache is gone or there is no network."""
    smoke = checkout.read("recipes/profiles/smoke.yaml")
    own = smoke.replace("name: smoke", f"name: {PROFILE}").replace("model: mini", "model: someone/tiny-vl")
    checkout.write(f"recipes/profiles/{PROFILE}.yaml", own.replace("generated_data: true", "generated_data: false"))
    local_hub.add("model", "someone/tiny-vl", MINI)
    for folder in ("geometry3k", "mathverse", "mathvista"):
        for hub_id in hub_layouts.REPOSITORIES_OF[folder]:
            local_hub.add("dataset", hub_id, hub_layouts.repositories(mini_world)[hub_id])

    def type(*arguments: str, endpoint: str = local_hub.url) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "atrl_bench", *arguments, "--profile", PROFILE, "--json"],
            cwd=checkout.folder,
            env=environment(checkout.folder / "home", endpoint, PYTHONPATH=str(checkout.root), OMP_NUM_THREADS="1"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
        return done.stdout

    def keys(endpoint: str) -> list[str]:
        return [job["run"] for job in json.loads(type("plan", "grouping", endpoint=endpoint))["jobs"] if job["run"]]

    rows = ("--rows", "zero_shot,grpo", "--columns", "mathvista_testmini", "--seeds", "0")
    before = keys(local_hub.url)
    type("fetch", "grouping")
    assert keys(NOBODY) == before
    sent = len(local_hub.sent)
    type("run-table", "grouping", *rows, "--jobs", "1", "--yes", endpoint=NOBODY)
    assert len(local_hub.sent) == sent
    run_folder = checkout.folder / "runs" / PROFILE
    assert {path.name for path in (run_folder / "checkpoints").iterdir()} <= set(before)
    states = [cell["state"] for cell in json.loads(type("plan", "grouping", *rows, endpoint=NOBODY))["cells"]]
    assert states == ["done", "done"]
    shutil.rmtree(checkout.folder / "home")
    assert keys(NOBODY) == before  # the run folder has them, on whatever machine it is
