"""A dataset, be it a benchmark or a training set: where its files are, and what names it in a key.

Its tables come from a data folder or from the hub. Images and videos beside them lie in the data folder as the rows
name them, or where `fetch` has laid them out. A key names the contents of all of them, wherever they came from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atrl_bench.data.archives import COMPLETE, ENDINGS
from atrl_bench.data.layout import Folder, is_whole, own_file, split_files
from atrl_bench.data.published import Publication, RepositoryPart
from atrl_bench.data.repository import Listing, Repository, listing
from atrl_bench.data.tables import SUFFIXES, kind_of, pictures_beside, read_light_rows, rows_sha256
from atrl_bench.digests import digest_of_hashes, sha256_of
from atrl_bench.errors import MissingDataError, NotFetchedError

Source = Folder | Listing
IN_TABLES = Publication()  # images are embedded, and nothing is beside them
MAX_NAMED = 6  # files that an error lists


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """What is known of a dataset without its files."""

    name: str  # as commands call it
    title: str  # in print
    folder: str  # in a data folder
    num_rows: int  # as published
    hub_id: str | None  # None: made from others on each machine, generated here, or a file of the user's
    revision: str | None = None  # of the hub's repository, where one is pinned
    subset: str | None = None  # of a repository that has several
    splits: tuple[str, ...] = ("train",)  # how the names of its tables begin; the first that is there is read
    publication: Publication = IN_TABLES
    file: Path | None = None  # all of it, or the folder of its tables, where a user names one
    reading: str = ""  # what is read of it that once was not: the key says it
    media: str = "images"  # what a row shows: images, none, video, or "images and video"
    max_hashed_bytes: float = math.inf  # of images and videos beside its tables: of more the sizes count

    @property
    def names_files(self) -> bool:
        """Whether its rows name images or videos that lie beside the table."""
        return False

    def files_of(self, row: Mapping[str, Any]) -> Sequence[str]:
        return ()

    def make(self, *paths: Path) -> None:
        """Write the tables of a dataset that is made from others, which come first; the last path is where to."""
        raise NotImplementedError(self.name)

    @property
    def extras(self) -> tuple[str, ...]:
        """Files beside its tables, where they are there, that say more about the rows."""
        return ()

    @property
    def repository(self) -> Repository:
        return Repository("dataset", str(self.hub_id), self.revision)


# Where it is ----------------------------------------------------------------------------------------------------------


def table_files(dataset: Dataset, data_dir: Path | None) -> list[Path]:
    """The files that hold the rows: below `data_dir`, or the hub's, fetched where they are missing."""
    if dataset.names_files:
        media_folder(dataset, data_dir)  # says what to do before the rows are fetched for nothing
    source, names = located(dataset, data_dir)
    return source.paths(names)


def is_here(dataset: Dataset, data_dir: Path | None) -> bool:
    """Whether its rows, and the images and videos beside them, are on this machine."""
    if data_dir is None and (dataset.hub_id is None or dataset.names_files) and not is_laid_out(dataset):
        return dataset.file is not None and dataset.file.exists()
    if data_dir is None and dataset.hub_id is not None and not dataset.repository.folder.is_dir():
        return False  # nothing of it was ever fetched: no reason to ask the hub
    try:
        source, names = located(dataset, data_dir)
    except MissingDataError:
        return False
    has_media = dataset.media != "video" or any(root_of(dataset, data_dir).rglob("*.mp4"))
    return has_media and source.is_here(names)


def root_of(dataset: Dataset, data_dir: Path | None) -> Path:
    """The folder below which its rows name their files."""
    if dataset.file is not None:
        return dataset.file if dataset.file.is_dir() else dataset.file.parent
    return laid_out_folder(dataset) if data_dir is None else data_dir / dataset.folder


def media_folder(dataset: Dataset, data_dir: Path | None) -> Path:
    """The folder in which its images and videos lie as its rows name them."""
    if data_dir is None and dataset.file is None and not is_laid_out(dataset):
        raise _not_fetched(dataset)
    return root_of(dataset, data_dir)


def media_files(dataset: Dataset, data_dir: Path | None) -> dict[str, Path]:
    """Those files on this machine that its rows name, by these names; none where the table embeds its images.

    A name that leads out of the folder is passed over here; its row is skipped when it is asked about.
    """
    if not dataset.names_files:
        return {}
    folder = media_folder(dataset, data_dir)
    rows = (row for path in table_files(dataset, data_dir) for row in read_light_rows(path))
    names = sorted({name for row in rows for name in _files_of(dataset, row)})
    present = {name: folder / name for name in names if own_file(folder, name).is_file()}
    if names and not present:
        raise _nothing_to_show(dataset, folder, names)
    return present


def located(dataset: Dataset, data_dir: Path | None) -> tuple[Source, list[str]]:
    """Where the tables are, and their names there: those that the publisher names, else those of the split."""
    if dataset.file is not None:
        return Folder(root_of(dataset, None)), list(dataset.publication.tables)
    source, named = _source(dataset, data_dir), dataset.publication.tables
    found = [source.match(pattern) for pattern in named]
    names = [name for matches in found for name in matches if name not in dataset.extras]
    for split in () if names else dataset.splits:
        names = names or split_files(source.match("**/*.parquet"), split, dataset.subset)
    if not names:
        raise _no_tables(dataset, source, data_dir)
    if (any(found) and not all(found)) or not is_whole(names):
        raise MissingDataError(
            f"A part of {dataset.title} in {source} is missing.",
            why=f"There are only {', '.join(names)}.",
            next_step="copy the other files beside them",
        )
    return source, names


def _source(dataset: Dataset, data_dir: Path | None) -> Source:
    if data_dir is not None:
        return Folder(data_dir / dataset.folder)
    if dataset.hub_id is not None:
        return listing(dataset.repository)
    if not is_laid_out(dataset):
        raise _not_fetched(dataset)
    return Folder(laid_out_folder(dataset))


def _files_of(dataset: Dataset, row: Mapping[str, Any]) -> Sequence[str]:
    """The files that a row names; none where it is no row of this dataset, and is left out for that."""
    try:
        return dataset.files_of(row)
    except (TypeError, AttributeError, LookupError):
        return ()


# What names it --------------------------------------------------------------------------------------------------------


def data_digest(dataset: Dataset, data_dir: Path | None) -> str:
    """What names the data: its tables in their order, whatever they are called, and what their rows show.

    It is the same from the hub, whose listing has the hashes, and from a folder with the same files. What each machine
    makes for itself is named by its rows: the bytes of a Parquet file depend on the version of its writer.
    """
    source, names = located(dataset, data_dir)
    files = media_files(dataset, data_dir)
    root = root_of(dataset, data_dir)
    if isinstance(source, Folder) and _has_more_than_tables(root):  # the hub's tables come without what is beside them
        beside = {name: own_file(root, name) for name in pictures_beside(source.paths(names))}
        files |= {name: path for name, path in beside.items() if path.is_file()}
    sums = source.sha256(names) if dataset.publication.made is None else rows_sha256(source.paths(names))
    extras = [root / name for name in dataset.extras]
    present = [path for path in extras if path.is_file()]
    contents = [*enumerate(sums), *zip(files, _sums(dataset, list(files.values())), strict=True)]
    contents += zip((path.name for path in present), sha256_of(present), strict=True)
    contents += [("reading", dataset.reading)] if dataset.reading else []
    return digest_of_hashes((str(name), value) for name, value in contents)


def _has_more_than_tables(root: Path) -> bool:
    """Whether a row may name a file there: where none may, no table is opened for its name."""
    return any(kind_of(path) not in SUFFIXES and (path.is_file() or path.is_symlink()) for path in root.rglob("*"))


def _sums(dataset: Dataset, paths: Sequence[Path]) -> list[str]:
    """What names each image or video: the hash of its contents, or its size where there are too many."""
    sizes = [path.stat().st_size for path in paths]
    return sha256_of(paths) if sum(sizes) <= dataset.max_hashed_bytes else list(map(str, sizes))


# What was fetched of it -----------------------------------------------------------------------------------------------


def parts_of(dataset: Dataset) -> tuple[RepositoryPart, ...]:
    """Which files of which repositories it needs: what `fetch` brings."""
    if dataset.publication.made is not None:
        return tuple(item.part for item in dataset.publication.made.sources if item.hub_id)
    assert dataset.hub_id is not None
    rows = RepositoryPart(hub_id=dataset.hub_id, revision=dataset.revision, files=tuple(located(dataset, None)[1]))
    media = media_part(dataset)
    if media is None or media.repository != rows.repository:
        return (rows, *filter(None, [media]))
    return (media.model_copy(update={"files": (*rows.files, *media.files)}),)


def media_part(dataset: Dataset) -> RepositoryPart | None:
    """Where images and videos are published that lie beside the tables."""
    where = dataset.publication
    if where.made is not None or not (where.files or where.archives):
        return None
    hub_id, revision = (where.media, None) if where.media else (str(dataset.hub_id), dataset.revision)
    return RepositoryPart(hub_id=hub_id, revision=revision, files=where.files, archives=where.archives)


def laid_out_folder(dataset: Dataset) -> Path:
    """Where `fetch` puts what does not stay in the hub's cache: datasets that share a folder share it here."""
    from huggingface_hub import constants

    return Path(constants.HF_HOME) / "atrl_bench" / dataset.folder


def is_laid_out(dataset: Dataset) -> bool:
    """Whether `fetch` finished with the files beside its tables, or with the tables that it makes."""
    return (laid_out_folder(dataset) / COMPLETE).is_file()


# What a user is told --------------------------------------------------------------------------------------------------


def how_to_unpack(dataset: Dataset, root: Path) -> str | None:
    """What to do about archives that still lie packed in the dataset's folder, None where there are none."""
    paths = (path for pattern in ("*", *dataset.publication.archives) for path in root.glob(pattern))
    packed = sorted({path.name for path in paths if path.name.endswith(ENDINGS)})
    if not packed:
        return None
    where = "each where it lies" if dataset.publication.unpack_beside else "there"
    return f"cd {root}, and unpack {where}: {', '.join(packed[:MAX_NAMED])}"


def _no_tables(dataset: Dataset, source: Source, data_dir: Path | None) -> MissingDataError:
    subset = f", subset {dataset.subset}," if dataset.subset else ""
    origin = f" of {dataset.hub_id}{subset}" if dataset.hub_id else ""
    expected = dataset.publication.tables or tuple(f"{split}*.parquet" for split in dataset.splits)
    found = source.match("**/*.parquet")[:MAX_NAMED]
    folder = f"{data_dir or 'DATA'}/{dataset.folder}"
    download = f"hf download {dataset.hub_id} --repo-type dataset --local-dir {folder}"
    unpack = ", and unpack its archives" if dataset.publication.archives else ""
    return MissingDataError(
        f"There is no table of {dataset.title} in {source}.",
        why=f"Expected {' or '.join(expected)}{origin}; there is {', '.join(found) or 'no Parquet file'}.",
        next_step=f"{download}{unpack}; or move {source} away and take the hub's"
        if dataset.hub_id
        else f"move {source} away, and atrl-bench fetch {dataset.name}",
    )


def _not_fetched(dataset: Dataset) -> NotFetchedError:
    if dataset.hub_id is not None:
        why = f"Its images and videos are in {_media_words(dataset)}."
    else:
        made = dataset.publication.made
        origins = " and ".join(item.url or str(item.hub_id) for item in made.sources) if made else "nothing published"
        why = f"It is made from {origins}."
    fetch = f"atrl-bench fetch {dataset.name} --profile paper"
    return NotFetchedError(
        f"{dataset.title[:1].upper()}{dataset.title[1:]} is not here yet.",
        why=why,
        next_step=f"{fetch}, or give a --data-dir that has it as {dataset.folder}/",
    )


def _nothing_to_show(dataset: Dataset, folder: Path, names: Sequence[str]) -> MissingDataError:
    what = f"None of the {len(names)} files that {dataset.title} shows is in {folder}."
    if unpack := how_to_unpack(dataset, folder):
        return MissingDataError(what, why="The archives that hold them are not unpacked.", next_step=unpack)
    if dataset.file is not None:
        then = "put them below the folder of the table, where no row may name what lies outside"
        return MissingDataError(what, why=f"The first is {names[0]}.", next_step=then)
    return MissingDataError(
        what,
        why=f"The first is {names[0]}; they are in {_media_words(dataset)}.",
        next_step=f"atrl-bench fetch {dataset.name} --profile paper brings them without --data-dir",
    )


def _media_words(dataset: Dataset) -> str:
    """Where the images and videos are published, in words."""
    part = media_part(dataset)
    return f"{', '.join((*part.archives, *part.files))} of the hub's dataset {part.hub_id}" if part else "no repository"
