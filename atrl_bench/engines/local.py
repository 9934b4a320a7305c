"""Work side by side in processes of this machine, which die with the process that started them."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import TypeVar

from atrl_bench.engines.devices import Devices, Machine
from atrl_bench.engines.placement import Demand, Placement

PR_SET_PDEATHSIG = 1  # from linux/prctl.h

ItemT = TypeVar("ItemT")


def default_workers(machine: Machine) -> int:
    """Return how many pieces of work run side by side: one a GPU, else as many as have cores for their processes."""
    return max(1, len(machine.gpus), num_cores() // machine.processes)


def num_cores() -> int:
    """Return how many cores this process may use; only Linux tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def side_by_side(
    work: Callable[[ItemT, Devices], None],
    demands: Sequence[tuple[ItemT, Demand]],
    machine: Machine,
    num_workers: int,
) -> Iterator[tuple[ItemT, BaseException | None]]:
    """Yield each item when `work(item, devices)` has ended, with its error if it failed.

    Each gets devices of its own as soon as as many as it demands are free. Whoever stops waiting stops the work: every
    process is killed at once.
    """
    context, placement = multiprocessing.get_context("spawn"), Placement(demands, machine)
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(num_workers, context, start_worker, (os.getpid(),)) as pool:
        try:
            running: dict[Future[None], tuple[ItemT, Devices]] = {}
            while True:
                while len(running) < num_workers and (placed := placement.next()) is not None:
                    running[pool.submit(work, *placed)] = placed
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    item, devices = running.pop(future)
                    placement.give_back(devices)
                    yield item, future.exception()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in set(multiprocessing.active_children()) - others:
                process.kill()
            raise


def start_worker(parent: int) -> None:
    """Make this process one thread wide, silent, and dead as soon as its parent is."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Renamings inside the libraries are news for us, not for the person who watches a table grow.
    warnings.filterwarnings("ignore", category=FutureWarning, module="(transformers|trl|accelerate|peft)")
