"""The processes that a launcher such as `accelerate launch` started for one piece of work; without one, just this one.

They share the work, one device each. Everything they have to agree on is said by the main process, which alone has the
run folder: the others may be on other machines.
"""

from __future__ import annotations

import atexit
import os
import shutil
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

    @contextmanager
    def own_folder(self, folder: Path) -> Iterator[Path]:
        """Yield this folder to the main process, and to each of the others an empty one that is gone afterwards."""
        if self.is_main:
            yield folder
            return
        with tempfile.TemporaryDirectory(prefix="atrl-bench-") as name:
            yield Path(name)

    def copy_of(self, folder: Path) -> Path:
        """Return a folder with what the main process has in this one: itself wherever that can be read.

        A machine that has not got it gets a copy, which stays as long as its processes.
        """
        if self.count == 1:
            return folder
        from accelerate import PartialState
        from accelerate.utils import gather_object

        sizes = self.agree(_sizes(folder) if self.is_main else {})
        lacking = _sizes(folder) != sizes
        if not any(gather_object([lacking])):
            return folder
        copy = Path(tempfile.gettempdir()) / f"atrl-bench-{self.agree(os.urandom(8).hex())}"
        receives = lacking and self.local_index == 0
        for name in sizes:
            self._send(folder / name, copy / name if receives else None)
        if receives:
            atexit.register(shutil.rmtree, copy, ignore_errors=True)
        PartialState().wait_for_everyone()
        return copy if lacking else folder

    def send(self, folder: Path, *, left_empty: Callable[[str], bool] = lambda name: False) -> None:
        """Write the files of the main process's folder into that of each of the others, some of them empty."""
        if self.count == 1:
            return
        for name in self.agree(list(_sizes(folder)) if self.is_main else []):
            if not self.is_main and left_empty(name):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).touch()
            if not left_empty(name):
                self._send(folder / name, None if self.is_main else folder / name)

    def _send(self, source: Path, target: Path | None) -> None:
        """Send a file of the main process to all, of which those with a target write it."""
        file = source.open("rb") if self.is_main else None
        output = None
        if target is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            output = target.open("wb")
        while chunk := self.agree(file.read(CHUNK) if file else b""):
            if output is not None:
                output.write(chunk)
        for opened in (file, output):
            if opened is not None:
                opened.close()


@cache
def launched() -> Processes:
    """Return this process's place among those of its launch, with its own device chosen for it.

    The process group is there from now on: weights that are loaded later can be read by one and sent to the others.
    """
    if "LOCAL_RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Processes()
    import torch
    from accelerate import PartialState

    state = PartialState(cpu=not torch.cuda.is_available(), timeout=PATIENCE)
    atexit.register(state.destroy_process_group)
    return Processes(state.process_index, state.num_processes, state.local_process_index)


def _sizes(folder: Path) -> dict[str, int]:
    """Return the files below a folder with their sizes; nothing where it cannot be read."""
    try:
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.stat().st_size for path in files}
    except OSError:
        return {}
