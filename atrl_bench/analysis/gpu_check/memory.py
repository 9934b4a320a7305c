"""The most memory that each phase took: on a GPU what torch held at once, elsewhere the process's peak so far."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from atrl_bench.analysis.step_phases import REST
from atrl_bench.training.clock import PhaseClock


def peak_bytes() -> int:
    """Return the most bytes in use since `reset_peak`; of a process without a GPU, since it began."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def reset_peak() -> None:
    """Begin a new peak, at what is in use."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


class PeakClock(PhaseClock):
    """A clock that also keeps the peak of memory of each phase; like seconds, without the phases inside it."""

    def __init__(self) -> None:
        super().__init__()
        self.peaks: dict[str, int] = {}
        self._around = [REST]

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the block to `name`, and keep the most memory it took."""
        self.note_peak()
        self._around.append(name)
        try:
            with super().phase(name):
                yield
        finally:
            self.note_peak()
            self._around.pop()

    def note_peak(self) -> None:
        """Keep the peak up to here for the phase that is on."""
        name = self._around[-1]
        self.peaks[name] = max(self.peaks.get(name, 0), peak_bytes())
        reset_peak()
