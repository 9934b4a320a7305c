"""What a plan still has to download: models and datasets of the hub that its cache and `--data-dir` do not have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from atrl_bench.evaluation.tasks import find_task
from atrl_bench.training.cost_estimate import GB
from atrl_bench.training.data import TRAINING_SETS, describe
from atrl_bench.training.fits import hub_cache
from atrl_bench.training.model_shape import model_shape

# As the hub shows it; what is not here is not known without asking the hub.
DATASETS_GB = {"Kun-Xiang/ViRL39K": 2.9, "hiyouga/geometry3k": 0.06, "Video-R1/Video-R1-data": 309.0}
GATED = {"lmms-lab/VideoMMMU"}
KINDS = {"model": "https://huggingface.co/", "dataset": "https://huggingface.co/datasets/"}


@dataclass(frozen=True)
class Download:
    """A repository of the hub that is not here; `gb` is None where its size is not known."""

    kind: str
    hub_id: str
    gb: float | None

    @property
    def terms(self) -> str | None:
        """The page on which its conditions have to be accepted, None where there are none."""
        return KINDS[self.kind] + self.hub_id if self.hub_id in GATED else None

    @property
    def text(self) -> str:
        """Its size, in words."""
        return "size not known" if self.gb is None else f"{self.gb:.1f} GB"


def missing_downloads(
    models: Iterable[str], training_sets: Iterable[str], tasks: Iterable[str], data_dir: Path | None
) -> tuple[Download, ...]:
    """Return the repositories that these need and this machine does not have, each once."""
    needed = [*_models(models), *_training_sets(training_sets, data_dir), *_tasks(tasks, data_dir)]
    return tuple(each for each in dict.fromkeys(needed) if not is_cached(each))


def is_cached(download: Download) -> bool:
    """Return whether the hub's cache has a commit of a repository; which of its files is not looked at."""
    snapshots = hub_cache() / f"{download.kind}s--{download.hub_id.replace('/', '--')}" / "snapshots"
    return snapshots.is_dir() and any(snapshots.iterdir())


def _models(names: Iterable[str]) -> Iterator[Download]:
    for name in names:
        if name.count("/") == 1 and not Path(name).exists():
            shape = model_shape(name)
            yield Download("model", name, None if shape is None else 2 * shape.num_parameters / GB)


def _training_sets(names: Iterable[str], data_dir: Path | None) -> Iterator[Download]:
    for name in names:
        if name in TRAINING_SETS and (data_dir is None or not (data_dir / (describe(name).folder or name)).is_dir()):
            yield _dataset(describe(name).hub_id)


def _tasks(names: Iterable[str], data_dir: Path | None) -> Iterator[Download]:
    for task in map(find_task, names):
        if task.hub_id and (data_dir is None or not (data_dir / task.folder).is_dir()):
            yield _dataset(task.hub_id)


def _dataset(hub_id: str) -> Download:
    return Download("dataset", hub_id, DATASETS_GB.get(hub_id))
