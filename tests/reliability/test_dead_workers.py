"""A worker that the kernel or a user kills costs nobody a verdict: what it did is done again by another."""

import multiprocessing
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from pebble import ProcessFuture, ProcessPool
from pebble.pool.process import WORKERS_NAME
from programs import ended
from worker_functions import decode_at_last, die_until, sleep_once

from atrl_bench.grading.grade import GradingPool
from atrl_bench.mini.videos import encode
from atrl_bench.models import video
from atrl_bench.resources import usable_cores
from atrl_bench.results.records import Gold
from atrl_bench.sandbox.pool import Failure, WorkerPool

ANSWER = (r"\boxed{x+1}", Gold("1+x"))


def workers() -> list[multiprocessing.process.BaseProcess]:
    return [child for child in multiprocessing.active_children() if child.name == WORKERS_NAME]


@pytest.mark.parametrize("is_noticed", [True, False], ids=["noticed", "unnoticed"])
def test_a_grader_that_is_killed_between_two_answers_is_replaced(is_noticed) -> None:
    others = workers()
    with GradingPool() as pool:
        assert pool.grade_many([ANSWER])[0].state == "correct"
        [worker] = (worker for worker in workers() if worker not in others)
        os.kill(worker.pid, signal.SIGKILL)
        while is_noticed and pool._workers.active:
            worker.join(0.05)
        assert pool.grade_many([ANSWER])[0].state == "correct"


def test_a_call_that_the_pool_forgets_while_its_last_worker_dies_is_made_again(monkeypatch) -> None:
    class Forgotten(ProcessFuture):
        def result(self, timeout=None):
            pytest.fail("it would be waited for without end")

    def schedule(pool, *_, **options):
        monkeypatch.undo()
        pool.stop()
        return Forgotten()

    monkeypatch.setattr(ProcessPool, "schedule", schedule)
    with WorkerPool() as pool:
        assert pool.call_each([(abs, (-5,))]) == [5]


def test_there_are_as_many_graders_as_answers_that_come_together_up_to_the_number_of_cores() -> None:
    others, answers = workers(), [(rf"\boxed{{x+{number}}}", Gold(f"{number}+x")) for number in range(2, 6)]
    with GradingPool(num_workers=2) as pool:
        assert pool.grade_many([ANSWER])[0].state == "correct"
        assert len([worker for worker in workers() if worker not in others]) == 1
        assert [verdict.state for verdict in pool.grade_many(answers)] == ["correct"] * 4
        assert len([worker for worker in workers() if worker not in others]) == 2
    assert GradingPool().num_workers == usable_cores()


def test_a_call_whose_worker_is_killed_is_made_again_and_its_neighbours_have_their_results(tmp_path) -> None:
    with WorkerPool() as pool:
        dying, never, neighbour = pool.call_each(
            [(die_until, (str(tmp_path / "twice"), 2)), (die_until, (str(tmp_path / "ever"), 99)), (abs, (-5,))]
        )
    assert (dying, neighbour) == (2, 5)
    assert never == Failure("timed out", "the worker ended with code -9")


def test_a_call_during_which_the_machine_slept_is_made_again(tmp_path) -> None:
    with WorkerPool(seconds=0.1, patience=10) as pool:
        assert pool.call_each([(sleep_once, (str(tmp_path / "log"), 60.0))]) == ["awake"]


def test_a_decoder_that_is_killed_at_its_work_says_nothing_about_the_video(tmp_path, monkeypatch) -> None:
    film = tmp_path / "film.mp4"
    film.write_bytes(encode(np.zeros((8, 56, 56, 3), np.uint8), 8))
    monkeypatch.setattr(video, "decode_quietly", decode_at_last)
    assert len(video.read_video(film, 4).frames) == 4
    assert Path(f"{film}.deaths").read_text() == "begun\n" * 2


SCRIPT_WITHOUT_A_GUARD = """
import math, sys
from contextlib import nullcontext
from pathlib import Path
from atrl_bench.locks import alone
from atrl_bench.sandbox.pool import WorkerPool

with {held}:
    WorkerPool(work="reading", preloaded=["json"]).call_each([(math.sqrt, (4.0,))])
"""


# A training holds its folder while it has its data read.
@pytest.mark.parametrize("held", ["nullcontext()", "alone(Path(sys.argv[1]))"])
def test_a_script_that_its_own_workers_begin_anew_ends_and_says_once_what_it_lacks(tmp_path, held) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT_WITHOUT_A_GUARD.replace("{held}", held))
    done = ended(script, tmp_path / "lock", timeout=120)
    assert done.returncode == 1
    *_, what, why, next_step = done.stderr.splitlines()
    assert done.stderr.count("for reading could not start") == 1
    assert what.endswith("UnguardedMainError: The processes for reading could not start.")
    assert why == "Worker processes import the main script, as every one of multiprocessing does."
    assert next_step == "Next: put what the script runs under `if __name__ == '__main__':`"
