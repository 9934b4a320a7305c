"""Work in processes of this machine: every piece is answered for, and none outlives who waits for it."""

import json
import multiprocessing
import os
import signal
import threading
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
from worker_functions import call, die, die_once, fail_oddly, name_nothing, read_json, sleep, wait_for_a_sleeper

from atrl_bench.engines.devices import Devices, Machine
from atrl_bench.engines.local import DeadWorkerError, Demand, Placement, side_by_side
from atrl_bench.engines.stop import Stopped
from atrl_bench.errors import UnknownNameError

CPU = Machine()
EIGHT = Machine(tuple(map(str, range(8))))  # imaginary GPUs
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


def test_a_worker_dies_with_the_process_that_waits_for_it_when_that_is_killed(tmp_path):
    told = tmp_path / "told"
    parent = multiprocessing.get_context("spawn").Process(target=wait_for_a_sleeper, args=(str(told),))
    parent.start()
    while not told.is_file() or not told.read_text():
        assert parent.is_alive()
        time.sleep(0.1)
    worker = psutil.Process(int(told.read_text()))
    parent.kill()
    assert psutil.wait_procs([worker], timeout=60)[1] == []


def test_asked_to_stop_it_asks_the_workers_begins_nothing_more_and_keeps_what_was_done():
    done, before = [], signal.getsignal(signal.SIGTERM)
    threading.Timer(3, os.kill, (os.getpid(), signal.SIGTERM)).start()
    results = side_by_side(sleep, [(0, NOTHING), (600, NOTHING), (601, NOTHING)], CPU, 1)
    with pytest.raises(Stopped) as stopped:
        done.extend(iter(partial(next, results), None))
    assert done == [(0, None)]
    assert stopped.value.code == 75
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_error_comes_back_as_the_one_it_was_and_says_what_to_do():
    [(_, error)] = side_by_side(name_nothing, [("atlr", NOTHING)], CPU, 1)
    assert isinstance(error, UnknownNameError)
    assert (error.what, error.next_step) == ("Unknown credit rule 'atlr'.", "atrl-bench list rules")
    assert "Did you mean atrl?" in str(error)


def placed(placement: Placement[str]) -> dict[str, str]:
    """Return what fits now, by name, with its GPUs."""
    found = {}
    while (pair := placement.next()) is not None:
        found[pair[0]] = "".join(pair[1].gpus)
    return found


def test_jobs_run_side_by_side_on_gpus_of_their_own_and_the_next_gets_what_is_given_back():
    placement = Placement([(name, Demand(4, 4)) for name in "abc"], EIGHT)
    assert placed(placement) == {"a": "0123", "b": "4567"}
    placement.give_back(Devices(("0", "1", "2", "3")))
    assert placed(placement) == {"c": "0123"}


def test_a_small_job_runs_beside_a_large_one_that_another_would_not_fit_beside():
    placement = Placement([("a", Demand(6, 6)), ("b", Demand(4, 4)), ("c", Demand(2, 2))], EIGHT)
    assert placed(placement) == {"a": "012345", "c": "67"}
    placement.give_back(Devices(("6", "7")))
    assert placed(placement) == {}
    placement.give_back(Devices(tuple("012345")))
    assert placed(placement) == {"b": "0123"}


def test_an_evaluation_takes_whatever_is_free():
    placement = Placement([("trained", Demand(4, 4)), ("base", Demand(1, 8)), ("late", Demand(1, 8))], EIGHT)
    assert placed(placement) == {"trained": "0123", "base": "4567"}
    placement.give_back(Devices(("5",)))
    assert placed(placement) == {"late": "5"}


def test_a_job_that_needs_more_than_there_are_is_never_placed():
    assert placed(Placement([("a", Demand(16, 16))], EIGHT)) == {}


def test_without_gpus_every_job_gets_the_processes_that_were_asked_for():
    placement = Placement([("a", Demand(0, 0)), ("b", Demand(0, 0))], Machine(processes=4))
    assert placement.next() == ("a", Devices(processes=4))
    assert placement.next() == ("b", Devices(processes=4))


def test_a_job_that_needs_no_gpu_leaves_them_to_others():
    placement = Placement([("mini", Demand(0, 0)), ("a", Demand(8, 8))], EIGHT)
    assert placement.next() == ("mini", Devices())
    assert placed(placement) == {"a": "01234567"}
