"""Processes that write to one store are let in by turns, and what they have stored is on the disk."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

from atrl_bench.results import connection
from atrl_bench.results.records import Gold, Problem, Response
from atrl_bench.results.store import Store
from atrl_bench.results.turns import NEXT, SUFFIX, turn

WAITS = """
import sys
from pathlib import Path
from atrl_bench.results.turns import turn
store = Path(sys.argv[1])
with turn(store, 60.0), store.with_name("order").open("a") as order:
    order.write("waited ")
"""


def wait_until_held(store: Path, byte: int) -> None:
    """Return once another process holds this byte of the file of turns."""
    with store.with_name(store.name + SUFFIX).open("r+b") as file:
        for _ in range(3000):
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
            except OSError:
                return
            fcntl.lockf(file, fcntl.LOCK_UN, 1, byte)
            time.sleep(0.02)
    raise AssertionError("nobody waits")


def test_who_waits_writes_before_one_who_has_just_written(tmp_path) -> None:
    """This process writes, and again at once. Without turns it would always be the first to ask."""
    store = tmp_path / "store.sqlite"
    holder = subprocess.Popen(
        [sys.executable, "-c", WAITS.replace('("waited ")', '("first "); order.flush(); input()'), str(store)],
        stdin=subprocess.PIPE,
    )
    order = tmp_path / "order"
    while not order.exists() or not order.read_text():
        time.sleep(0.02)
    waiting = subprocess.Popen([sys.executable, "-c", WAITS, str(store)])
    wait_until_held(store, NEXT)
    assert holder.stdin is not None
    holder.stdin.write(b"\n")
    holder.stdin.close()
    with turn(store, 60.0), order.open("a") as file:
        file.write("came last")
    assert (holder.wait(), waiting.wait()) == (0, 0)
    assert order.read_text() == "first waited came last"


def test_a_turn_that_nobody_gives_up_is_waited_for_no_longer_than_said(tmp_path) -> None:
    store = tmp_path / "store.sqlite"
    words = [sys.executable, "-c", WAITS.replace('("waited ")', '("first "); order.flush(); input()'), str(store)]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as holder:
        while not (tmp_path / "order").exists():
            time.sleep(0.02)
        started = time.monotonic()
        with turn(store, 0.1):  # SQLite's own lock decides then
            assert 0.1 <= time.monotonic() - started < 5.0
        holder.communicate(b"\n")


def test_an_answer_is_flushed_to_the_disk_before_it_counts_as_stored_and_a_heartbeat_is_not(tmp_path, monkeypatch):
    flushed = []
    real = os.fsync
    monkeypatch.setattr(
        connection.os, "fsync", lambda file: (flushed.append(os.readlink(f"/proc/self/fd/{file}")), real(file))
    )
    with Store.open(tmp_path / "store.sqlite") as store:
        key = store.add_cell({"task": "geoqa_test"})
        store.add_problems(key, [Problem("p0", "p0", "?", Gold("1"))])
        flushed.clear()
        store.add_responses(key, [Response("p0", 0, "hash", "1", 1, 0.1, False)])
        assert flushed == [str(tmp_path / "store.sqlite-wal")]
        store.heartbeat("cell", key, 1, 1)
        assert len(flushed) == 1
