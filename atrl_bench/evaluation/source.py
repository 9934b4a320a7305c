"""Where a benchmark's files are, and what names them in a key: their contents, wherever they came from.

The tables come from a data folder or from the hub. Images and videos beside them lie in the data folder as the rows
name them, or where `fetch` has laid them out.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from atrl_bench.data.layout import is_whole, path_inside, split_files
from atrl_bench.data.repository import Repository, listing
from atrl_bench.data.source import DatasetPart, Folder, OnHub, Source, is_laid_out, laid_out_folder
from atrl_bench.data.tables import parquet_schema, read_parquet
from atrl_bench.digests import digest_of_hashes, sha256_of
from atrl_bench.errors import MissingDataError, NotFetchedError
from atrl_bench.evaluation.contents import rows_digest, was_made
from atrl_bench.evaluation.published import published
from atrl_bench.evaluation.tasks import Task

ARCHIVES = ("*.zip", "*.tar", "*.tar.*", "*.tgz")


def parquet_files(task: Task, data_dir: Path | None) -> list[Path]:
    """Return the files that hold the benchmark's split: below `data_dir`, or the hub's, fetched where missing."""
    source = _source(task, data_dir)
    return source.paths(_tables(task, source))


def is_here(task: Task, data_dir: Path | None) -> bool:
    """Return whether the benchmark's rows, and any videos, are on this machine."""
    if data_dir is None and (task.hub_id is None or _media(task)) and not is_laid_out(task.folder):
        return False
    if data_dir is None and task.hub_id is not None and not _repository(task).folder.is_dir():
        return False  # nothing of it was ever fetched: no reason to ask the hub
    try:
        source = _source(task, data_dir)
        has_rows = source.is_here(_tables(task, source))
    except MissingDataError:
        return False
    return has_rows and (task.media != "video" or any(media_folder(task, data_dir).rglob("*.mp4")))


def data_digest(task: Task, data_dir: Path | None) -> str:
    """Return what names the benchmark's data: a hash of its tables and of the images and videos beside them.

    Tables are named by their place among the others, so that layouts may name them as they like. It is the same from
    the hub, whose listing has the hashes, and from a folder with the same files.
    """
    source = _source(task, data_dir)
    names = _tables(task, source)
    ordinals = [f"{task.split}-{number:05d}-of-{len(names):05d}.parquet" for number in range(len(names))]
    media = media_files(task, data_dir)
    hashes = [*zip(ordinals, _hashes(task, source, names), strict=True)]
    return digest_of_hashes([*hashes, *zip((path.name for path in media), sha256_of(media), strict=True)])


def _hashes(task: Task, source: Source, names: list[str]) -> list[str]:
    """Return a hash of each table: of its bytes, or of its rows where each machine writes it for itself."""
    sums = source.sha256(names)
    if published(task.folder).made is None:
        return sums
    paths = source.paths(names)
    return [rows_digest(path) if was_made(path) else sha256 for path, sha256 in zip(paths, sums, strict=True)]


def media_folder(task: Task, data_dir: Path | None) -> Path:
    """Return the folder in which the benchmark's videos and other files lie as its rows name them."""
    if data_dir is None and not is_laid_out(task.folder):
        raise NotFetchedError(
            f"The videos of {task.title} are not here yet.",
            why=f"They are in {_media_words(task)}.",
            next_step=f"atrl-bench fetch {task.name}, or give a --data-dir that has them",
        )
    return laid_out_folder(task.folder) if data_dir is None else data_dir / task.folder


def media_files(task: Task, data_dir: Path | None) -> list[Path]:
    """Return those files on this machine that the rows of a benchmark with videos name; none for one of images.

    A name that leads out of the benchmark's folder is passed over here; its row is skipped when it is asked about.
    """
    if not task.shows_videos:
        return []
    folder = media_folder(task, data_dir)  # tells what to do before the rows are fetched for nothing
    files = parquet_files(task, data_dir)
    columns = [column.name for column in parquet_schema(files[0]) if "binary" not in str(column.type)]  # not the images
    rows = [row for file in files for row in read_parquet(file, columns).to_pylist()]
    paths = sorted({folder / name for row in rows for name in _media_of(task, row)})
    present = [path for path in paths if _is_inside(folder, path) and os.path.isfile(path)]
    if paths and not present:
        raise _nothing_to_show(task, folder, paths)
    return present


def _media_of(task: Task, row: dict[str, Any]) -> list[str]:
    """Return the files that a row names; none where it is no row of this benchmark, and is left out for that."""
    try:
        return list(task.code.media(row))
    except (TypeError, AttributeError, LookupError):
        return []


def parts(task: Task) -> tuple[DatasetPart, ...]:
    """Return which files of which repositories the benchmark needs: what `fetch` brings."""
    where = published(task.folder)
    if where.made is not None:
        return tuple(item.part for item in where.made.sources if item.hub_id)
    assert task.hub_id is not None
    tables = tuple(_tables(task, _source(task, None)))
    return (DatasetPart(task.hub_id, tables=tables, revision=task.revision), *_media(task))


def _media(task: Task) -> tuple[DatasetPart, ...]:
    where = published(task.folder)
    if not (where.files or where.archives):
        return ()
    hub_id, revision = (where.media, None) if where.media else (str(task.hub_id), task.revision)
    return (DatasetPart(hub_id, files=where.files, archives=where.archives, revision=revision),)


def _repository(task: Task) -> Repository:
    return Repository("dataset", str(task.hub_id), task.revision)


def _source(task: Task, data_dir: Path | None) -> Source:
    if data_dir is not None:
        return Folder(data_dir / task.folder)
    if task.hub_id is not None:
        return OnHub(listing(_repository(task)))
    if not is_laid_out(task.folder):
        raise NotFetchedError(
            f"{task.title} is not on the hub as one dataset.",
            why=f"It is made from {_made_words(task)}.",
            next_step=f"atrl-bench fetch {task.name} makes it, or give a --data-dir with {task.folder}/",
        )
    return Folder(laid_out_folder(task.folder))


def _tables(task: Task, source: Source) -> list[str]:
    """Return the files of the split: those that the publisher names, where they are, else those named after it."""
    everything, named = source.match("**/*.parquet"), published(task.folder).tables
    present = [name for name in named if name in everything]
    names = present or split_files(everything, task.split, task.hub_config)
    if not names:
        raise _no_tables(task, source, everything)
    if (present and len(present) < len(named)) or not is_whole(names):
        raise MissingDataError(
            f"A part of the {task.title} data in {source} is missing.",
            why=f"There are only {', '.join(names)}.",
            next_step="copy the other files beside them",
        )
    return names


def _no_tables(task: Task, source: Source, everything: list[str]) -> MissingDataError:
    subset = f", subset {task.hub_config}," if task.hub_config else ""
    origin = f" of {task.hub_id}{subset}" if task.hub_id else ""
    download = f"hf download --repo-type dataset {task.hub_id} --local-dir DATA/{task.folder}"
    return MissingDataError(
        f"There is no {task.title} data in {source}.",
        why=f"Expected {task.split}*.parquet{origin}; there is {', '.join(everything[:6]) or 'no Parquet file'}.",
        next_step=f"{download}, and give --data-dir DATA; or move {source} away and take the hub's"
        if task.hub_id
        else f"move {source} away, and atrl-bench fetch {task.name}",
    )


def _is_inside(folder: Path, path: Path) -> bool:
    try:
        path_inside(folder, str(path.relative_to(folder)))
    except ValueError:
        return False
    return True


def _nothing_to_show(task: Task, folder: Path, paths: list[Path]) -> MissingDataError:
    packed = sorted(path.name for pattern in ARCHIVES for path in folder.glob(pattern))
    what = f"None of the {len(paths)} files that {task.title} shows is in {folder}."
    if packed:
        return MissingDataError(
            what,
            why=f"The archives that hold them are not unpacked: {', '.join(packed[:6])}.",
            next_step=f"cd {folder}, and unpack them there as the docstring of {task.module_path.name} says",
        )
    return MissingDataError(
        what,
        why=f"The first is {paths[0]}; they are in {_media_words(task)}. {task.module_path.name} says where each goes.",
        next_step=f"atrl-bench fetch {task.name} brings them without --data-dir",
    )


def _media_words(task: Task) -> str:
    """Return where the images and videos are published, in words."""
    return "; ".join(
        f"{', '.join((*part.archives, *part.files))} of the hub's dataset {part.hub_id}" for part in _media(task)
    )


def _made_words(task: Task) -> str:
    made = published(task.folder).made
    return " and ".join(item.url or str(item.hub_id) for item in made.sources) if made else "nothing that is published"
