"""Work in processes of this machine: every piece is answered for, and none outlives who waits for it."""

from __future__ import annotations

import json
import multiprocessing
import time

from worker_functions import die, read_json, sleep

from atrl_bench.engines.devices import Machine
from atrl_bench.engines.local import side_by_side
from atrl_bench.engines.placement import Demand

CPU = Machine()
NOTHING = Demand(0, 0)


def test_each_piece_of_work_is_answered_for_with_its_error():
    errors = dict(side_by_side(read_json, [(text, NOTHING) for text in ("1", "{", "3")], CPU, 2))
    assert [text for text, error in errors.items() if error is None] == ["1", "3"]
    assert isinstance(errors["{"], json.JSONDecodeError)


def test_a_process_that_dies_fails_its_work_and_nobody_waits_for_it():
    [(_, error)] = side_by_side(die, [(1, NOTHING)], CPU, 1)
    assert error is not None


def test_whoever_stops_waiting_kills_what_still_runs_and_no_process_of_anyone_else():
    other = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    other.start()
    others = multiprocessing.active_children()
    results = side_by_side(sleep, [(600, NOTHING), (0, NOTHING)], CPU, 2)
    assert next(results) == (0, None)
    processes = [process for process in multiprocessing.active_children() if process not in others]
    results.close()
    assert len(processes) == 2
    deadline = time.monotonic() + 60
    # Not by joining: the pool's own thread waits for them too, and of two that wait one returns before the end.
    while any(process.is_alive() for process in processes) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(process.is_alive() for process in processes)
    assert other.is_alive()
    other.kill()
