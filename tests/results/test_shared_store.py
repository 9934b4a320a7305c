"""One process writes a store, whoever has something to write; what was handed over is on the disk."""

import contextlib
import io
import os
import pickle
import signal
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest
from stored import start_writer

from atrl_bench.errors import StoreError
from atrl_bench.results import connection, shared_store
from atrl_bench.results.records import Gold, Problem, Response, Verdict
from atrl_bench.results.shared_store import PLACE, RemoteStore, SharedStore, served
from atrl_bench.results.store import Store
from atrl_bench.results.write_lock import is_held

PROBLEMS = [Problem("a", "a", "1 + 1?", Gold("2")), Problem("b", "b", "ζ \ud800?", Gold("3", ["3", "4"]))]
RESPONSES = [Response("a", 0, "hash", "2", 1, 0.1 + 0.2, False), Response("b", 0, "hash", "lone \ud800", 4, 1.0, True)]
VERDICTS = {
    ("a", 0): Verdict("correct", "2", "rules", "equal"),
    ("b", 0): Verdict("judge failed", None, "judge", "silent"),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.sqlite"


@pytest.fixture
def store(path):
    with SharedStore(path) as store:
        yield store


@pytest.fixture
def near(store):
    """The same store, as another process of this machine has it."""
    with SharedStore(store.path) as near:
        yield near


@pytest.fixture
def far(store, monkeypatch):
    """The same store, as another machine has it."""
    monkeypatch.setenv(PLACE, "node-7")
    with served(store, "127.0.0.1") as address, RemoteStore(store.path, address) as far:
        yield far


def fill(store: Store) -> str:
    key = store.add_cell({"task": "sums", "model_name": "m"})
    store.add_problems(key, PROBLEMS)
    assert store.add_responses(key, RESPONSES) == 2
    assert store.add_responses(key, RESPONSES) == 0, "an answer that is there is never stored twice"
    store.add_verdicts(key, VERDICTS)
    store.finish_cell(key, expected=2)
    return key


@pytest.mark.parametrize("other", ["near", "far"])
def test_what_is_handed_over_is_what_a_store_of_ones_own_would_hold(store, other, tmp_path, request):
    with request.getfixturevalue(other) as there, Store.open(tmp_path / "own.sqlite") as own:
        assert fill(there) == (key := fill(own))
        assert there.samples(key) == store.samples(key) == own.samples(key)
        assert there.responses(key)[("a", 0)].seconds == 0.1 + 0.2, "to the last bit"
        assert there.without_verdict(key) == [("judge", "silent")]
        assert store.cell(key).num_responses == 2


@pytest.mark.parametrize("other", ["near", "far"])
def test_what_the_store_refuses_is_refused_with_its_words_and_the_next_call_is_answered(other, request):
    there = request.getfixturevalue(other)
    with pytest.raises(StoreError, match="has no cell no-such-key") as refused:
        there.fail_cell("no-such-key", "because")
    assert str(refused.value).startswith("The result store")
    with pytest.raises(StoreError, match="Cells come before problems"):
        there.add_problems("no-such-key", PROBLEMS)
    assert fill(there)


def test_a_heartbeat_says_where_the_work_is_and_the_lock_that_there_is_some(store, near, far):
    assert is_held(store.path)
    far.heartbeat("run", "k", 1, 4)
    near.heartbeat("run", "l", 1, 4)
    assert {(beat.key, beat.done, beat.place) for beat in store.progress()} == {("k", 1, "node-7"), ("l", 1, "")}
    near.close()
    store.close()
    assert not is_held(store.path)


def test_when_the_writer_ends_the_next_one_goes_on(path):
    writer, *others = (SharedStore(path) for _ in range(3))
    key = fill(others[0])
    writer.close()
    for number, store in enumerate(others):
        assert store.add_responses(key, [Response("a", 1 + number, "hash", "2", 1, 0.1, False)]) == 1
    for store in others:
        assert len(store.samples(key)) == 4
        store.close()
    assert not is_held(path)


def test_many_threads_of_one_process_hand_over_at_once(store, near):
    key = fill(near)

    def write(repeat: int) -> None:
        near.add_responses(key, [Response("a", repeat, "hash", "2", 1, 0.1, False)])

    threads = [threading.Thread(target=write, args=(1 + number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(sample.problem.problem_id, sample.response.repeat) for sample in store.samples(key)] == [
        *(("a", repeat) for repeat in range(17)),
        ("b", 0),
    ]


def writer(path: Path, number: int, count: int) -> subprocess.Popen[str]:
    process = start_writer(path, number, count)
    assert process.stdout.readline() == "open\n"
    return process


def test_a_writer_that_is_killed_loses_nothing_and_the_others_go_on(path):
    """The first one is the writer, until it is killed in the middle; of the others one takes its place, and is too."""
    processes = [writer(path, number, 10**6) for number in range(2)] + [writer(path, 2, 500)]
    said = []
    for process in processes[:2]:
        said += [[process.stdout.readline() for _ in range(50)]]
        process.send_signal(signal.SIGKILL)
        said[-1] += process.stdout.readlines()
        process.wait()
        process.stdout.close()
    said.append(processes[2].communicate()[0].splitlines())
    assert processes[2].returncode == 0
    with Store.open(path) as store:
        assert store.damaged_pages() == store.miscounted() == []
        [cell] = store.cells()
        stored = {repeat for _, repeat in store.responses(cell.key)}
    batches = {10**6 * number + 4 * int(line) for number, lines in enumerate(said) for line in lines if line.strip()}
    announced = {batch + repeat for batch in batches for repeat in range(4)}
    assert announced <= stored
    assert len(stored - announced) in (0, 4, 8), "what was stored when its process was killed, before it could say so"


def test_a_writer_that_was_stopped_is_said_not_to_answer(path, monkeypatch):
    monkeypatch.setattr(shared_store, "PATIENCE", 0.3)
    process = writer(path, 0, 10**6)
    try:
        with SharedStore(path) as store:
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            with pytest.raises(StoreError, match=r"held its lock(.|\n)*atrl-bench status"):
                store.add_cell({"task": "sums"})
            with pytest.raises(StoreError, match="held its lock"):
                SharedStore(path)
            process.send_signal(signal.SIGCONT)
            assert store.add_cell({"task": "sums"})
    finally:
        process.kill()
        process.communicate()


def test_who_has_another_key_is_refused_and_has_changed_nothing(store, far):
    with pytest.raises(StoreError, match="does not write this run"):
        RemoteStore(store.path, far.address._replace(key="guessed"))
    assert store.cells() == []


def test_a_writer_on_another_machine_that_has_ended_is_said_to_have_and_what_to_do(store, monkeypatch):
    monkeypatch.setattr(shared_store, "PATIENCE", 0.3)
    with served(store, "127.0.0.1") as address:
        orphan = RemoteStore(store.path, address)
    with pytest.raises(StoreError, match="does not answer") as refused:
        orphan.add_cell({"task": "sums"})
    assert "the same command again" in refused.value.next_step


def test_no_statement_of_anybodys_own_reaches_the_store(far):
    with pytest.raises(RuntimeError, match="no call of a store"):
        far._hand_over("_read", "SELECT 1")


def test_an_answer_is_flushed_to_the_disk_before_it_counts_as_stored_and_a_heartbeat_is_not(near, monkeypatch):
    flushed = []
    real = os.fsync
    monkeypatch.setattr(
        connection.os, "fsync", lambda file: (flushed.append(os.readlink(f"/proc/self/fd/{file}")), real(file))
    )
    key = near.add_cell({"task": "geoqa_test"})
    near.add_problems(key, [Problem("p0", "p0", "?", Gold("1"))])
    flushed.clear()
    near.add_responses(key, [Response("p0", 0, "hash", "1", 1, 0.1, False)])
    assert flushed == [f"{near.path}-wal"]
    near.heartbeat("cell", key, 1, 1)
    assert len(flushed) == 1


# Strangers ------------------------------------------------------------------------------------------------------------


def test_who_shows_no_key_is_left_after_some_seconds_and_costs_nothing(store, monkeypatch) -> None:
    monkeypatch.setattr(shared_store, "STRANGER_SECONDS", 0.5)
    monkeypatch.setattr(shared_store, "MAX_STRANGERS", 8)
    before = threading.active_count()
    with served(store, "127.0.0.1") as address:
        strangers = [socket.create_connection((address.host, address.port)) for _ in range(100)]
        for stranger in strangers[::2]:  # the others say nothing
            with contextlib.suppress(OSError):  # those that were sent away at once
                stranger.sendall(struct.pack("!i", -1) + struct.pack("!Q", 1 << 40) + b"x" * 1000)
        assert all(stranger.recv(1) for stranger in strangers[1:8:2]), "silent ones were let in, and asked for the key"
        assert threading.active_count() - before <= 8 + 1
        deadline = time.monotonic() + 20
        while threading.active_count() > before + 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert threading.active_count() <= before + 1
        with RemoteStore(store.path, address) as far:  # who belongs here is let in all the same
            far.add_cell({"task": "sums"})
        for stranger in strangers:
            stranger.close()


class Command:
    """What a pickle may ask its reader to do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_not_even_who_has_the_key_can_send_a_command(store, tmp_path) -> None:
    with served(store, "127.0.0.1") as address:
        writer = shared_store._connected(address)
        writer.send(Command(tmp_path / "made"))
        with pytest.raises((EOFError, OSError)):
            writer.recv_bytes()
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("module", "name"),
    [("os", "system"), ("atrl_bench.errors", "os.system"), ("atrl_bench.errors", "os"), ("builtins", "eval")],
)
def test_nothing_that_can_be_called_travels(module, name) -> None:
    content = b"\x80\x04\x8c%c%b\x8c%c%b\x93." % (len(module), module.encode(), len(name), name.encode())
    with pytest.raises(pickle.UnpicklingError, match="does not travel"):
        shared_store._Records(io.BytesIO(content)).load()


def test_scores_travel_as_arrays(store, far) -> None:
    key = fill(store)
    assert repr(far.scores(key).scores_PR) == repr(store.scores(key).scores_PR)
