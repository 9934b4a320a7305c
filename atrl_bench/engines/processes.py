"""The processes that a launcher such as `accelerate launch` started for one piece of work; without one, just this one.

They share the work, one device each. Everything they have to agree on is said by the main process, which alone writes
to the run folder.
"""

from __future__ import annotations

import atexit
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from atrl_bench.errors import AtrlBenchError

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")

# The slowest share of a benchmark, or a download, may end hours after the fastest.
PATIENCE = timedelta(days=7)
# In a training all do the same work: one that is so much later than the others hangs.
PATIENCE_IN_TRAINING = timedelta(minutes=30)
TEMPORARY = "ATRL_BENCH_TEMPORARY"  # the folder that whoever started them takes away, however they end
CHUNK = 256 * 2**20  # bytes of a file that are sent at a time


@dataclass(frozen=True)
class Processes:
    """This process among those of one launch."""

    index: int = 0
    count: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this process speaks for all: it has the run folder, finishes what they share, and prints."""
        return self.index == 0

    def meet(self, work: str, patience: timedelta = PATIENCE) -> None:
        """Wait until all have come here, done with `work`; raise, with the numbers of those that are late."""
        if self.count == 1:
            return
        import torch.distributed

        # The main process is the one that counts. The others end after it: a launcher ends all with the first.
        timeout = patience if self.is_main else patience + timedelta(minutes=1)
        try:
            torch.distributed.monitored_barrier(meeting_point(), timeout=timeout, wait_all_ranks=True)
        except RuntimeError as error:
            if not self.is_main:
                raise SystemExit(1) from None
            late = re.search(r"Ranks? ([\d, ]+) failed", str(error))
            numbers = late[1].strip(", ") if late else "of unknown number"
            who = f"Processes {numbers} are" if late and "," in late[1] else f"Process {numbers} is"
            minutes = patience.total_seconds() / 60
            raise AtrlBenchError(
                f"{who} not done with {work}; others waited {minutes:g} minutes here.",
                why="It hangs, or its machine is out of reach; the others cannot go on without it.",
                next_step="look at what that process printed last, then give the same command again: it goes on from "
                "the last saved step",
            ) from None

    def agree(self, value: T, work: str = "its work", patience: timedelta = PATIENCE) -> T:
        if self.count == 1:
            return value
        from accelerate.utils import broadcast_object_list

        self.meet(work, patience)
        agreed: list[T] = broadcast_object_list([value])
        return agreed[0]

    def gather(self, own: Sequence[T]) -> list[T]:
        """What each process has, that of the first one first."""
        if self.count == 1:
            return list(own)
        import torch.distributed

        of_each: list[Any] = [None] * self.count
        torch.distributed.all_gather_object(of_each, list(own), group=meeting_point())
        return [item for of_process in of_each for item in of_process]

    def total(self, tensor: Tensor) -> Tensor:
        """The sum of a tensor over all processes."""
        if self.count > 1:
            import torch.distributed

            tensor = tensor.detach().clone()
            torch.distributed.all_reduce(tensor)
        return tensor

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
        with tempfile.TemporaryDirectory(prefix="atrl-bench-", dir=os.environ.get(TEMPORARY)) as name:
            yield Path(name)

    def send(self, folder: Path) -> None:
        """Write the files of the main process's folder into that of each of the others."""
        if self.count == 1:
            return
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        for name in self.agree([str(path.relative_to(folder)) for path in files]):
            if not self.is_main:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).touch()
            self._send(folder / name)

    def _send(self, path: Path) -> None:
        with path.open("rb" if self.is_main else "wb") as file:
            while chunk := self.agree(file.read(CHUNK) if self.is_main else b""):
                if not self.is_main:
                    file.write(chunk)


@cache
def meeting_point() -> Any:
    """The group of all processes that can tell who is missing; one of GPUs cannot."""
    import torch.distributed

    usual = torch.distributed.group.WORLD
    return usual if torch.distributed.get_backend() == "gloo" else torch.distributed.new_group(backend="gloo")


@cache
def launched() -> Processes:
    """This process among those of its launch, with its device chosen and its process group there."""
    if "LOCAL_RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Processes()
    import torch
    from accelerate import PartialState

    state = PartialState(cpu=not torch.cuda.is_available(), timeout=PATIENCE_IN_TRAINING)
    atexit.register(state.destroy_process_group)
    return Processes(state.process_index, state.num_processes)
