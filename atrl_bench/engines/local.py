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
from pathlib import Path
from typing import TypeVar

PR_SET_PDEATHSIG = 1  # from linux/prctl.h

ItemT = TypeVar("ItemT")


def default_workers() -> int:
    """Return how many pieces of work run side by side: one a core; on a GPU, which one of them fills, one."""
    if Path("/dev/nvidiactl").exists():
        return 1
    # Only Linux tells which cores this process may use.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def side_by_side(
    work: Callable[[ItemT], None], items: Sequence[ItemT], num_workers: int
) -> Iterator[tuple[ItemT, BaseException | None]]:
    """Yield each item when `work(item)` has ended, with its error if it failed.

    Whoever stops waiting stops the work: every process is killed at once.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(num_workers, context, start_worker, (os.getpid(),)) as pool:
        try:
            items_of = {pool.submit(work, item): item for item in items}
            waiting: set[Future[None]] = set(items_of)
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    yield items_of[future], future.exception()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
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
