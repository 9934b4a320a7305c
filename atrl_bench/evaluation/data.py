"""The rows of a benchmark: where they are, which data they are exactly, and each as a problem."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atrl_bench.digests import file_digest
from atrl_bench.errors import InvalidFileError, MissingDataError
from atrl_bench.evaluation.hooks import MEDIA_ROOT, Row
from atrl_bench.evaluation.tasks import Task
from atrl_bench.models import hub
from atrl_bench.results.records import Problem

if TYPE_CHECKING:
    from datasets import Dataset


def parquet_files(task: Task, data_dir: Path | None) -> list[Path]:
    """Return the files that hold the benchmark's split: below `data_dir`, or the hub's, fetched where missing."""
    if data_dir is None:
        return hub.fetch(_on_hub(task))
    folder = data_dir / task.folder
    names = hub.split_files(hub.list_files(folder), task.split, task.hub_config)
    if not names:
        raise MissingDataError(
            f"There is no {task.title} data in {data_dir}.",
            why=f"Expected {task.data_folder(data_dir)}/{task.split}*.parquet.",
            next_step="give another --data-dir, or leave it out to use the hub's data",
        )
    if not hub.is_whole(names):
        raise MissingDataError(
            f"A part of the {task.title} data in {folder} is missing.",
            why=f"There are only {', '.join(names)}.",
            next_step="copy the other files beside them",
        )
    return [folder / name for name in names]


def is_here(task: Task, data_dir: Path | None) -> bool:
    """Return whether the benchmark's rows, and any videos, are on this machine; asks no network."""
    if data_dir is not None:
        folder = data_dir / task.folder
        has_rows = hub.is_whole(hub.split_files(hub.list_files(folder), task.split, task.hub_config))
        return has_rows and (task.media != "video" or any(folder.rglob("*.mp4")))
    if task.shows_videos:  # the hub has them in archives only
        return False
    return task.hub_id is not None and hub.is_downloaded(task.hub_id, task.split, task.hub_config, task.revision)


def data_digest(task: Task, data_dir: Path | None) -> str:
    """Return what names the benchmark's data: the hash of the local files, or the hub dataset with its commit."""
    if data_dir is not None:
        return file_digest([*parquet_files(task, data_dir), *media_files(task, data_dir)])
    if task.shows_videos:
        media_folder(task, data_dir)  # tells what to do before the rows are fetched for nothing
    split = _on_hub(task)
    return f"{split.hub_id}@{split.commit}"


def load_rows(task: Task, data_dir: Path | None, limit: int | None = None) -> Dataset:
    """Return the benchmark's rows with images still encoded, numbered, the first `limit` of them."""
    import datasets

    tables = [_read_table(str(path)) for path in parquet_files(task, data_dir)]
    rows = datasets.concatenate_datasets([datasets.Dataset(table) for table in tables])
    missing = [column for column in task.code.columns if column not in rows.column_names]
    if missing:
        raise InvalidFileError(
            f"The {task.title} data in {data_dir or task.hub_id} has no column {', '.join(map(repr, missing))}.",
            why=f"It has {', '.join(rows.column_names)}.",
            next_step="give a --data-dir with the columns of the published dataset",
        )
    if task.shows_videos:
        rows = rows.add_column(MEDIA_ROOT, [str(media_folder(task, data_dir))] * len(rows))
    rows = task.code.process_docs(rows)
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
    for column in schema:
        if pa.types.is_struct(column.type) and {part.name for part in column.type} == {"bytes", "path"}:
            features[column.name] = datasets.Image()
    return features


def media_folder(task: Task, data_dir: Path | None) -> Path:
    """Return the folder in which the benchmark's videos and other files lie as its rows name them."""
    if data_dir is None:
        raise MissingDataError(
            f"The videos of {task.title} come in archives, which are not unpacked unasked.",
            why=f"The docstring of {task.module_path} says which of them belong where.",
            next_step=f"hf download --repo-type dataset {task.hub_id} --local-dir DATA/{task.folder}, unpack them, "
            "and give --data-dir DATA",
        )
    return data_dir / task.folder


def media_files(task: Task, data_dir: Path) -> list[Path]:
    """Return those files on this machine that the rows of a benchmark with videos name; none for one of images."""
    if not task.shows_videos:
        return []
    import pyarrow.parquet as pq

    files, folder = parquet_files(task, data_dir), media_folder(task, data_dir)
    columns = [column.name for column in pq.read_schema(files[0]) if "binary" not in str(column.type)]  # not the images
    rows = [row for file in files for row in pq.read_table(file, columns=columns).to_pylist()]
    paths = sorted({folder / name for row in rows for name in task.code.media(row)})
    present = [path for path in paths if path.is_file()]
    if paths and not present:
        raise MissingDataError(
            f"None of the {len(paths)} files that {task.title} shows is in {folder}.",
            why=f"The first is {paths[0]}.",
            next_step=f"unpack the archives as the docstring of {task.module_path} says",
        )
    return present


def _on_hub(task: Task) -> hub.SplitOnHub:
    if task.hub_id is None:
        raise MissingDataError(
            f"{task.title} is not on the hub as one dataset.",
            why=f"{task.yaml_path.with_suffix('.py')} says where its questions and images are and joins them.",
            next_step=f"make {task.folder}/{task.split}.parquet with that file and give its folder as --data-dir",
        )
    return hub.locate(task.hub_id, task.split, task.hub_config, task.revision)


def without_images(rows: Dataset) -> Dataset:
    """Return the rows without their image columns: quick to go through."""
    import datasets

    return rows.remove_columns([name for name, kind in rows.features.items() if isinstance(kind, datasets.Image)])


def to_problem(task: Task, row: Row) -> Problem:
    """Return a row as the store keeps it: with its gold answer and everything its verdict depends on."""
    code = task.code
    meta = {name: row[name] for name in code.kept if name in row}
    if code.judge_question is not None:
        meta["judge_question"] = code.judge_question(row)
    return Problem(code.problem_id(row), code.group(row), code.question(row), code.gold(row), meta)
