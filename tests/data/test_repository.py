"""Listings, pins and downloads against a local hub: what is asked, what is fetched, what is said when it fails."""

import signal
import socket
import subprocess
import sys
import time

import pytest
from local_hub import FIRST, NOBODY, SECOND, LocalHub, environment, run

from atrl_bench.data.repository import Repository
from atrl_bench.digests import file_digest

FILES = {"README.md": b"# rows", "data/test.parquet": bytes(range(256)) * 400, "config.json": b"{}"}

PROGRAM = """
import json, sys
from pathlib import Path
from atrl_bench.digests import file_digest
from atrl_bench.errors import MissingDataError
from atrl_bench.data.repository import Repository, digest, download, listing, may_read
rows = Repository("dataset", "someone/rows")
def show(value):
    print(json.dumps(value))
def outcome(call):
    try:
        call()
    except MissingDataError as error:
        return [error.what, error.why, error.next_step]
"""
NAMES = sorted(FILES)
DIGEST = PROGRAM + f"show(digest(listing(rows), {NAMES}))"
FETCH = PROGRAM + f"folder = download(listing(rows), {NAMES}); show(file_digest([folder / n for n in {NAMES}]))"


@pytest.fixture
def rows(local_hub: LocalHub):
    return local_hub.add("dataset", "someone/rows", FILES)


@pytest.fixture
def expected(tmp_path) -> str:
    """The digest of the same files in a folder of this machine."""
    for name, content in FILES.items():
        (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "copy" / name).write_bytes(content)
    return file_digest([tmp_path / "copy" / name for name in NAMES])


def test_a_listing_is_one_request_and_knows_commit_sizes_and_hashes_of_large_files(local_hub, rows, tmp_path) -> None:
    show = "a = listing(rows); show([a.commit, [[f.name, f.size, bool(f.sha256)] for f in a.files]])"
    commit, files = run(PROGRAM + show, tmp_path, local_hub.url)
    assert commit == FIRST
    assert sorted(files) == [["README.md", 6, False], ["config.json", 2, False], ["data/test.parquet", 102_400, True]]
    assert local_hub.requests == ["GET /api/datasets/someone/rows?blobs=true"]


def test_a_digest_is_the_same_before_and_after_the_download_and_in_a_folder(
    local_hub, rows, expected, tmp_path
) -> None:
    assert run(DIGEST, tmp_path, local_hub.url) == expected
    assert "data/test.parquet" not in local_hub.sent
    assert run(FETCH, tmp_path, local_hub.url) == expected
    assert run(DIGEST, tmp_path, local_hub.url) == expected
    assert local_hub.sent.count("data/test.parquet") == 1


def test_the_run_folder_knows_the_digest_where_nothing_was_fetched_and_there_is_no_network(
    local_hub, rows, expected, tmp_path
) -> None:
    listings = {"ATRL_BENCH_LISTINGS": str(tmp_path / "run")}
    assert run(DIGEST, tmp_path / "here", local_hub.url, **listings) == expected
    assert run(DIGEST, tmp_path / "elsewhere", NOBODY, **listings) == expected


def test_the_first_commit_stays_until_an_update_is_asked_for(local_hub, rows, tmp_path) -> None:
    commit = PROGRAM + "show(listing(rows).commit)"
    one, other = ({"ATRL_BENCH_LISTINGS": str(tmp_path / name)} for name in ("one", "other"))
    assert run(commit, tmp_path, local_hub.url, **one) == FIRST
    rows.move({"config.json": b"{1}"})
    assert run(commit, tmp_path, local_hub.url, **one) == FIRST
    update = PROGRAM + "show(listing(rows, update=True).commit)"
    assert run(update, tmp_path, local_hub.url, **other) == SECOND
    assert run(commit, tmp_path, local_hub.url, **other) == SECOND
    assert run(commit, tmp_path, local_hub.url) == SECOND
    assert run(commit, tmp_path, local_hub.url, **one) == FIRST  # the numbers in that folder came from it


def test_a_revision_that_is_named_is_the_one_that_is_used(local_hub, rows, tmp_path) -> None:
    rows.move({"config.json": b"{1}"})
    rows.branches["v1"] = FIRST
    commit = f"show([listing(rows._replace(revision=name)).commit for name in ('v1', None, '{FIRST}')])"
    assert run(PROGRAM + commit, tmp_path, local_hub.url) == [FIRST, SECOND, FIRST]


def test_hf_download_is_all_that_a_machine_without_network_needs(local_hub, rows, expected, tmp_path) -> None:
    download = """
import subprocess, sys
from pathlib import Path
command = [str(Path(sys.executable).parent / "hf"), "download", "--repo-type", "dataset", "someone/rows"]
print(subprocess.run(command, stdout=subprocess.DEVNULL).returncode)
"""
    assert run(download, tmp_path, local_hub.url) == 0
    assert run(DIGEST, tmp_path, NOBODY, HF_HUB_OFFLINE="1") == expected


def test_a_download_goes_on_after_the_connection_broke(local_hub, rows, expected, tmp_path) -> None:
    rows.cut["data/test.parquet"] = 50_000
    assert run(FETCH, tmp_path, local_hub.url) == expected
    assert local_hub.sent.count("data/test.parquet") == 2


KILLED = """
import os, signal, sys
left = [int(os.environ["KILLED_AT"])]
def count(event, arguments):  # what it does to files of the hub's cache
    touches = event in ("open", "os.rename", "os.link", "os.symlink", "os.mkdir", "os.remove")
    if touches and str(arguments[0]).startswith(os.environ["HF_HOME"]):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(count)
"""


def test_a_fetch_that_is_killed_anywhere_goes_on_to_the_same_bytes(local_hub, rows, expected, tmp_path) -> None:
    codes = []
    for at in (3, 9, 15, 21, 27, 60):
        program = [sys.executable, "-c", KILLED + FETCH]
        env = environment(tmp_path, local_hub.url, KILLED_AT=str(at))
        done = subprocess.run(program, env=env, check=False, capture_output=True, text=True)
        codes.append(done.returncode)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
    assert codes.count(-signal.SIGKILL) >= 3
    assert run(FETCH, tmp_path, local_hub.url) == expected


def test_files_that_arrive_with_other_bytes_are_named_and_fetched_by_the_same_command(
    local_hub, rows, expected, tmp_path
) -> None:
    rows.altered["data/test.parquet"] = b"x" * 102_400
    said = run(PROGRAM + f"show(outcome(lambda: download(listing(rows), {NAMES})))", tmp_path, local_hub.url)
    assert said[0] == "data/test.parquet of someone/rows arrived with other bytes than the hub announces."
    assert "same command again" in said[2]
    rows.altered.clear()
    assert run(FETCH, tmp_path, local_hub.url) == expected


@pytest.mark.parametrize("damage", [lambda old: old[:-1], lambda old: b"y" + old[1:]], ids=["cut off", "altered"])
def test_a_file_that_was_damaged_on_disk_is_fetched_anew(local_hub, rows, expected, tmp_path, damage) -> None:
    run(FETCH, tmp_path, local_hub.url)
    file = next(tmp_path.rglob("snapshots/*/data/test.parquet")).resolve()
    file.write_bytes(damage(file.read_bytes()))
    assert run(FETCH, tmp_path, local_hub.url) == expected
    assert local_hub.sent.count("data/test.parquet") == 2


def test_a_gated_repository_names_the_page_on_which_to_agree(local_hub, rows, tmp_path) -> None:
    rows.gated = True
    ask = "a = listing(rows); show([a.gated, may_read(rows), outcome(lambda: download(a, a.names))])"
    gated, readable, said = run(PROGRAM + ask, tmp_path, local_hub.url)
    assert (gated, readable) == (True, False)
    assert said[1] == "Its owner asks for an agreement first."
    assert f"agree on {local_hub.url}/datasets/someone/rows, then hf auth login" in said[2]


def test_every_other_refusal_says_what_to_do_next(local_hub, rows, tmp_path) -> None:
    asks = {
        "missing": "listing(Repository('model', 'no/such'))",
        "revision": "listing(rows._replace(revision='v7'))",
        "file": "download(listing(rows), ['nothing.zip'])",
    }
    said = run(
        PROGRAM + "show({" + ",".join(f"{name!r}: outcome(lambda: {ask})" for name, ask in asks.items()) + "})",
        tmp_path,
        local_hub.url,
    )
    assert "knows no such name" in said["missing"][1]
    assert "give a checkpoint folder" in said["missing"][2]
    assert "no such revision" in said["revision"][1]
    assert f"{local_hub.url}/datasets/someone/rows/commits" in said["revision"][2]
    assert said["file"][0] == f"someone/rows at {FIRST[:12]} has no file nothing.zip."


def test_without_network_and_cache_the_answer_comes_within_seconds(tmp_path) -> None:
    ask = PROGRAM + "show(outcome(lambda: download(listing(rows), ['config.json'])))"
    started = time.monotonic()
    what, why, next_step = run(ask, tmp_path, NOBODY)
    assert time.monotonic() - started < 20  # most of it is the start of Python
    assert "someone/rows is not on this machine" in what
    assert "ConnectError" in why
    assert "same command again" in next_step
    assert run(ask, tmp_path, NOBODY, HF_HUB_OFFLINE="1")[1] == "HF_HUB_OFFLINE is set."


def test_a_hub_that_is_silent_is_asked_once_not_for_every_repository(tmp_path) -> None:

    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never answers
        program = PROGRAM.replace("import json, sys", "import json, sys, atrl_bench.data.repository as module")
        program += "module.SECONDS_TO_ANSWER = 1\n"
        program += "show([outcome(lambda: listing(Repository('model', f'a/{n}')))[1] for n in range(30)])"
        started = time.monotonic()
        answers = run(program, tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert time.monotonic() - started < 20
        assert len(set(answers)) == 1


def test_the_commit_of_the_cache_is_taken_where_another_program_fetched_it(local_hub, rows, tmp_path) -> None:
    other = (
        "from huggingface_hub import hf_hub_download as get; get('someone/rows', 'config.json', repo_type='dataset')"
    )
    run(f"{other}\nprint(0)", tmp_path, local_hub.url)
    rows.move({"config.json": b"{1}"})
    assert run(PROGRAM + "show(listing(rows).commit)", tmp_path, local_hub.url) == FIRST


@pytest.mark.parametrize(("kind", "hub_id"), [("dataset", "TIGER-Lab/ViRL39K"), ("model", "gpt2")])
def test_a_repository_lies_where_the_hub_client_keeps_it(kind, hub_id):
    from huggingface_hub.file_download import repo_folder_name

    assert Repository(kind, hub_id).folder.name == repo_folder_name(repo_id=hub_id, repo_type=kind)
