"""Benchmarks, training sets and models of the hub in use: read, evaluated, trained on, in a table."""

import json
import shutil

import hub_layouts
import pytest
from local_hub import FIRST, NOBODY, Machine, run

from atrl_bench.mini import BASE as MINI
from atrl_bench.models.local import model_ref

FOUND = """
import json
from atrl_bench.models.local import find_model, model_ref
before, ref = model_ref("someone/tiny-vl").digest, find_model("someone/tiny-vl", download=True)
print(json.dumps([ref.name, before, ref.digest]))
"""


def test_a_model_of_the_hub_is_fetched_once_without_its_other_files(local_hub, tmp_path) -> None:
    others = {"pytorch_model.bin": b"a pickle", "modeling_x.py": b"code", "README.md": b"", "plot.png": b""}
    local_hub.add("model", "someone/tiny-vl", MINI).commits[FIRST].update(others)
    expected = ["someone/tiny-vl", *[model_ref("mini").digest] * 2]
    assert run(FOUND, tmp_path, local_hub.url) == expected
    assert not set(local_hub.sent) & set(others)
    assert run(FOUND, tmp_path, NOBODY, HF_HUB_OFFLINE="1") == expected


MODEL = "someone/tiny-vl"
PROFILE = f"""\
base: smoke
name: hub_smoke
model: {MODEL}
generated_data: false
training: {{num_rollouts: 1, group_size: 4, max_response_tokens: 16}}
evaluation: {{max_new_tokens: 16, num_repeats: 1, max_problems: null}}
"""
ROWS_OF_TABLE = ("--rows", "grpo,grpo_atrl")
ON_HUB = ("mathverse", "mathvision", "mathvista", "wemath", "virl39k", "r1_vl")  # of the main table; GeoQA is made


@pytest.fixture
def machine(published_world, checkout) -> Machine:
    """A machine with an empty cache, whose user has a profile of their own with a model of the hub."""
    published_world.add("model", MODEL, MINI)
    (checkout.folder / "own.yaml").write_text(PROFILE, encoding="utf-8")
    return Machine(checkout.folder, published_world, checkout.root)


def printed(machine: Machine, *arguments: str) -> str:
    """Return what a command under the user's profile prints; it must succeed."""
    done = machine.type(*arguments, "--profile", "own.yaml", OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert arguments[0] != "fetch" or done.stderr == "", "no progress bars where nobody looks"
    return done.stdout


def planned(machine: Machine, *arguments: str) -> tuple[set[str], list[str]]:
    """Return the keys of the trainings, and the states of the cells."""
    plan = json.loads(printed(machine, "plan", "main_7b", *ROWS_OF_TABLE, *arguments, "--json"))
    return {cost["checkpoint"] for cost in plan["trainings"]}, [cell["state"] for cell in plan["cells"]]


@pytest.mark.slow
def test_the_main_table_is_fetched_trained_and_evaluated_with_a_model_and_data_of_the_hub(
    machine, published_world, mini_world
) -> None:
    """Without --data-dir; the same command again does nothing, and the keys are those of any other way to the data."""
    run_table = ("run-table", "main_7b", *ROWS_OF_TABLE, "--yes")
    assert "8 of 8 are here" in printed(machine, "fetch", "main_7b")
    sent = list(published_world.sent)
    machine.endpoint = NOBODY
    keys, states = planned(machine)
    assert (len(keys), states) == (2, ["to do"] * 10)
    assert "GRPO + AT-RL" in printed(machine, *run_table)
    checkpoints = machine.folder / "runs" / "hub_smoke" / "checkpoints"
    assert {path.name for path in checkpoints.iterdir()} == keys
    assert planned(machine) == (keys, ["done"] * 10)
    times = {path: path.stat().st_mtime_ns for path in checkpoints.rglob("*")}
    assert "Everything was in the store" in printed(machine, *run_table)
    assert times == {path: path.stat().st_mtime_ns for path in checkpoints.rglob("*")}
    assert published_world.sent == sent

    shutil.rmtree(machine.home)
    machine.endpoint = published_world.url
    printed(machine, "fetch", "main_7b")  # from the beginning
    machine.endpoint = NOBODY
    assert len(published_world.sent) == 2 * len(sent)
    assert planned(machine) == (keys, ["done"] * 10)

    data = machine.folder / "DATA"
    for folder in ON_HUB:
        hub_layouts.unpack_by_hand(hub_layouts.local_dir(mini_world, folder, data) / folder)
    shutil.copytree(machine.home / "atrl_bench" / "geoqa", data / "geoqa")
    shutil.rmtree(machine.home)
    assert planned(machine, "--data-dir", "DATA") == (keys, ["done"] * 10)
