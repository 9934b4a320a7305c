"""The benchmarks in `tasks/`: which there are, where their rows come from, and each row as a problem.

Reads the task files the way lmms-eval does, without importing lmms-eval, torch or datasets: `list`, `plan` and a
finished cell need none of them.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import yaml

from atrl_bench.digests import file_digest, spec_key
from atrl_bench.errors import InvalidFileError, MissingDataError, UnknownNameError
from atrl_bench.evaluation import hooks
from atrl_bench.evaluation.hooks import Row
from atrl_bench.fingerprint import code_fingerprint
from atrl_bench.models import hub
from atrl_bench.resources import folder
from atrl_bench.results.records import Problem

if TYPE_CHECKING:
    from datasets import Dataset

FUNCTION = "!function "  # before the name of a Python function in a task file
PRINTED = ("title", "metric", "note")  # what a task file says for readers alone
LMMS_EVAL_PREFIX = "atrl_"  # of two tasks with one name lmms-eval takes its own, so ours have names it does not know


@dataclass(frozen=True)
class Task:
    """One benchmark: its names, its data and its files."""

    name: str  # in our commands and tables
    title: str  # in print
    version: str  # changes with anything in the task's code or settings that could change a number
    split: str
    folder: str  # the folder inside `--data-dir`
    num_rows: int  # of the published split
    hub_id: str | None  # None: only ever on this machine
    hub_config: str | None
    revision: str | None  # of the hub's dataset, where the task file pins one
    metric: str  # how an answer is scored, in print
    media: str  # what a problem shows: images, none, video, or "images and video" in files of their own
    needs: tuple[str, ...]  # what the task asks for beside its data, such as a judge
    note: str  # what a reader of the number has to know, in print
    yaml_path: Path
    module_path: Path  # splits of one benchmark share it

    @property
    def shows_videos(self) -> bool:
        """Whether some problem has a video, which lies in a file of its own."""
        return "video" in self.media

    @property
    def lmms_eval_name(self) -> str:
        """The name of this task inside lmms-eval."""
        return LMMS_EVAL_PREFIX + self.name

    def data_folder(self, data_dir: Path) -> Path:
        """Return where the benchmark's files are below `data_dir`, laid out as on the hub or all in one folder."""
        subset = data_dir / self.folder / (self.hub_config or "")
        return subset if subset.is_dir() else data_dir / self.folder

    @property
    def module(self) -> ModuleType:
        """The task's Python file, imported once."""
        return _module(self.module_path)


@dataclass(frozen=True)
class Suite:
    """A benchmark whose number is the mean over several tasks."""

    name: str
    title: str
    tasks: tuple[str, ...]


class _TaskLoader(yaml.SafeLoader):
    """Reads a task file without importing the functions it names."""


_TaskLoader.add_constructor("!function", lambda loader, node: FUNCTION + node.value)


@cache
def list_tasks() -> tuple[Task, ...]:
    """Return every benchmark in `tasks/`, by name."""
    configs = ((path, _read(path)) for path in sorted(folder("tasks").glob("[a-z]*.yaml")))
    return tuple(_task_info(path, config) for path, config in configs if "group" not in config)


@cache
def list_suites() -> tuple[Suite, ...]:
    """Return every group of tasks in `tasks/`, by name."""
    configs = (_read(path) for path in sorted(folder("tasks").glob("[a-z]*.yaml")))
    return tuple(
        Suite(
            config["group"].removeprefix(LMMS_EVAL_PREFIX),
            config["metadata"]["title"],
            tuple(name.removeprefix(LMMS_EVAL_PREFIX) for name in config["task"]),
        )
        for config in configs
        if "group" in config
    )


def expand(names: Sequence[str]) -> list[Task]:
    """Return the tasks that these names of tasks and suites stand for, each once, in this order."""
    suites = {suite.name: suite.tasks for suite in list_suites()}
    known = [*(info.name for info in list_tasks()), *suites]
    for name in names:
        if name not in known:
            raise UnknownNameError("task", name, known, next_step="atrl-bench list tasks")
    return [find_task(name) for name in dict.fromkeys(part for name in names for part in suites.get(name, (name,)))]


def find_task(name: str) -> Task:
    """Return the benchmark called `name`."""
    known = {info.name: info for info in list_tasks()}
    if name not in known:
        raise UnknownNameError("task", name, known, next_step="atrl-bench list tasks")
    return known[name]


def _task_info(path: Path, config: dict[str, Any]) -> Task:
    data = config["metadata"]
    local = config["dataset_path"] == "parquet"
    module_path, *others = _hook_files(path, config)
    return Task(
        name=config["task"].removeprefix(LMMS_EVAL_PREFIX),
        title=data["title"],
        version=f"{data['version']}-{_fingerprint([module_path, *others], config)}",
        split=config["test_split"],
        folder=data["folder"],
        num_rows=data["num_rows"],
        hub_id=None if local else config["dataset_path"],
        hub_config=config.get("dataset_name"),
        revision=(config.get("dataset_kwargs") or {}).get("revision"),
        metric=data.get("metric", "accuracy"),
        media=data.get("media", "images"),
        needs=tuple(data.get("needs", ())),
        note=data.get("note", ""),
        yaml_path=path,
        module_path=module_path,
    )


def _read(path: Path) -> dict[str, Any]:
    config = yaml.load(path.read_text(encoding="utf-8"), _TaskLoader)
    return {**_read(path.parent / config.pop("include")), **config} if "include" in config else config


def _hook_files(path: Path, config: dict[str, Any]) -> list[Path]:
    """Return the Python files beside a task file whose functions it names, the one of `process_docs` first."""
    hooks = [config["process_docs"], *(hook for hook in config.values() if str(hook).startswith(FUNCTION))]
    files = [path.with_name(hook.removeprefix(FUNCTION).split(".")[0] + ".py") for hook in hooks]
    return [file for file in dict.fromkeys(files) if file.is_file()]


def _fingerprint(files: Sequence[Path], config: Mapping[str, Any]) -> str:
    """Return a hash of all that the task's files do: wording, comments, imports and local names may change."""
    metadata = {name: value for name, value in config["metadata"].items() if name not in PRINTED}
    settings = {name: _without_module(value) for name, value in config.items()} | {"metadata": metadata}
    return spec_key({"settings": settings, "code": code_fingerprint(files), "hooks": hooks.VERSION})[:8]


def _without_module(setting: Any) -> Any:
    """Return a setting of a task file that names the functions in it by their own names alone."""
    if isinstance(setting, str) and setting.startswith(FUNCTION):
        return FUNCTION + setting.rpartition(".")[2]
    if isinstance(setting, dict):
        return {name: _without_module(value) for name, value in setting.items()}
    return [_without_module(item) for item in setting] if isinstance(setting, list) else setting


@cache
def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"atrl_bench_tasks.{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


# Rows -------------------------------------------------------------------------------------------------------------


def parquet_files(info: Task, data_dir: Path | None) -> list[Path]:
    """Return the files that hold the benchmark's split: below `data_dir`, or the hub's, fetched where missing."""
    if data_dir is None:
        return hub.fetch(_on_hub(info))
    folder = data_dir / info.folder
    names = hub.split_files(hub.list_files(folder), info.split, info.hub_config)
    if not names:
        raise MissingDataError(
            f"There is no {info.title} data in {data_dir}.",
            why=f"Expected {info.data_folder(data_dir)}/{info.split}*.parquet.",
            next_step="give another --data-dir, or leave it out to use the hub's data",
        )
    if not hub.is_whole(names):
        raise MissingDataError(
            f"A part of the {info.title} data in {folder} is missing.",
            why=f"There are only {', '.join(names)}.",
            next_step="copy the other files beside them",
        )
    return [folder / name for name in names]


def is_here(info: Task, data_dir: Path | None) -> bool:
    """Return whether the benchmark's rows, and any videos, are on this machine; asks no network."""
    if data_dir is not None:
        folder = data_dir / info.folder
        has_rows = hub.is_whole(hub.split_files(hub.list_files(folder), info.split, info.hub_config))
        return has_rows and (info.media != "video" or any(folder.rglob("*.mp4")))
    if info.shows_videos:  # the hub has them in archives only
        return False
    return info.hub_id is not None and hub.is_downloaded(info.hub_id, info.split, info.hub_config, info.revision)


def data_digest(info: Task, data_dir: Path | None) -> str:
    """Return what names the benchmark's data: the hash of the local files, or the hub dataset with its commit."""
    if data_dir is not None:
        return file_digest([*parquet_files(info, data_dir), *media_files(info, data_dir)])
    if info.shows_videos:
        media_folder(info, data_dir)  # tells what to do before the rows are fetched for nothing
    where = _on_hub(info)
    return f"{where.hub_id}@{where.commit}"


def load_rows(info: Task, data_dir: Path | None, limit: int | None = None) -> Dataset:
    """Return the benchmark's rows with images still encoded, numbered, the first `limit` of them."""
    import datasets

    tables = [_read_table(str(path)) for path in parquet_files(info, data_dir)]
    rows = datasets.concatenate_datasets([datasets.Dataset(table) for table in tables])
    missing = [column for column in info.module.COLUMNS if column not in rows.column_names]
    if missing:
        raise InvalidFileError(
            f"The {info.title} data in {data_dir or info.hub_id} has no column {', '.join(map(repr, missing))}.",
            why=f"It has {', '.join(rows.column_names)}.",
            next_step="give a --data-dir with the columns of the published dataset",
        )
    if info.shows_videos:
        rows = rows.add_column(hooks.MEDIA_ROOT, [str(media_folder(info, data_dir))] * len(rows))
    rows = info.module.process_docs(rows)
    return rows if limit is None else rows.select(range(min(limit, len(rows))))


def _read_table(path: str) -> Any:
    import datasets
    import pyarrow.parquet as pq

    # Straight from the file: `load_dataset` would first write a second copy of it into its cache.
    table = pq.read_table(path)
    described = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}")).get("info", {}).get("features")
    features = datasets.Features.from_dict(described) if described else _guessed_features(table.schema)
    return datasets.table.InMemoryTable(table.cast(features.arrow_schema))


def _guessed_features(schema: Any) -> Any:
    import datasets
    import pyarrow as pa

    features = datasets.Features.from_arrow_schema(schema)
    for field in schema:
        if pa.types.is_struct(field.type) and {child.name for child in field.type} == {"bytes", "path"}:
            features[field.name] = datasets.Image()
    return features


def media_folder(info: Task, data_dir: Path | None) -> Path:
    """Return the folder in which the benchmark's videos and other files lie as its rows name them."""
    if data_dir is None:
        raise MissingDataError(
            f"The videos of {info.title} come in archives, which are not unpacked unasked.",
            why=f"The docstring of {info.module_path} says which of them belong where.",
            next_step=f"hf download --repo-type dataset {info.hub_id} --local-dir DATA/{info.folder}, unpack them, "
            "and give --data-dir DATA",
        )
    return data_dir / info.folder


def media_files(info: Task, data_dir: Path) -> list[Path]:
    """Return those files on this machine that the rows of a benchmark with videos name; none for one of images."""
    if not info.shows_videos:
        return []
    import pyarrow.parquet as pq

    files, folder = parquet_files(info, data_dir), media_folder(info, data_dir)
    columns = [field.name for field in pq.read_schema(files[0]) if "binary" not in str(field.type)]  # not the images
    rows = [row for file in files for row in pq.read_table(file, columns=columns).to_pylist()]
    named = sorted({folder / name for row in rows for name in info.module.media(row)})
    found = [path for path in named if path.is_file()]
    if named and not found:
        raise MissingDataError(
            f"None of the {len(named)} files that {info.title} shows is in {folder}.",
            why=f"The first is {named[0]}.",
            next_step=f"unpack the archives as the docstring of {info.module_path} says",
        )
    return found


def _on_hub(info: Task) -> hub.SplitOnHub:
    if info.hub_id is None:
        raise MissingDataError(
            f"{info.title} is not on the hub as one dataset.",
            why=f"{info.yaml_path.with_suffix('.py')} says where its questions and images are and joins them.",
            next_step=f"make {info.folder}/{info.split}.parquet with that file and give its folder as --data-dir",
        )
    return hub.locate(info.hub_id, info.split, info.hub_config, info.revision)


def without_images(rows: Dataset) -> Dataset:
    """Return the rows without their image columns: quick to go through."""
    import datasets

    return rows.remove_columns([name for name, kind in rows.features.items() if isinstance(kind, datasets.Image)])


def to_problem(info: Task, row: Row) -> Problem:
    """Return a row as the store keeps it: with its gold answer and everything its verdict depends on."""
    task = info.module
    meta = {name: row[name] for name in task.KEPT if name in row}
    if hasattr(task, "judge_question"):  # where a judge has to read what the model sees in the image
        meta["judge_question"] = task.judge_question(row)
    return Problem(task.problem_id(row), task.group(row), task.question(row), task.gold(row), meta)
