"""How long each phase of training took."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class PhaseClock:
    """Seconds per phase; a phase inside another one counts for itself only."""

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        self.now = wall_seconds if now is None else now
        self._seconds: dict[str, float] = defaultdict(float)
        self._inner: list[float] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        started = self.now()
        self._inner.append(0.0)
        try:
            yield
        finally:
            elapsed = self.now() - started
            self._seconds[name] += elapsed - self._inner.pop()
            if self._inner:
                self._inner[-1] += elapsed

    def add(self, name: str, seconds: float) -> None:
        """Add a time measured elsewhere, inside the phase that is on, to `name` instead."""
        self._seconds[name] += seconds
        if self._inner:
            self._inner[-1] += seconds

    def pop(self) -> dict[str, float]:
        """The seconds per phase since the last call."""
        seconds = dict(self._seconds)
        self._seconds.clear()
        return seconds


def wall_seconds() -> float:
    """The time, at which every kernel that has been started is done."""
    import torch

    if torch.cuda.is_available():  # kernels run on after the call that started them has returned
        torch.cuda.synchronize()
    return time.perf_counter()
