"""`atrl-bench overlap`: test problems that are in the training data, counted, listed and remembered for the tables."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from atrl_bench.errors import UnknownNameError
from atrl_bench.escape import one_line
from atrl_bench.experiments.run_dir import RunDir, recalled
from atrl_bench.results.files import write_atomically

if TYPE_CHECKING:
    from atrl_bench.analysis.contamination.search import Item, Tally
    from atrl_bench.evaluation.tasks import Task

FILE = "overlap.json"
IN_FLIGHT = 64  # problems with their pictures in memory at a time
NUM_SHOWN = 10

InT = TypeVar("InT")
OutT = TypeVar("OutT")


def overlap(
    train: str,
    tasks: Sequence[str],
    run_dir: RunDir,
    *,
    on_progress: Callable[[int], None] | None = None,
) -> list[dict[str, Any]]:
    """Return a record a task: how many of its problems are in `train`, in which way, and the pairs.

    `train` is a training set, or another task: benchmarks are made from one another. It is read once, whatever the
    number of tasks. The counts are kept in the run folder for `overlap_counts`.
    """
    from atrl_bench.analysis.contamination.search import ProblemIndex, Tally
    from atrl_bench.evaluation.tasks import expand

    infos = expand(tasks)
    train_digest = _train_digest(train, run_dir)
    with warnings.catch_warnings():
        from PIL import Image

        # Set once for all threads: filters are the process's. A picture that claims to be enormous is not decoded.
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        tests = {info.name: list(_task_items(info, run_dir)) for info in infos}
        tallies = {task: Tally(ProblemIndex([item for item, _ in items])) for task, items in tests.items()}
        num_read = num_unreadable = 0
        for item, unreadable in _train_items(train, run_dir):
            num_read, num_unreadable = num_read + 1, num_unreadable + unreadable
            for tally in tallies.values():
                tally.add([item])
            if on_progress is not None and num_read % IN_FLIGHT == 0:
                on_progress(num_read)
    digests = {info.name: _task_digest(info, run_dir) for info in infos}
    records = [
        _record(tally, train, task, num_unreadable, f"{train_digest}/{digests[task]}")
        for task, tally in tallies.items()
    ]
    _remember(run_dir, records)
    return records


def _record(tally: Tally, train: str, task: str, num_unreadable: int, key: str) -> dict[str, Any]:
    from atrl_bench.analysis.contamination import likeness
    from atrl_bench.analysis.contamination.search import FOUND

    counts, num_problems = tally.counts(), len(tally.index.items)
    num_found = sum(counts[kind] for kind in FOUND)
    return {
        "train": train,
        "task": task,
        "data": key,
        "version": likeness.VERSION,
        "num_train": tally.num_train,
        "num_unreadable_pictures": num_unreadable,
        "num_problems": num_problems,
        "num_overlapping": num_found,
        "share": num_found / num_problems if num_problems else 0.0,
        "counts": counts,
        "num_distinctive": tally.num_distinctive(),
        "min_containment": likeness.MIN_CONTAINMENT,
        "max_distance": likeness.MAX_DISTANCE,
        "pairs": [
            {
                "test": pair.test_id,
                "train": pair.train_id,
                "kind": pair.kind,
                "text": round(pair.likeness, 3),
                "picture": None if pair.distance is None else round(pair.distance, 3),
            }
            for pair in tally.listed()
        ],
    }


# Both sets as fingerprints --------------------------------------------------------------------------------------------


def _train_items(train: str, run_dir: RunDir) -> Iterator[tuple[Item, int]]:
    from atrl_bench.training.data import TRAINING_SETS, Problem, stream_problems

    if train not in TRAINING_SETS:
        from atrl_bench.evaluation.tasks import find_task

        return _task_items(find_task(train), run_dir)

    def read(problem: Problem) -> tuple[Item, int]:
        from atrl_bench.evaluation.hooks import open_image

        openers = [lambda image=image: [open_image(image)] for image in problem.cells()]
        return _item(problem.problem_id, problem.problem_id, problem.question, openers, is_video=bool(problem.videos))

    return _in_threads(read, stream_problems(train, run_dir.provide(train)))


def _task_items(info: Task, run_dir: RunDir) -> Iterator[tuple[Item, int]]:
    from atrl_bench.evaluation.tasks import load_rows

    def read(row: Any) -> tuple[Item, int]:
        task = info.module
        # Frames of a video are not compared; its question is, as one that shows something else.
        is_video = info.media == "video"
        openers = [] if is_video else [lambda: task.images(row)]
        return _item(task.problem_id(row), task.group(row), task.question(row), openers, is_video=is_video)

    return _in_threads(read, iter(load_rows(info, run_dir.provide(info.folder))))


def _item(
    item_id: str, group: str, question: str, openers: Sequence[Callable[[], Any]], *, is_video: bool = False
) -> tuple[Item, int]:
    """Return a problem's fingerprints and how many times its pictures could not be read."""
    from atrl_bench.analysis.contamination.likeness import read_picture, read_text
    from atrl_bench.analysis.contamination.search import Item

    pictures, unreadable = [], 0
    for open_pictures in openers:
        try:
            pictures += [read_picture(image) for image in open_pictures()]
        except Exception:  # whatever a decoder raises on damaged bytes: counted, and shown in the report
            unreadable += 1
    is_shown = is_video or bool(pictures) or unreadable > 0
    return Item(str(item_id), str(group), read_text(question), tuple(pictures), is_shown), unreadable


def _in_threads(function: Callable[[InT], OutT], values: Iterable[InT]) -> Iterator[OutT]:
    """Yield the results in order with a bounded number in flight; `map` of a pool would read everything at once."""
    values = iter(values)
    with ThreadPoolExecutor() as pool:
        while batch := list(islice(values, IN_FLIGHT)):
            yield from pool.map(function, batch)


# What a table reads ---------------------------------------------------------------------------------------------------


def overlap_counts(run_dir: RunDir, train: str, task: str) -> dict[str, Any] | None:
    """Return what was found of `task` in `train`, as their data is now, or None if nobody has looked."""
    from atrl_bench.analysis.contamination import likeness
    from atrl_bench.evaluation.tasks import find_task

    key = f"{_train_digest(train, run_dir)}/{_task_digest(find_task(task), run_dir)}"
    found = recalled(run_dir.root / FILE).get(key)
    return found if isinstance(found, dict) and found.get("version") == likeness.VERSION else None


def overlap_note(run_dir: RunDir, train: str, tasks: Sequence[str]) -> str:
    """Return the sentence a table says about its training set and its benchmarks."""
    found = {task: overlap_counts(run_dir, train, task) for task in tasks}
    seen = [
        f"{counts['num_overlapping']} of {counts['num_problems']} {task}" for task, counts in found.items() if counts
    ]
    missing = [task for task, counts in found.items() if counts is None]
    parts = [f"Test problems found in {train} by text and picture: {', '.join(seen)}."] if seen else []
    if missing:
        # Without the folder's place: a page is the same wherever its folder lies.
        command = f"atrl-bench overlap {train} {','.join(missing)} --profile {run_dir.profile.name}"
        parts.append(f"Not searched for in {train}: {command}")
    return " ".join(parts)


def _remember(run_dir: RunDir, records: Sequence[dict[str, Any]]) -> None:
    known = recalled(run_dir.root / FILE)
    for record in records:
        known[record["data"]] = {name: value for name, value in record.items() if name not in ("pairs", "data")}
    write_atomically(run_dir.root / FILE, (json.dumps(known, indent=1, sort_keys=True) + "\n").encode())


def _train_digest(train: str, run_dir: RunDir) -> str:
    from atrl_bench.evaluation.tasks import find_task, list_tasks
    from atrl_bench.training.data import TRAINING_SETS, data_digest

    if train in TRAINING_SETS:
        return data_digest(train, run_dir.provide(train))
    tasks = [info.name for info in list_tasks()]
    if train not in tasks:
        raise UnknownNameError("training set", train, [*TRAINING_SETS, *tasks])
    return _task_digest(find_task(train), run_dir)


def _task_digest(info: Task, run_dir: RunDir) -> str:
    from atrl_bench.evaluation.tasks import data_digest

    return f"{info.name}:{data_digest(info, run_dir.provide(info.folder))}"


# In words -------------------------------------------------------------------------------------------------------------


def overlap_text(records: Sequence[dict[str, Any]]) -> str:
    """Return the records as a person reads them, eighty columns wide."""
    blocks = [_block(record) for record in records]
    if records:
        containment, distance = 100 * records[0]["min_containment"], 100 * records[0]["max_distance"]
        blocks.append(
            f"Same text: equal without case, spacing, markup and options, or {containment:.0f} % of the\n"
            f"four-word runs and all numbers. Same picture: equal pixels, or at most {distance:.0f} % of\n"
            "the edges different. --json lists every pair."
        )
    return "\n\n".join(blocks)


def _block(record: dict[str, Any]) -> str:
    from atrl_bench.analysis.contamination.search import FOUND, OTHER_PICTURE

    lines = [
        f"{record['task']} ({record['num_problems']:,} problems) in {record['train']} ({record['num_train']:,})",
        f"  {'found':<28} {record['num_overlapping']:>6,}   {100 * record['share']:.2f} %",
    ]
    lines += [f"    {kind:<26} {record['counts'][kind]:>6,}" for kind in FOUND]
    num_other = record["counts"][OTHER_PICTURE]
    lines.append(f"  {'not counted':<28} {num_other:>6,}   {OTHER_PICTURE}")
    if record["num_distinctive"]:
        lines.append(f"    {'to be looked at':<26} {record['num_distinctive']:>6,}   text found once in either set")
    if record["num_unreadable_pictures"]:
        lines.append(f"  {'unreadable pictures':<28} {record['num_unreadable_pictures']:>6,}   compared by text alone")
    pairs = record["pairs"]
    lines += [f"  {_pair(pair)}" for pair in pairs[:NUM_SHOWN]]
    if len(pairs) > NUM_SHOWN:
        lines.append(f"  … and {len(pairs) - NUM_SHOWN:,} more")
    return "\n".join(lines)


def _pair(pair: dict[str, Any]) -> str:
    names = f"{one_line(pair['test'])[:20]:<20} = {one_line(pair['train'])[:20]:<20}"
    text = "same" if pair["text"] == 1 else f"{100 * pair['text']:.0f} %" if pair["text"] else "other"
    picture = (
        "other" if pair["picture"] is None else "same" if not pair["picture"] else f"{100 * pair['picture']:.0f} % off"
    )
    return f"{names}  text {text:<5} picture {picture}"
