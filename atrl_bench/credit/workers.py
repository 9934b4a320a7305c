"""Credit of many responses, in processes beside the one that trains: METIS and numpy on cores that a GPU leaves idle.

Not threads: a thread that holds Python's lock keeps the training from starting its kernels. With no workers everything
is computed at once, where it is asked for; the credit is the same, since one thread computes it in either case.

Workers come from a small server process, not from this one, which holds a model. They end when this process ends,
however it ends. What a worker was at when it died is computed again.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from atrl_bench.credit.config import CreditConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from atrl_bench.credit.attention_rows import AttentionRows
    from atrl_bench.credit.rule import Credit, CreditRule
    from atrl_bench.credit.sketch import RowSketch

_TENSORS = ("credit_T", "connectivity_T", "importance_T", "cluster_T")  # of a Credit
_NUM_ATTEMPTS = 3  # of a response whose worker dies; then it is computed here


@dataclass(eq=False)
class CreditTask:
    """One response and what its credit depends on, in a form that travels between processes."""

    rows_TS: NDArray[np.float32]
    """None of a response with a `sketch`."""
    visual_S: NDArray[np.bool_]
    rule: CreditRule
    config: CreditConfig
    seed: int
    of_tokens: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    """Fields of `AttentionRows`, as `parts` are."""
    parts: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    sketch: RowSketch | None = None
    _file: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Returns what a worker is sent: of rows in a file that it can open, the file.

        A pipe of 64 KiB would wake both sides a hundred times for the rows of one response.
        """
        state = vars(self).copy()
        if self._file is not None:
            state["rows_TS"] = (os.getpid(), self._file, self.rows_TS.shape)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take what `__getstate__` gave, in the worker."""
        import numpy as np

        vars(self).update(state, _file=None)
        if isinstance(state["rows_TS"], tuple):
            pid, file, shape = state["rows_TS"]
            self.rows_TS = np.fromfile(f"/proc/{pid}/fd/{file}", dtype=np.float32).reshape(shape)

    def share(self) -> None:
        """Put the rows where a worker can read them; the system frees that with this process, however it ends.

        Where there is no room for that, or no such files, they go through the pipe.
        """
        if self._file is not None or self.sketch is not None or not hasattr(os, "memfd_create"):
            return
        try:
            self._file = os.memfd_create("attention rows")
            with open(self._file, "wb", closefd=False) as file:
                self.rows_TS.tofile(file)
        except OSError:
            self.unshare()

    def unshare(self) -> None:
        """Free what `share` took."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __call__(self) -> Credit:
        """Returns the credit of the response."""
        return credits_of([self])[0]

    def attention(self) -> AttentionRows | RowSketch:
        """Returns what a rule reads."""
        import torch

        from atrl_bench.credit.attention_rows import AttentionRows

        of_tokens: dict[str, Any] = {name: torch.from_numpy(value_T) for name, value_T in self.of_tokens.items()}
        parts = {name: torch.from_numpy(is_part_T) for name, is_part_T in self.parts.items()}
        if self.sketch is not None:
            return replace(self.sketch, parts=parts, **of_tokens)
        return AttentionRows(torch.from_numpy(self.rows_TS), torch.from_numpy(self.visual_S), parts=parts, **of_tokens)


def credits_of(tasks: Sequence[CreditTask]) -> list[Credit]:
    """Returns the credit of each response; those of one rule and config are computed together."""
    import torch

    from atrl_bench.credit.rules import token_credits

    credits: list[Credit] = []
    # The autocast of a loss on a CPU would turn a rule's products into bfloat16.
    with _one_thread(), torch.autocast("cpu", enabled=False):
        for (rule, config), group in groupby(tasks, key=lambda task: (task.rule, task.config)):
            alike = list(group)
            attentions, seeds = [task.attention() for task in alike], [task.seed for task in alike]
            credits += token_credits(attentions, rule, config, seeds)
    return credits


class CreditWorkers:
    """Computes `CreditTask`s in `num_workers` processes, started with the first of them; 0: in this one."""

    def __init__(self, num_workers: int = 0) -> None:
        self.num_workers = num_workers
        self._processes: ProcessPoolExecutor | None = None
        self._thread: ThreadPoolExecutor | None = None

    def begin(self, prepare: Callable[[], list[CreditTask]]) -> Callable[[], list[Credit]]:
        """Returns a function that waits for the credits of the tasks that `prepare` gives.

        Without workers they are computed before this returns. With them this returns at once: `prepare`, which may
        wait for a device, runs in a thread.
        """
        if not self.num_workers:
            credits = credits_of(prepare())
            return lambda: credits
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="credit")
        submitted = self._thread.submit(lambda: [(task, self._submit(task)) for task in prepare()])
        return lambda: [self._result(task, future) for task, future in submitted.result()]

    def close(self) -> None:
        """End the workers; the next task starts new ones."""
        for pool in (self._thread, self._processes):
            if pool is not None:
                pool.shutdown(cancel_futures=True)
        self._thread = self._processes = None

    def _submit(self, task: CreditTask) -> Future[dict[str, Any]] | None:
        """Begin a task, in new processes where one of the old died; None: this process has to compute it."""
        if not _can_travel(task.rule):
            return None
        for _ in range(_NUM_ATTEMPTS):
            if self._processes is None:
                context = multiprocessing.get_context("forkserver")
                context.set_forkserver_preload(["atrl_bench.credit.rules"])
                self._processes = ProcessPoolExecutor(self.num_workers, mp_context=context, initializer=_start_worker)
            task.share()
            try:
                return self._processes.submit(_fields, task)
            except BrokenProcessPool:
                self._processes = None
        return None

    def _result(self, task: CreditTask, future: Future[dict[str, Any]] | None) -> Credit:
        import torch

        from atrl_bench.credit.rule import Credit

        try:
            for _ in range(_NUM_ATTEMPTS):
                if future is None:
                    break
                try:
                    fields = future.result()
                    fields |= {name: torch.from_numpy(fields[name]) for name in _TENSORS}
                    return Credit(**fields)
                except BrokenProcessPool:  # a worker died, and took all that was waiting with it
                    assert self._thread is not None
                    future = self._thread.submit(self._submit, task).result()
            return task()
        finally:
            task.unshare()


def _can_travel(rule: CreditRule) -> bool:
    """Returns whether another process can import this rule; a function within a function it cannot."""
    try:
        pickle.dumps(rule)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute with one thread, so that sums are rounded alike wherever a response is computed."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# In the worker --------------------------------------------------------------------------------------------------------


def _fields(task: CreditTask) -> dict[str, Any]:
    """Returns the fields of the credit; a tensor would travel as a file of shared memory, an array is copied."""
    fields = vars(task()).copy()
    return fields | {name: fields[name].numpy() for name in _TENSORS}


def _start_worker() -> None:
    """Compute with one thread, and end with the process that owns the pool."""
    import torch

    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()

    def end_with_parent() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
