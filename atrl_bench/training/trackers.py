"""Experiment trackers: where a run's metrics go beside its own `metrics.jsonl`, if `--report-to` names any.

They are told every metric. A run that is resumed goes on in the run that it began. Nothing of this is in a run's key.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atrl_bench.errors import MissingDataError, UnknownNameError
from atrl_bench.training.recipe import Recipe

Report = Callable[[dict[str, Any]], None]  # of a line of metrics
Tell = Callable[[dict[str, Any], int], None]  # of values and their step
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
    # It is part of a path, and a recipe of one's own may be called anything.
    return re.sub(r"[^\w.,=+-]", "_", f"{trained}-seed{seed}-{key}")


@contextlib.contextmanager
def reporting(trackers: Trackers, name: str, first_step: int) -> Iterator[Report]:
    """Yield what takes a line of metrics and tells it to the run of this name.

    Trackers talk on the standard output, which is the command's own: what they say goes to the standard error.
    """
    with contextlib.ExitStack() as stack:
        if trackers.names:
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        reports = [stack.enter_context(TRACKING[tracker](trackers, name, first_step)) for tracker in trackers.names]

        def report(line: dict[str, Any]) -> None:
            values = {f"train/{key}": value for key, value in line.items() if key != "step" and value is not None}
            for tell in reports:
                tell(values, line["step"])

        yield report


@contextlib.contextmanager
def _trackio(trackers: Trackers, name: str, first_step: int) -> Iterator[Tell]:
    import trackio

    trackio.init(project=trackers.project, name=name, resume="allow")  # goes on in the run of that name
    yield lambda values, step: trackio.log(values | {"train/global_step": step})
    trackio.finish()


@contextlib.contextmanager
def _wandb(trackers: Trackers, name: str, first_step: int) -> Iterator[Tell]:
    import wandb

    key = name.rpartition("-")[2]
    # Finished at the end: the next training of this process would go on in this run.
    with wandb.init(project=trackers.project, name=name, id=key, resume="allow", dir=trackers.folder) as run:
        run.define_metric("*", step_metric="train/global_step")
        yield lambda values, step: run.log(values | {"train/global_step": step})


@contextlib.contextmanager
def _tensorboard(trackers: Trackers, name: str, first_step: int) -> Iterator[Tell]:
    from torch.utils.tensorboard import SummaryWriter

    # Steps after the checkpoint that a run resumes from are taken again; TensorBoard then forgets the first time.
    with SummaryWriter(str(trackers.folder / "tensorboard" / name), purge_step=first_step + 1) as writer:

        def tell(values: dict[str, float], step: int) -> None:
            for key, value in values.items():
                writer.add_scalar(key, value, step)

        yield tell


TRACKING = {"trackio": _trackio, "wandb": _wandb, "tensorboard": _tensorboard}
