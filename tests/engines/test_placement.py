"""Eight imaginary GPUs: which job gets which of them, and when."""

from __future__ import annotations

from atrl_bench.engines.devices import Devices, Machine
from atrl_bench.engines.local import Demand, Placement

EIGHT = Machine(tuple(map(str, range(8))))


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
