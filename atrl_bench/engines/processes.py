"""The processes that a launcher such as `accelerate launch` started for one piece of work; without one, just this one.

They share the work, one device each. Everything they have to agree on is said by the main process, which alone writes
to the run folder.
"""

from __future__ import annotations

import atexit
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

# The slowest share of a benchmark may end hours after the fastest; torch.distributed gives up after minutes.
PATIENCE = timedelta(days=7)
CHUNK = 256 * 2**20  # bytes of a file that are sent at a time


@dataclass(frozen=True)
class Processes:
    """This process among those of one launch."""

    index: int = 0
    count: int = 1
    local_index: int = 0  # among those on this machine

    @property
    def is_main(self) -> bool:
        """Whether this process speaks for all: it has the run folder, finishes what they share, and prints."""
        return self.index == 0

    def agree(self, value: T) -> T:
        if self.count == 1:
            return value
        from accelerate.utils import broadcast_object_list

        agreed: list[T] = broadcast_object_list([value])
        return agreed[0]

    def main_first(self, make: Callable[[], T]) -> T:
        """`make()`, called by the main process before the others: what it fetches is there for them."""
        if self.is_main:
            made = make()
            self.agree(None)
            return made
        self.agree(None)
        return make()

    @contextmanager
    def own_folder(self, folder: Path) -> Iterator[Path]:
        """This folder in the main process, in each other one an empty folder that is gone afterwards."""
        if self.is_main:
            yield folder
            return
        with tempfile.TemporaryDirectory(prefix="atrl-bench-") as name:
            yield Path(name)

    def send(self, folder: Path, *, left_empty: Callable[[str], bool] = lambda name: False) -> None:
        """Write the files of the main process's folder into that of each of the others, some of them empty."""
        if self.count == 1:
            return
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        for name in self.agree([str(path.relative_to(folder)) for path in files]):
            if not self.is_main:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).touch()
            if not left_empty(name):
                self._send(folder / name)

    def _send(self, path: Path) -> None:
        with path.open("rb" if self.is_main else "wb") as file:
            while chunk := self.agree(file.read(CHUNK) if self.is_main else b""):
                if not self.is_main:
                    file.write(chunk)


@cache
def launched() -> Processes:
    """This process among those of its launch, with its device chosen and its process group there."""
    if "LOCAL_RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Processes()
    import torch
    from accelerate import PartialState

    state = PartialState(cpu=not torch.cuda.is_available(), timeout=PATIENCE)
    atexit.register(state.destroy_process_group)
    return Processes(state.process_index, state.num_processes, state.local_process_index)
