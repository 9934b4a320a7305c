"""Experiment trackers: where a run's metrics go beside its own `metrics.jsonl`, if `--report-to` names any.

transformers' own callbacks send what TRL logs, which is every metric here. This module says which project and which run
they belong to: a run that is resumed goes on in the run that it began. Nothing of this is in a run's key.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from atrl_bench.errors import MissingDataError, UnknownNameError
from atrl_bench.training.recipe import Recipe

if TYPE_CHECKING:
    from transformers import TrainerCallback

    from atrl_bench.training.resumable import Resumable

TRACKERS = ("trackio", "wandb", "tensorboard")  # each is the name of its package and of the extra that installs it


def check_trackers(names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if name not in TRACKERS:
            raise UnknownNameError("tracker", name, TRACKERS, next_step=f"--report-to {','.join(TRACKERS)}")
        if importlib.util.find_spec(name) is None:
            raise MissingDataError(
                f"{name} is not installed.",
                why=f"--report-to {name} sends the metrics of a training to it.",
                next_step=f"pip install 'atrl-bench[{name}]'",
            )
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class Trackers:
    """The trackers that the trainings of a run folder report to, in which project; `folder` gets what they write."""

    names: tuple[str, ...] = ()
    project: str = "atrl-bench"
    folder: Path = Path()


def run_name(recipe: Recipe, seed: int, key: str) -> str:
    """How trackers call a run: by what is trained, its seed and its key."""
    credit = getattr(recipe, "credit", None)
    trained = recipe.name if credit is None or credit.rule == "uniform" else f"{recipe.name}+{credit.rule}"
    # It is part of a path, and points of a sweep have colons in their names.
    return re.sub(r"[^\w.,=+-]", "_", f"{trained}-seed{seed}-{key}")


@contextlib.contextmanager
def reporting(trainer: Resumable, trackers: Trackers, name: str, *, first_step: int) -> Iterator[None]:
    """Report what the trainer logs inside the block to the run of this name, on the main process alone.

    Trackers talk on the standard output, which is the command's own: what they say goes to the standard error.
    """
    if not trackers.names or not trainer.is_world_process_zero():
        yield
        return
    trainer.args.project, trainer.args.run_name = trackers.project, name
    with contextlib.redirect_stdout(sys.stderr), contextlib.ExitStack() as stack:
        for tracker in trackers.names:
            trainer.add_callback(stack.enter_context(CALLBACKS[tracker](trackers, name, first_step)))
        yield


@contextlib.contextmanager
def _trackio(trackers: Trackers, name: str, first_step: int) -> Iterator[TrainerCallback]:
    from transformers.integrations import TrackioCallback

    yield TrackioCallback()  # goes on in the run of that name, if there is one


@contextlib.contextmanager
def _wandb(trackers: Trackers, name: str, first_step: int) -> Iterator[TrainerCallback]:
    import wandb
    from transformers.integrations import WandbCallback

    key = name.rpartition("-")[2]
    # Finished at the end, which the callback does not do: the next training of this process would go on in this run.
    with wandb.init(project=trackers.project, name=name, id=key, resume="allow", dir=trackers.folder):
        yield WandbCallback()


@contextlib.contextmanager
def _tensorboard(trackers: Trackers, name: str, first_step: int) -> Iterator[TrainerCallback]:
    from torch.utils.tensorboard import SummaryWriter
    from transformers.integrations import TensorBoardCallback

    # Steps after the checkpoint that a run resumes from are taken again; TensorBoard then forgets the first time.
    with SummaryWriter(str(trackers.folder / "tensorboard" / name), purge_step=first_step + 1) as writer:
        yield TensorBoardCallback(writer)


CALLBACKS = {"trackio": _trackio, "wandb": _wandb, "tensorboard": _tensorboard}
