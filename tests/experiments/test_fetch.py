"""`atrl-bench fetch` against a local hub, as its user types it: what is listed, fetched, checked and unpacked."""

import json
import shutil

import pytest
from hub_layouts import packed
from local_hub import FIRST, NOBODY, SECOND, LocalHub, Machine

from atrl_bench.models.bases import base_folder
from atrl_bench.models.local import model_ref

QWEN = "Qwen/Qwen2.5-VL-7B-Instruct"
ROWS = b"PAR1" + bytes(50_000)


class JsonMachine(Machine):
    """A machine whose commands may answer in JSON."""

    def json(self, *arguments: str, **more: str) -> dict:
        done = self.type(*arguments, "--profile", "paper", "--json", **more)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def machine(tmp_path, local_hub) -> JsonMachine:
    return JsonMachine(tmp_path, local_hub)


@pytest.fixture
def grouping(local_hub) -> LocalHub:
    """Everything that the table `grouping` needs: a model, a training set, two benchmarks."""
    local_hub.add("model", QWEN, base_folder("mini")).commits[FIRST]["README.md"] = b"never asked for"
    local_hub.add("dataset", "hiyouga/geometry3k", {"data/train-00000-of-00001.parquet": ROWS, "README.md": b"#"})
    local_hub.add("dataset", "AI4Math/MathVerse", {"testmini.parquet": ROWS, "testmini_text_only.parquet": ROWS})
    local_hub.add("dataset", "AI4Math/MathVista", {"data/testmini-00000-of-00001-725687bf7a18d64b.parquet": ROWS})
    return local_hub


def test_a_table_is_fetched_once_and_what_was_fetched_needs_no_network(machine, grouping) -> None:
    before = machine.json("fetch", "grouping", "--dry-run")
    assert [(item["name"], item["state"]) for item in before["items"]] == [
        (QWEN, "to fetch"),
        ("geometry3k", "to fetch"),
        ("mathverse_testmini", "to fetch"),
        ("mathvista_testmini", "to fetch"),
    ]
    assert before["bytes_to_fetch"] == model_bytes() + 3 * len(ROWS)
    assert grouping.sent == []
    after = machine.json("fetch", "grouping")
    assert {item["state"] for item in after["items"]} == {"here"}
    assert after["bytes_to_fetch"] == 0
    assert after["next"] == "atrl-bench run-table grouping --profile paper"
    assert "README.md" not in grouping.sent
    assert "testmini_text_only.parquet" not in grouping.sent
    sent = list(grouping.sent)
    machine.endpoint = NOBODY
    assert machine.json("fetch", "grouping")["items"] == after["items"]
    assert machine.json("fetch", "grouping", HF_HUB_OFFLINE="1")["items"] == after["items"]
    assert grouping.sent == sent


def model_bytes() -> int:
    return sum((base_folder("mini") / name).stat().st_size for name in model_ref("mini").files)


def test_what_is_fetched_is_shown_before_and_what_is_here_after(machine, grouping) -> None:
    done = machine.type("fetch", "grouping", "--profile", "paper")
    assert done.returncode == 0, done.stderr
    listed, fetched = done.stdout.split("Fetching model", 1)
    assert "grouping under profile paper: 0 of 4 are here" in listed
    assert f"to fetch: hiyouga/geometry3k at {FIRST[:8]}, 1 file" in " ".join(listed.split())
    assert "4 of 4 are here" in fetched
    assert "Next: atrl-bench run-table grouping --profile paper" in fetched
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.slow
def test_a_key_is_the_same_before_and_after_fetch_with_part_of_it_and_from_a_folder(machine, grouping) -> None:
    def keys() -> list[str]:
        return [job["checkpoint"] for job in machine.json("plan", "grouping")["trainings"]]

    before = keys()
    assert before
    assert not any(key.startswith("unknown") for key in before)
    assert "model.safetensors" not in grouping.sent
    machine.json("fetch", "grouping")
    assert keys() == before
    weights = next((machine.folder / "home").rglob("snapshots/*/model.safetensors"))
    weights.unlink()  # as after a killed download
    assert keys() == before
    machine.endpoint = NOBODY
    assert keys() == before
    shutil.rmtree(machine.folder / "home")  # the run folder alone, on another machine
    assert keys() == before
    folder = machine.folder / "DATA" / "geometry3k"
    folder.mkdir(parents=True)
    (folder / "train-00000-of-00001.parquet").write_bytes(ROWS)
    data = [job["checkpoint"] for job in machine.json("plan", "grouping", "--data-dir", "DATA")["trainings"]]
    assert data == before


@pytest.mark.slow
def test_without_network_a_plan_says_which_keys_are_not_known_and_what_to_type(machine) -> None:
    machine.endpoint = NOBODY
    done = machine.type("plan", "grouping", "--profile", "paper")
    assert done.returncode == 0, done.stderr
    assert "trainings are not known until this is fetched" in done.stdout
    assert "Next: atrl-bench fetch grouping --profile paper" in done.stdout
    keys = [cost["checkpoint"] for cost in machine.json("plan", "grouping")["trainings"]]
    assert len(set(keys)) == len(keys)
    assert all(key.startswith("unknown-") for key in keys)
    assert {each["gb"] for each in machine.json("plan", "grouping")["downloads"]} == {None}


def test_a_plan_prices_downloads_by_the_listings_that_are_kept_and_asks_no_hub(machine, grouping) -> None:
    grouping.repositories["dataset", "AI4Math/MathVerse"].gated = True
    machine.json("fetch", "geometry3k")
    machine.json("fetch", "grouping", "--dry-run")
    machine.endpoint = NOBODY
    cost = machine.json("plan", "grouping")
    assert {each["name"]: each["gb"] for each in cost["downloads"]} == {
        QWEN: model_bytes() / 1e9,
        "mathverse_testmini": len(ROWS) / 1e9,
        "mathvista_testmini": len(ROWS) / 1e9,
    }
    assert cost["left"]["conditions_to_accept"] == [f"{NOBODY}/datasets/AI4Math/MathVerse"]


def test_the_commit_of_the_first_fetch_stays_until_update(machine, grouping) -> None:
    def commit() -> str:
        return machine.json("fetch", "geometry3k", "--dry-run")["items"][0]["origins"][0]["commit"]

    machine.json("fetch", "geometry3k")
    newer = {"data/train-00000-of-00001.parquet": ROWS + b"more"}
    grouping.repositories["dataset", "hiyouga/geometry3k"].move(newer)
    assert commit() == FIRST
    updated = machine.json("fetch", "geometry3k", "--update")
    assert updated["items"][0]["origins"][0]["commit"] == SECOND
    assert commit() == SECOND


def test_archives_are_unpacked_and_their_bytes_counted(machine, local_hub) -> None:
    images = packed({f"images/{number}.png": bytes(3_000) for number in range(10)})
    virl = {"39Krelease.parquet": ROWS, "images.zip": images, "39K.json": b"never asked for"}
    local_hub.add("dataset", "TIGER-Lab/ViRL39K", virl)
    listed = machine.json("fetch", "virl39k", "--dry-run")
    assert listed["bytes_to_fetch"] == len(ROWS) + len(images)
    assert listed["bytes_unpacked"] == len(images)
    fetched = machine.json("fetch", "virl39k")
    assert fetched["items"][0]["state"] == "here"
    assert len(list((machine.folder / "home").rglob("images/*.png"))) == 10
    assert machine.json("fetch", "virl39k") == fetched
    assert local_hub.sent.count("images.zip") == 1


def test_a_gated_set_is_named_with_its_page_and_the_rest_is_fetched(machine, grouping) -> None:
    grouping.repositories["dataset", "AI4Math/MathVerse"].gated = True
    done = machine.type("fetch", "grouping", "--profile", "paper")
    assert done.returncode == 1
    text = " ".join(done.stdout.split())
    assert "3 of 4 are here" in text
    assert "mathverse_testmini: Its owner asks for an agreement first." in text
    assert f"agree on {grouping.url}/datasets/AI4Math/MathVerse, then" in text
    assert "testmini.parquet" not in grouping.sent


def test_a_set_in_the_data_folder_is_not_fetched(machine, grouping) -> None:
    folder = machine.folder / "DATA" / "geometry3k"
    folder.mkdir(parents=True)
    (folder / "train-00000-of-00001.parquet").write_bytes(ROWS)
    items = machine.json("fetch", "grouping", "--data-dir", "DATA")["items"]
    assert {item["name"]: item["folder"] for item in items if item["folder"]} == {"geometry3k": "DATA/geometry3k"}
    assert "data/train-00000-of-00001.parquet" not in grouping.sent


def test_a_hub_that_does_not_answer_is_said_within_seconds_and_nothing_is_lost(machine, grouping) -> None:
    machine.json("fetch", "geometry3k")
    machine.endpoint = NOBODY
    done = machine.type("fetch", "grouping", "--profile", "paper")
    assert done.returncode == 1
    text = " ".join(done.stdout.split())
    assert "1 of 4 are here" in text
    assert f"{QWEN}, mathverse_testmini, mathvista_testmini: ConnectError" in text
    assert "connect this machine and run the same command again" in text
