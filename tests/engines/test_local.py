"""Work in processes of this machine: every piece is answered for, and none outlives who waits for it."""

from __future__ import annotations

import json
import multiprocessing
import time
from functools import partial
from pathlib import Path

from worker_functions import call, die, die_once, fail_oddly, name_nothing, read_json, sleep

from atrl_bench.engines.devices import Machine
from atrl_bench.engines.local import DeadWorkerError, Demand, side_by_side
from atrl_bench.errors import UnknownNameError

CPU = Machine()
NOTHING = Demand(0, 0)


def test_each_piece_of_work_is_answered_for_with_its_error():
    errors = dict(side_by_side(read_json, [(text, NOTHING) for text in ("1", "{", "3")], CPU, 2))
    assert {text for text, error in errors.items() if error is None} == {"1", "3"}
    assert isinstance(errors["{"], json.JSONDecodeError)


def test_an_error_of_any_kind_is_told():
    [(_, error)] = side_by_side(fail_oddly, [("no such thing", NOTHING)], CPU, 1)
    assert str(error) == "OddError: no such thing"


def test_work_whose_process_dies_is_begun_three_times_and_its_neighbours_go_on(tmp_path):
    log, again = str(tmp_path / "log"), str(tmp_path / "again")
    work = [(partial(die, log), "dies"), (partial(die_once, again), "dies once"), (partial(sleep, 1), "sleeps")]
    errors = dict(side_by_side(call, [(item, NOTHING) for item in work], CPU, 2))
    by_name = {name: error for (_, name), error in errors.items()}
    assert {name for name, error in by_name.items() if error is None} == {"dies once", "sleeps"}
    assert isinstance(by_name["dies"], DeadWorkerError)
    assert by_name["dies"].what == "Its process was killed by signal 9 (SIGKILL: is memory short?), 3 times."
    assert Path(log).read_text() == "begun\n" * 3


def test_a_process_that_died_while_it_had_nothing_to_do_is_replaced():
    others = multiprocessing.active_children()
    results = side_by_side(sleep, [(seconds, NOTHING) for seconds in (0, 0.1)], CPU, 1)
    assert next(results) == (0, None)
    [worker] = (process for process in multiprocessing.active_children() if process not in others)
    worker.kill()
    worker.join()
    assert list(results) == [(0.1, None)]


def test_whoever_stops_waiting_kills_what_still_runs_and_no_process_of_anyone_else():
    other = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    other.start()
    others = multiprocessing.active_children()
    results = side_by_side(sleep, [(600, NOTHING), (0, NOTHING)], CPU, 2)
    assert next(results) == (0, None)
    processes = [process for process in multiprocessing.active_children() if process not in others]
    results.close()
    assert len(processes) == 2
    assert not any(process.is_alive() for process in processes)
    assert other.is_alive()
    other.kill()


def test_an_error_comes_back_as_the_one_it_was_and_says_what_to_do():
    [(_, error)] = side_by_side(name_nothing, [("atlr", NOTHING)], CPU, 1)
    assert isinstance(error, UnknownNameError)
    assert (error.what, error.next_step) == ("Unknown credit rule 'atlr'.", "atrl-bench list rules")
    assert "Did you mean atrl?" in str(error)
