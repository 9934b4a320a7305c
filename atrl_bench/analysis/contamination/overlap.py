"""`atrl-bench overlap`: test problems that are in the training data, counted, listed and remembered for the tables."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from atrl_bench.analysis.contamination import similarity
from atrl_bench.analysis.contamination.search import FOUND, OTHER_PICTURE, Item, Overlap, Search
from atrl_bench.analysis.contamination.similarity import read_picture, read_text
from atrl_bench.data.pictures import open_picture
from atrl_bench.data.sets import ALL_SETS, find_set, is_set
from atrl_bench.digests import plain, recall
from atrl_bench.errors import UnknownNameError
from atrl_bench.evaluation.data import load_rows, read_problems
from atrl_bench.evaluation.tasks import Task, expand, find_task, list_tasks
from atrl_bench.experiments.plan import set_digest, task_digest
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.printable import Block, Record, Rows
from atrl_bench.results.files import write_atomically
from atrl_bench.results.records import Problem
from atrl_bench.training.data import TrainingProblem, stream_problems

FILE = "overlap.json"
IN_FLIGHT = 64  # problems with their pictures in memory at a time
NUM_SHOWN = 10

InT = TypeVar("InT")
OutT = TypeVar("OutT")


@dataclass(frozen=True, kw_only=True)
class TaskContamination:
    """How many problems of a task are in a training set, each counted once under the strongest kind; and the pairs.

    `data` names the contents of both sets, `version` what "the same" meant.
    """

    train: str
    task: str
    data: str
    version: int = similarity.VERSION
    num_train: int
    num_unreadable_pictures: int
    num_problems: int
    num_overlapping: int
    counts: Mapping[str, int]
    pairs: tuple[Overlap, ...]

    @property
    def share(self) -> float:
        return self.num_overlapping / self.num_problems if self.num_problems else 0.0

    def rows(self) -> Iterator[Sequence[str]]:
        yield f"{self.num_overlapping:,}", f"found, {100 * self.share:.2f} %"
        for kind in FOUND:
            yield f"{self.counts[kind]:,}", f"· {kind}"
        yield f"{self.counts[OTHER_PICTURE]:,}", f"not counted: {OTHER_PICTURE}"
        if self.num_unreadable_pictures:
            yield f"{self.num_unreadable_pictures:,}", "unreadable pictures: compared by text alone"


@dataclass(frozen=True)
class Contamination(Record):
    """What was found of several tasks in one training set."""

    tasks: tuple[TaskContamination, ...]

    def blocks(self) -> Iterable[Block]:
        for task in self.tasks:
            yield f"{task.task} ({task.num_problems:,} problems) in {task.train} ({task.num_train:,})"
            yield Rows(list(task.rows()), right=(0,))
            if task.pairs:
                yield Rows([pair.row() for pair in task.pairs[:NUM_SHOWN]])
            if len(task.pairs) > NUM_SHOWN:
                yield f"… and {len(task.pairs) - NUM_SHOWN:,} more"
            yield ""
        yield (
            "Same text: equal without case, spacing, markup and options, or "
            f"{100 * similarity.MIN_CONTAINMENT:.0f} % of the four-word runs and all numbers. Same picture: equal "
            f"pixels, or at most {100 * similarity.MAX_DISTANCE:.0f} % of a hash of its look different. "
            "--json lists every pair."
        )


def overlap(train: str, tasks: Sequence[str], run_dir: RunDir) -> Contamination:
    """Of each task how many of its problems are in `train`, in which way, and the pairs.

    `train` is a training set, or another task: benchmarks are made from one another. It is read once, whatever the
    number of tasks. The counts are kept in the run folder for `overlap_counts`.
    """
    infos = expand(tasks)
    train_digest = _train_digest(train, run_dir)
    with warnings.catch_warnings():
        from PIL import Image

        # Set once for all threads: filters are the process's. A picture that claims to be enormous is not decoded.
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        tests = {info.name: list(_task_items(info, run_dir)) for info in infos}
        searches = {task: Search([item for item, _ in items]) for task, items in tests.items()}
        num_read = num_unreadable = 0
        for item, unreadable in _train_items(train, run_dir):
            num_read, num_unreadable = num_read + 1, num_unreadable + unreadable
            for search in searches.values():
                search.add(item)
    counts = tuple(
        TaskContamination(
            train=train,
            task=info.name,
            data=f"{train_digest}/{_task_digest(info, run_dir)}",
            num_train=num_read,
            num_unreadable_pictures=num_unreadable,
            num_problems=len(tests[info.name]),
            num_overlapping=sum(searches[info.name].counts()[kind] for kind in FOUND),
            counts=searches[info.name].counts(),
            pairs=tuple(searches[info.name].found()),
        )
        for info in infos
    )
    remembered = recall(run_dir.root / FILE)
    for task in counts:
        remembered[task.data] = {name: v for name, v in plain(task).items() if name not in ("pairs", "data")}
    write_atomically(run_dir.root / FILE, (json.dumps(remembered, indent=1, sort_keys=True) + "\n").encode())
    return Contamination(counts)


# Both sets as fingerprints --------------------------------------------------------------------------------------------


def _train_items(train: str, run_dir: RunDir) -> Iterator[tuple[Item, int]]:
    if not is_set(train):
        return _task_items(find_task(train), run_dir)

    def read(problem: TrainingProblem) -> tuple[Item, int]:
        openers = [lambda image=image: [open_picture(image)] for image in problem.images]
        return _item(problem, [*openers, lambda: problem.videos])

    return _in_threads(read, stream_problems(train, run_dir.data_dir(find_set(train).folder)))


def _task_items(info: Task, run_dir: RunDir) -> Iterator[tuple[Item, int]]:
    rows, problems, _ = read_problems(info, load_rows(info, run_dir.data_dir(info.folder)))

    def read(row_and_problem: tuple[Any, Problem]) -> tuple[Item, int]:
        row, problem = row_and_problem
        return _item(problem, [lambda: info.code.images(row)])

    return _in_threads(read, zip(rows, problems, strict=True))


def _item(problem: Problem | TrainingProblem, openers: Sequence[Callable[[], Any]]) -> tuple[Item, int]:
    """A problem's fingerprints and how many times its pictures could not be read."""
    shown, pictures, unreadable = [], [], 0
    for open_media in openers:
        try:
            shown += (media := open_media())
            # Frames of a video, a path, are not compared; its question is, as one that shows something else.
            pictures += [read_picture(one) for one in media if not isinstance(one, str | Path)]
        except Exception:  # whatever a decoder raises on damaged bytes: counted, and shown in the report
            unreadable += 1
    is_shown = bool(shown) or unreadable > 0
    return Item(str(problem.problem_id), read_text(problem.question), tuple(pictures), is_shown), unreadable


def _in_threads(function: Callable[[InT], OutT], values: Iterable[InT]) -> Iterator[OutT]:
    """Yield the results in order with a bounded number in flight; `map` of a pool would read everything at once."""
    values = iter(values)
    with ThreadPoolExecutor() as pool:
        while batch := list(islice(values, IN_FLIGHT)):
            yield from pool.map(function, batch)


# What a table reads ---------------------------------------------------------------------------------------------------


def overlap_counts(run_dir: RunDir, train: str, tasks: Sequence[str]) -> dict[str, dict[str, Any] | None]:
    """What was found of each task in `train`, as their data is now, or None if nobody has looked."""
    train_digest, remembered = _train_digest(train, run_dir), recall(run_dir.root / FILE)
    counts = {task: remembered.get(f"{train_digest}/{_task_digest(find_task(task), run_dir)}") for task in tasks}
    return {
        task: of_task if isinstance(of_task, dict) and of_task.get("version") == similarity.VERSION else None
        for task, of_task in counts.items()
    }


def _train_digest(train: str, run_dir: RunDir) -> str:
    if is_set(train):
        return set_digest(train, run_dir.data_dir(find_set(train).folder))
    known = {info.name: info for info in list_tasks()}
    if train not in known:
        raise UnknownNameError("training set", train, [*ALL_SETS, *known])
    return _task_digest(known[train], run_dir)


def _task_digest(info: Task, run_dir: RunDir) -> str:
    return f"{info.name}:{task_digest(info.name, run_dir.data_dir(info.folder))}"
