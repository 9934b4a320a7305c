"""Work side by side in processes of this machine, which die with the process that started them."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from atrl_bench.engines.devices import Devices, Machine
from atrl_bench.engines.stop import Stopped, heard
from atrl_bench.errors import AtrlBenchError, reason_of
from atrl_bench.resources import usable_cores

PR_SET_PDEATHSIG = 1  # from linux/prctl.h
NUM_ATTEMPTS = 3  # of a piece of work whose process dies

ItemT = TypeVar("ItemT")


@dataclass(frozen=True)
class Demand:
    """How many GPUs a piece of work cannot do without, and how many more it could use."""

    least: int
    most: int


class Placement(Generic[ItemT]):
    """Work that waits, and the GPUs that are free for it: first fit. Nothing here starts anything."""

    def __init__(self, demands: Sequence[tuple[ItemT, Demand]], machine: Machine) -> None:
        self._waiting, self._machine = list(demands), machine
        self._free = list(machine.gpus)

    def next(self) -> tuple[ItemT, Devices] | None:
        for place, (item, demand) in enumerate(self._waiting):
            if demand.least <= len(self._free):
                del self._waiting[place]
                gpus, self._free = self._free[: demand.most], self._free[demand.most :]
                return item, Devices(tuple(gpus)) if gpus else Devices(processes=self._machine.processes)
        return None

    def give_back(self, devices: Devices) -> None:
        self._free = [gpu for gpu in self._machine.gpus if gpu in {*self._free, *devices.gpus}]


def default_workers(machine: Machine) -> int:
    """How many pieces of work run side by side: one a GPU, else as many as have cores for their processes."""
    return max(1, len(machine.gpus), usable_cores() // machine.processes)


def side_by_side(
    work: Callable[[ItemT, Devices], None],
    demands: Sequence[tuple[ItemT, Demand]],
    machine: Machine,
    num_workers: int,
) -> Iterator[tuple[ItemT, BaseException | None]]:
    """Each item when `work(item, devices)` has ended on devices of its own, with its error if it failed.

    A worker that dies costs only what it did itself, and that is begun again. Who stops waiting stops the work. Asked
    to stop, it asks the workers, waits for them, begins nothing more and raises `Stopped`.
    """
    placement, idle, busy = Placement(demands, machine), list[_Worker](), list[_Worker]()
    try:
        with heard(lambda: _ask_to_stop(busy)) as request:
            while True:
                while not request.is_made and len(busy) < num_workers and (placed := placement.next()) is not None:
                    worker = idle.pop() if idle else _Worker()
                    worker.begin(work, *placed)
                    busy.append(worker)
                if not busy:
                    if request.is_made:
                        raise Stopped
                    return
                ready = wait([worker.connection for worker in busy])
                for worker in [worker for worker in busy if worker.connection in ready]:
                    busy.remove(worker)
                    try:
                        error = worker.connection.recv()
                        idle.append(worker)
                    except (EOFError, ConnectionResetError):  # the latter where it had not even read what to do
                        worker.process.join()
                        if request.is_made:
                            continue
                        if worker.attempt < NUM_ATTEMPTS:
                            busy.append(worker.retry())
                            continue
                        error = DeadWorkerError(exit_reason(worker.process.exitcode))
                    placement.give_back(worker.devices)
                    yield worker.item, error
    finally:
        for worker in busy:
            worker.process.kill()
        for worker in (*busy, *idle):
            worker.connection.close()  # who waits there for work ends, all at once: each unloads torch for a second
        for worker in (*busy, *idle):
            worker.process.join()


def _ask_to_stop(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        worker.process.terminate()


class DeadWorkerError(AtrlBenchError):
    """A process that ended in the middle of its work, again and again, without a word."""

    def __init__(self, how: str, remedy: str = "fewer at a time (--jobs) if memory ran out") -> None:
        super().__init__(
            f"Its process {how}, {NUM_ATTEMPTS} times.",
            why="It could not say why. What it had finished is stored.",
            next_step=f"{remedy}; the same command goes on from there",
        )


def exit_reason(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"ended with code {exit_code}"
    hint = ": is memory short?" if -exit_code == signal.SIGKILL else ""
    return f"was killed by signal {-exit_code} ({signal.Signals(-exit_code).name}{hint})"


class _Worker:
    """A process with a connection of its own: a pool's worker killed as it reads leaves the others waiting."""

    item: Any
    devices: Devices

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, os.getpid()))
        self.process.start()
        theirs.close()  # only the worker holds it: its death is the end of what can be read here

    def begin(self, work: Callable[[Any, Devices], None], item: Any, devices: Devices, attempt: int = 1) -> None:
        """Have a piece of work done; `connection` then has its error, or None."""
        self.work, self.item, self.devices, self.attempt = work, item, devices, attempt
        with contextlib.suppress(OSError):  # dead since its last work: reading from it tells
            self.connection.send((work, item, devices))

    def retry(self) -> _Worker:
        new = _Worker()
        new.begin(self.work, self.item, self.devices, self.attempt + 1)
        return new


def _serve(connection: Connection[Any, Any], parent: int) -> None:
    start_worker(parent)
    with contextlib.suppress(EOFError):
        while True:
            work, item, devices = connection.recv()
            try:
                work(item, devices)
                connection.send(None)
            except Exception as error:
                connection.send(portable(error))


def portable(error: Exception) -> Exception:
    """The error, or its words where it is of a kind that does not survive the way to another process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(reason_of(error))
    return error


def start_worker(parent: int) -> None:
    """Make this process one thread wide, silent, and dead as soon as its parent is."""
    limit_threads()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def limit_threads() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Renamings inside the libraries are news for us, not for the person who watches a table grow.
    warnings.filterwarnings("ignore", category=FutureWarning, module="(transformers|trl|accelerate|peft)")
