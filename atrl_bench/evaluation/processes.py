"""The processes that a launcher such as `accelerate launch` started for one evaluation; without one, just this one.

They share the work and the store, one device each. Everything they have to agree on is said by the main process.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import TypeVar

T = TypeVar("T")

# The slowest share of a benchmark may end hours after the fastest; torch.distributed gives up after minutes.
PATIENCE = timedelta(days=7)


@dataclass(frozen=True)
class Processes:
    """This process among those of one launch."""

    index: int = 0
    count: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this process speaks for all: it finishes what they share, and prints."""
        return self.index == 0

    def agree(self, value: T) -> T:
        """Return the main process's value, as soon as all have come here."""
        if self.count == 1:
            return value
        from accelerate.utils import broadcast_object_list

        agreed: list[T] = broadcast_object_list([value])
        return agreed[0]

    def main_first(self, make: Callable[[], T]) -> T:
        """Return `make()`, called by the main process before the others: what it fetches is there for them."""
        if self.is_main:
            made = make()
            self.agree(None)
            return made
        self.agree(None)
        return make()


@cache
def launched() -> Processes:
    """Return this process's place among those of its launch, with its own device chosen for it."""
    if "LOCAL_RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Processes()
    import torch
    from accelerate import PartialState

    state = PartialState(cpu=not torch.cuda.is_available(), timeout=PATIENCE)
    atexit.register(state.destroy_process_group)
    return Processes(state.process_index, state.num_processes)
