"""Credit in other processes: the same numbers, whatever happens to the processes."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch

from atrl_bench.credit.config import CreditConfig
from atrl_bench.credit.rules import RULES, uniform
from atrl_bench.credit.workers import CreditTask, CreditWorkers

NUM_COLUMNS = 80


def task(number, rule=RULES["atrl"], num_tokens=50):
    rows_TS = np.random.default_rng(number).random((num_tokens, NUM_COLUMNS), dtype=np.float32) ** 4
    return CreditTask(rows_TS, np.arange(NUM_COLUMNS) < 30, rule, CreditConfig(), seed=number)


def wait_until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def workers():
    pool = CreditWorkers(2)
    yield pool
    pool.close()


def pids(workers):
    return list(workers._processes._processes)


def test_workers_give_the_credit_that_this_process_gives_in_the_order_of_the_tasks(workers):
    tasks = [task(number) for number in range(12)]
    here = CreditWorkers(0).begin(lambda: tasks)()
    there = workers.begin(lambda: tasks)()
    for ours, theirs in zip(here, there, strict=True):
        assert torch.equal(ours.credit_T, theirs.credit_T)
        assert torch.equal(ours.cluster_T, theirs.cluster_T)
        assert ours.diagnostics == theirs.diagnostics
    assert len({tuple(credit.credit_T.tolist()) for credit in here}) == 12


def test_the_number_of_threads_of_this_process_changes_nothing(workers):
    tasks = [task(1, num_tokens=300)]
    (there,) = workers.begin(lambda: tasks)()
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        (here,) = CreditWorkers(0).begin(lambda: tasks)()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert torch.equal(here.credit_T, there.credit_T)


def test_begin_does_not_wait_for_what_is_still_on_a_device(workers):
    arrived = threading.Event()
    join = workers.begin(lambda: [task(3)] if arrived.wait(60) else [])
    arrived.set()
    assert len(join()) == 1


def test_a_worker_that_dies_is_replaced_and_its_response_computed_again(workers):
    expected = [each().credit_T for each in (task(number) for number in range(40))]
    workers.begin(lambda: [task(0)])()
    killed = pids(workers)
    join = workers.begin(lambda: [task(number) for number in range(40)])
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    assert all(torch.equal(a, b.credit_T) for a, b in zip(expected, join(), strict=True))
    # Nothing was under way when these died.
    for pid in pids(workers):
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)
    assert torch.equal(workers.begin(lambda: [task(7)])()[0].credit_T, expected[7])
    assert not set(killed) & set(pids(workers))


def test_a_rule_that_only_this_process_knows_is_computed_here(workers):
    def own(attention, config, seed):
        own.pid = os.getpid()
        return uniform(attention, config, seed)

    (credit,) = workers.begin(lambda: [task(1, own)])()
    assert credit.credit_T.tolist() == [1.0] * 50
    assert own.pid == os.getpid()


def test_an_error_of_a_rule_is_raised_where_the_credit_is_waited_for(workers):
    join = workers.begin(lambda: [task(1, RULES["high_entropy"])])
    with pytest.raises(ValueError, match="reads AttentionRows"):
        join()


KILLED = """
import time
import numpy as np
from atrl_bench.credit.config import CreditConfig
from atrl_bench.credit.rules import uniform
from atrl_bench.credit.workers import CreditTask, CreditWorkers

if __name__ == "__main__":
    task = CreditTask(np.ones((3, 4), dtype=np.float32), np.ones(4, dtype=bool), uniform, CreditConfig(), 0)
    workers = CreditWorkers(1)
    workers.begin(lambda: [task])()
    print(*workers._processes._processes, flush=True)
    time.sleep(600)
"""


def test_workers_end_with_the_process_that_started_them_however_it_ends(tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as process:
        worker = int(process.stdout.readline())
        os.kill(worker, 0)  # it is there
        process.kill()
    wait_until(lambda: not alive(worker))


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
