"""Where a training set's files are, and what names them in a key: their contents, wherever they came from.

A set that embeds its images is read from a data folder or from the hub alike. One with images or videos in archives is
read from a data folder, or from where `fetch` has laid it out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atrl_bench.data.layout import is_whole, own_file, split_files
from atrl_bench.data.repository import Repository, listing
from atrl_bench.data.source import DatasetPart, Folder, OnHub, Source, is_laid_out, laid_out_folder, lay_out
from atrl_bench.data.tables import read_parquet, reading
from atrl_bench.digests import sha256_of
from atrl_bench.errors import MissingDataError, NotFetchedError
from atrl_bench.training.problem import media_names
from atrl_bench.training.rewards.steps import key_step_file
from atrl_bench.training.sets import describe, folder_of

if TYPE_CHECKING:
    import pyarrow

STREAM_ROWS = 64
MAX_HASHED_BYTES = 1 << 30  # of the files beside a table
TABLE_FOLDERS = ("", "data/", "default/train/")  # where hub repositories have their tables
JSON_SUFFIXES = (".json", ".jsonl")


def root_of(name: str, data_dir: Path | None) -> Path:
    """Return the folder below which the set's rows name their files, and in which its key steps are."""
    if data_dir is None and describe(name).media and not describe(name).rejected:
        return laid_out_folder(folder_of(name))
    return (data_dir or Path()) / folder_of(name)


def table_files(name: str, data_dir: Path | None) -> list[Path]:
    """Return the files that hold the set's rows, fetched from the hub where they are not on this machine."""
    source, names = _tables(name, data_dir)
    return source.paths(names)


def is_here(name: str, data_dir: Path | None) -> bool:
    """Return whether the set's tables, and where it has them its images and videos, are on this machine."""
    if data_dir is None and not describe(name).media and not _repository(name).folder.is_dir():
        return False  # nothing of it was ever fetched: no reason to ask the hub
    try:
        source, names = _tables(name, data_dir)
    except MissingDataError:
        return False
    return source.is_here(names)


def data_digest(name: str, data_dir: Path | None) -> str:
    """Return what identifies the data in a run's key: a hash of the tables and of what their rows show.

    It is the same from the hub, whose listing has the hashes of its files, and from a folder with the same files.
    Images and videos beside the table are hashed too, up to a gigabyte by content. Video-R1's are hundreds: of those
    the names and sizes are.
    """
    described, digest = describe(name), hashlib.sha256()
    source, names = _tables(name, data_dir)
    for sha256 in source.sha256(names):
        digest.update(bytes.fromhex(sha256))
    if (path := root_of(name, data_dir) / key_step_file(name)).is_file():
        digest.update(path.read_bytes())
    if described.media:
        root = root_of(name, data_dir)
        files = {file: own_file(root, file) for file in _named_files(name, data_dir)}
        sizes = {file: path.stat().st_size for file, path in files.items() if path.is_file()}
        by_content = sum(sizes.values()) <= MAX_HASHED_BYTES
        sums = sha256_of([files[file] for file in sizes]) if by_content else map(_sum_of_size, sizes.values())
        for file, sha256 in zip(sizes, sums, strict=True):
            digest.update(file.encode() + bytes.fromhex(sha256))
    return digest.hexdigest()[:16]


def _sum_of_size(size: int) -> str:
    return hashlib.sha256(str(size).encode()).hexdigest()


def _named_files(name: str, data_dir: Path | None) -> list[str]:
    """Return the files that the rows of a set name, each once, sorted; none where the table embeds its images."""
    import pyarrow

    table, media = read_table(name, data_dir), describe(name).media
    if media not in table.column_names or pyarrow.types.is_struct(table.schema.field(media).type):
        return []
    return sorted({file for cell in table[media].to_pylist() for file in media_names(cell)})


def read_table(name: str, data_dir: Path | None) -> pyarrow.Table:
    """Return all rows of the set, images that the table embeds still encoded."""
    import pyarrow

    files = table_files(name, data_dir)
    if files[0].suffix in JSON_SUFFIXES:
        rows = [row for file in files for row in _json_rows(file)]
        with reading(files[0].parent):  # rows of several types make no table
            return pyarrow.Table.from_pylist(rows)
    tables = [read_parquet(path) for path in files]
    with reading(files[0].parent):
        return pyarrow.concat_tables(tables)


def stream_batches(name: str, data_dir: Path | None) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of the set with a few dozen of them in memory at a time."""
    import pyarrow.parquet

    paths = table_files(name, data_dir)
    if paths[0].suffix in JSON_SUFFIXES:
        yield from read_table(name, data_dir).to_batches(max_chunksize=STREAM_ROWS)
        return
    for path in paths:
        with reading(path):
            file = pyarrow.parquet.ParquetFile(path)
            # Group by group: asked for the whole file, pyarrow reads ahead until all of it is in memory.
            for group in range(file.num_row_groups):
                yield from file.iter_batches(STREAM_ROWS, row_groups=[group])


def parts(name: str) -> tuple[DatasetPart, ...]:
    """Return which files of which repository the set needs."""
    described = describe(name)
    source = OnHub(listing(_repository(name)))
    tables = tuple(_table_names(source, described.tables))
    return (
        DatasetPart(
            described.hub_id, tables=tables, archives=described.archives, unpack_beside=described.unpack_beside
        ),
    )


def fetch(name: str) -> Path:
    """Return the folder with the set's tables; all that it needs is on this machine then."""
    if describe(name).media:
        return lay_out(folder_of(name), parts(name))
    return table_files(name, None)[0].parent


def _json_rows(path: Path) -> list[dict[str, Any]]:
    with reading(path):
        text = path.read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines() if line] if path.suffix == ".jsonl" else json.loads(text)


def _tables(name: str, data_dir: Path | None) -> tuple[Source, list[str]]:
    """Return where the set is, and which of the files there hold its rows."""
    described = describe(name)
    if described.rejected:
        return Folder(Path(name).parent), [Path(name).name]
    source = _source(name, data_dir)
    names = _table_names(source, described.tables)
    if not names and data_dir is None and described.media:
        raise _not_fetched(name)  # what is there was fetched for another set in the same folder
    if not names:
        folder = source if data_dir is not None else "DATA/" + folder_of(name)
        raise MissingDataError(
            f"There is no table of training set {name} in {source}.",
            why=f"Expected {described.tables[0]}*.parquet or {described.tables[0]}.json, there or in its folder data.",
            next_step=f"hf download {described.hub_id} --repo-type dataset --local-dir {folder}"
            + (", and unpack its archives" if described.archives else "")
            + ("" if data_dir is None else "; or leave --data-dir out"),
        )
    if not is_whole(names):
        raise MissingDataError(
            f"A part of training set {name} in {source} is missing.",
            why=f"There are only {', '.join(names)}.",
            next_step="copy the other files beside them",
        )
    return source, names


def _repository(name: str) -> Repository:
    return Repository("dataset", describe(name).hub_id)


def _source(name: str, data_dir: Path | None) -> Source:
    described, folder = describe(name), folder_of(name)
    if data_dir is not None:
        return Folder(data_dir / folder)
    if not described.media:
        return OnHub(listing(_repository(name)))
    if not is_laid_out(folder):
        raise _not_fetched(name)
    return Folder(laid_out_folder(folder))


def _not_fetched(name: str) -> NotFetchedError:
    described = describe(name)
    return NotFetchedError(
        f"Training set {name} is not here yet.",
        why=f"{described.hub_id} has its images and videos in archives: {', '.join(described.archives)}.",
        next_step=f"atrl-bench fetch {name}, or give a --data-dir that has it as {folder_of(name)}/",
    )


def _table_names(source: Source, stems: tuple[str, ...]) -> list[str]:
    """Return the files of the first table that is there: Parquet files, in parts or not, or a JSON file."""
    parquet = [name for folder in TABLE_FOLDERS for name in source.match(f"{folder}*.parquet")]
    for stem in stems:
        found = split_files(parquet, stem) or [name for end in JSON_SUFFIXES for name in source.match(f"{stem}{end}")]
        if found:
            return [name for name in found if not name.endswith(f".key_steps{JSON_SUFFIXES[1]}")]
    return []
