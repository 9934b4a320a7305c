"""Resume checkpoints: the weights that are trained, the optimiser's moments, and what is left of a rollout, once each.

torch.distributed.checkpoint copies them, and writes beside the next update; each process its own part, where processes
share a model, and any number of them reads it. A checkpoint has its name from the moment when it is whole. Everything
else of a run is a function of its seed and the step.
"""

from __future__ import annotations

import os
import re
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint import CheckpointException

from atrl_bench.engines.processes import PATIENCE_IN_TRAINING, launched
from atrl_bench.errors import StoreError, reason_of
from atrl_bench.results.files import flush, room_for
from atrl_bench.training.sharding import shards_models

PREFIX = "checkpoint-"
REST = "rest.pt"  # what is left of a rollout, process by process
SHARE = 0.02  # of the time that checkpoints may take, of those that take more than a moment
MOMENT = 1.0  # seconds
GRACE = timedelta(minutes=1)  # for processes to meet that have waited for a writer

# A checkpoint of one process is meant to be one.
warnings.filterwarnings("ignore", message="torch.distributed is disabled")


def last_checkpoint(folder: Path) -> Path | None:
    return max(_checkpoints(folder), key=step_of, default=None)


def _checkpoints(folder: Path) -> list[Path]:
    """Not what has a name of somebody else's, such as `checkpoint-old`."""
    return [path for path in folder.glob(f"{PREFIX}*") if path.name.removeprefix(PREFIX).isdecimal()]


def step_of(checkpoint: Path | None) -> int:
    return int(checkpoint.name.removeprefix(PREFIX)) if checkpoint else 0


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What is trained, by names that no number of processes changes."""
    state: dict[str, Tensor] = {}
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            state[f"weight.{name}"] = weight.detach()
            state |= {f"{moment}.{name}": value for moment, value in optimizer.state[weight].items()}
    return state


@contextmanager
def saving(what: str) -> Iterator[None]:
    """A disk that is full is one error of ours: torch and safetensors hide what it said in several of their own."""
    try:
        yield
    except CheckpointException as error:  # which is no Exception
        first = _first_failure(error)
        with saving(what):
            raise _said_by_disk(first) or first from None
    except Exception as error:
        if (said := _said_by_disk(error)) is None or (then := room_for(said)) is None:
            raise
        raise StoreError(f"Cannot write {what}.", why=f"{said.strerror}.", next_step=then) from error


@contextmanager
def reading(checkpoint: Path) -> Iterator[None]:
    """A checkpoint that is damaged is one error of ours, whichever of its files is and whatever reads that."""
    try:
        yield
    except (CheckpointException, Exception) as error:
        first = _first_failure(error) if isinstance(error, CheckpointException) else error
        if isinstance(first, MemoryError | torch.OutOfMemoryError):
            raise first from None
        raise StoreError(
            f"Cannot read the checkpoint {checkpoint}.",
            why=reason_of(first),
            next_step=f"put back what is missing; or rm -r {checkpoint}, and the same command trains from the start",
        ) from first


def _first_failure(error: CheckpointException) -> BaseException:
    return next(iter(error.failures.values()))[0]


def _said_by_disk(error: BaseException | None) -> OSError | None:
    while not (error is None or isinstance(error, OSError)):
        if number := re.search(r"\(os error (\d+)\)", str(error)):
            return OSError(int(number[1]), os.strerror(int(number[1])))
        error = error.__cause__ or error.__context__
    return error


class Checkpoints:
    """Those of a run in a folder, which processes that share a model share too; without one the main process writes."""

    def __init__(self, folder: Path) -> None:
        self._is_shared, processes = shards_models(), launched()
        self.folder = Path(processes.agree(str(folder))) if self._is_shared else folder
        # Writing goes on beside the passes: it has a group of its own, or both would wait for the other's messages.
        self._group = None
        if self._is_shared:
            self._group = torch.distributed.new_group(backend="gloo", timeout=PATIENCE_IN_TRAINING)
        self._writer = ThreadPoolExecutor(1)
        self._writing: Future[Any] | None = None
        self._step: int | None = None  # of the checkpoint that is being written
        self._seconds, self._saved_at = 0.0, time.monotonic()

    @property
    def is_affordable(self) -> bool:
        """Whether another checkpoint, as long as the last one kept the updates waiting, is a small part of the time."""
        return self._seconds < MOMENT or self._seconds <= SHARE * (time.monotonic() - self._saved_at)

    @property
    def is_written(self) -> bool:
        return self._writing is None or self._writing.done()

    def begin(self, step: int, state: Mapping[str, Tensor], rest: Any, save_beside: Any) -> None:
        """Copy the state, and write it while the training goes on; `save_beside(folder)` writes what is small."""
        self.finish()
        started, processes, unfinished = time.monotonic(), launched(), self.folder / "unfinished"
        parts = processes.gather([rest])
        if processes.is_main:
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            with saving(f"the checkpoint of step {step}"):
                with (unfinished / REST).open("wb") as file:  # by its path torch does not say why it fails
                    torch.save(parts, file)
                save_beside(unfinished)
        processes.meet("saving", PATIENCE_IN_TRAINING)
        if self._is_shared or processes.is_main:
            # Not by `async_save`: its stagers hand on without a copy what has no dimension, as the count of steps.
            copied = {name: value.clone().cpu() for name, value in state.items()}
            options: dict[str, Any] = {"process_group": self._group, "no_dist": not self._is_shared}
            self._writing = self._writer.submit(dcp.save, copied, checkpoint_id=unfinished, **options)
        self._step, self._saved_at = step, time.monotonic()
        self._seconds = self._saved_at - started

    def finish(self) -> None:
        """Wait for the checkpoint that is being written, give it its name, and drop the one before."""
        if self._step is None:
            return
        step, self._step = self._step, None
        what = f"the checkpoint of step {step}"
        if self._writing is not None:
            with saving(what):
                try:
                    self._writing.result()
                except RuntimeError:  # it waited in vain for another's writer, which comes to no meeting either
                    launched().meet(f"writing {what}", GRACE)
                    raise
            self._writing = None
        launched().meet(f"writing {what}", PATIENCE_IN_TRAINING)
        if launched().is_main:
            older = _checkpoints(self.folder)
            flush(self.folder / "unfinished")
            os.replace(self.folder / "unfinished", self.folder / f"{PREFIX}{step}")
            for path in older:
                shutil.rmtree(path, ignore_errors=True)

    def read(self, checkpoint: Path, state: Mapping[str, Tensor], load_beside: Any = lambda _: None) -> Any:
        """Read a checkpoint into the tensors of a state; what was left of this process's rollout, if anything."""
        processes = launched()
        if not self._is_shared:
            processes.send(checkpoint)
        with reading(checkpoint):
            dcp.load(dict(state), checkpoint_id=checkpoint, process_group=self._group, no_dist=not self._is_shared)
            parts = torch.load(checkpoint / REST, map_location="cpu", weights_only=False)
            load_beside(checkpoint)
        # On another number of processes the rest of the rollout is sampled anew.
        return parts[processes.index] if len(parts) == processes.count else None
