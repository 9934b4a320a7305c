"""Worker processes that can be killed, for what a computation that nobody can foresee takes (pebble).

A limit on time has to be the kernel's: sympy may keep a process busy for ever, deaf to handlers and threads. It is a
limit on computing time, which a busy machine does not shorten. Workers come from a small server process, not from this
one: a fork would copy a process that holds a model. They end when this process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import logging
import math
import multiprocessing
import os
import resource
import select
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Future, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from multiprocessing.util import Finalize
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from atrl_bench.errors import UnguardedMainError
from atrl_bench.locks import imports_main

if TYPE_CHECKING:
    from pebble import ProcessPool

Call = tuple[Callable[..., Any], tuple[Any, ...]]  # a function with its arguments
NUM_ATTEMPTS = 3  # of a call whose worker dies


class Failure(NamedTuple):
    """Why a call has no result: it took too much of something, or raised."""

    state: Literal["timed out", "unparseable"]
    why: str


class _Death(NamedTuple):
    """Why a call has no result yet: what became of its worker, or None: there was none to call."""

    why: str | None
    error: Exception

    def failure(self, work: str) -> Failure:
        if self.why is not None:
            return Failure("timed out", self.why)
        raise UnguardedMainError(f"The processes for {work} could not start.") from self.error


class WorkerPool:
    """Calls functions in worker processes, started when first needed; a call ends after `seconds` of computing.

    There are as many as calls have come together, `num_workers` at most.
    A worker that is killed from outside, while it computes or before, or gives no sign, is replaced and asked again.
    """

    def __init__(
        self,
        *,
        work: str = "grading",  # for messages
        num_workers: int = 1,
        seconds: float = 3.0,
        patience: int = 20,  # a worker may take this many times its computing time, on a busy machine and with imports
        memory_bytes: int = 2 << 30,
        calls_per_worker: int = 0,  # 0: as many as there are
        preloaded: Sequence[str] | None = None,  # modules that all workers need; None: they are no forks
    ) -> None:
        self.work, self.num_workers, self.seconds, self.memory_bytes = work, num_workers, seconds, memory_bytes
        self._patience, self._calls_per_worker, self._preloaded = patience, calls_per_worker, preloaded
        self._workers: ProcessPool | None = None
        self._num_started = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._workers is not None:
            self._workers.stop()
            self._workers.join()
            self._workers = None

    def call_each(self, calls: Sequence[Call]) -> list[Any]:
        """What each call gives, in their order, or a `Failure` in its place."""
        results: list[Any] = [None] * len(calls)
        due, deaths = list(range(len(calls))), Counter[int]()
        for _ in range(2 * NUM_ATTEMPTS):  # workers that die before they are called count against no call
            for index, result in zip(due, self._call([calls[index] for index in due]), strict=True):
                results[index] = result
                deaths[index] += isinstance(result, _Death) and result.why is not None
            due = [index for index in due if isinstance(results[index], _Death) and deaths[index] < NUM_ATTEMPTS]
            if not due:
                break
        return [result.failure(self.work) if isinstance(result, _Death) else result for result in results]

    def _call(self, calls: Sequence[Call]) -> list[Any]:
        if not calls:
            return []
        try:
            pool = self._started(min(len(calls), self.num_workers))
            timeout = self._patience * self.seconds
            futures = [pool.schedule(_limited, args=(self.seconds, *call), timeout=timeout) for call in calls]
        except RuntimeError as error:  # its only worker was killed while it had nothing to do
            self.close()
            return [_Death(None, error)] * len(calls)
        results = [self._result(pool, future) for future in futures]
        if any(isinstance(result, _Death) and result.why is None for result in results):
            self.close()
        return results

    def _result(self, pool: ProcessPool, future: Future[Any]) -> Any:
        from pebble import ProcessExpired

        while not wait([future], timeout=1).done:
            if not pool.active:  # pebble forgets what it was given while its last worker died
                return _Death(None, BrokenExecutor("The workers have died."))
        try:
            return future.result()
        except FutureTimeoutError as error:  # also where the machine slept, or its clock was set forward
            return _Death(f"no reply within {self._patience * self.seconds:g} s", error)
        except MemoryError:
            return Failure("timed out", f"{self.work} needed more than {self.memory_bytes >> 20} MiB")
        except ProcessExpired as error:
            if error.exitcode != -signal.SIGXCPU:
                return _Death(f"the worker ended with code {error.exitcode}", error)
            return Failure("timed out", f"{self.work} was stopped after {self.seconds:g} s of computing")
        except BrokenExecutor as error:
            return _Death(None, error)
        except Exception as error:  # sympy raises whatever it likes; the answer is then neither right nor wrong
            return Failure("unparseable", f"{self.work} failed: {type(error).__name__}")

    def _started(self, num_wanted: int) -> ProcessPool:
        """The pool with at least so many workers; starting them anew takes milliseconds: they are forks."""
        if imports_main():
            raise SystemExit(1)  # this process's parent says what the script lacks
        if self._num_started < num_wanted:
            self.close()
        if self._workers is None:
            from pebble import ProcessPool

            context = multiprocessing.get_context("spawn" if self._preloaded is None else "forkserver")
            if self._preloaded is not None:
                context.set_forkserver_preload(list(self._preloaded))
            self._workers = ProcessPool(
                max_workers=num_wanted,
                max_tasks=self._calls_per_worker,
                initializer=_start_worker,
                initargs=(self.memory_bytes,),
                context=context,
            )
            # Not atexit: a process of multiprocessing ends without it, after waiting for its children, these workers.
            Finalize(None, self.close, exitpriority=0)
            self._num_started = num_wanted
        return self._workers


# In the worker ----------------------------------------------------------------------------------------------------


def _start_worker(memory_bytes: int) -> None:
    """Limit the memory of this process and tie its life to its parent's."""
    _end_with_parent()
    logging.disable(logging.CRITICAL)
    allow_memory(memory_bytes)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def allow_memory(num_bytes: int) -> None:
    """Let this worker have so much beside what it maps already, but no more than the user has.

    A script's own imports come first: torch maps gigabytes that it never fills. Arrow's allocator takes one at once.
    """
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    statm = Path("/proc/self/statm")  # Linux alone holds a process to this limit
    mapped = int(statm.read_text().split()[0]) * resource.getpagesize() if statm.is_file() else 0
    asked = mapped + num_bytes
    resource.setrlimit(resource.RLIMIT_AS, (asked if most == resource.RLIM_INFINITY else min(asked, most), most))


def _end_with_parent() -> None:
    """Let the kernel end this process when the one that owns the pool is gone, however that one ended.

    Its death closes the pipe behind the sentinel. A thread could not wait for that: sympy may never let it run.
    """
    parent = multiprocessing.parent_process()
    if parent is None or not hasattr(fcntl, "F_SETOWN"):
        return
    sentinel = int(parent.sentinel)
    signal.signal(signal.SIGIO, signal.SIG_DFL)  # terminates the process
    fcntl.fcntl(sentinel, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(sentinel, fcntl.F_SETFL, fcntl.fcntl(sentinel, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([sentinel], [], [], 0)[0]:  # gone already
        os._exit(1)


def _limited(seconds: float, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = math.ceil(used.ru_utime + used.ru_stime + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    return function(*arguments)
