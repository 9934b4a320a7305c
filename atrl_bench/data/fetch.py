"""Bring a dataset to this machine: its tables, the images and videos beside them, or what it is made from, joined."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from atrl_bench.data.archives import unpack
from atrl_bench.data.dataset import COMPLETE, Dataset, is_laid_out, laid_out_folder, located, media_part
from atrl_bench.data.published import Ingredient, RepositoryPart
from atrl_bench.data.repository import Listing, listing
from atrl_bench.errors import InvalidFileError, MissingDataError

SECONDS_TO_ANSWER = 30


def fetch(dataset: Dataset) -> None:
    """Bring all that a dataset needs; what is here already stays, and a killed command goes on where it was."""
    folder = laid_out_folder(dataset)
    if dataset.publication.made is not None:
        if not is_laid_out(dataset):
            _make(dataset, folder)
            (folder / COMPLETE).touch()
        return
    source, names = located(dataset, None)
    source.paths(names)
    if (part := media_part(dataset)) is not None:
        _lay_out(part, folder, beside=dataset.publication.unpack_beside)
        (folder / COMPLETE).touch()


def forget_layout(dataset: Dataset) -> None:
    """Let the next `fetch` of this dataset look at all of its files again."""
    (laid_out_folder(dataset) / COMPLETE).unlink(missing_ok=True)


def _lay_out(part: RepositoryPart, folder: Path, *, beside: bool = False) -> None:
    """Put its files, and what its archives hold, below `folder` as the rows name them.

    `beside`: each archive is unpacked into the folder that it lies in.
    """
    folder.mkdir(parents=True, exist_ok=True)
    source = listing(part.repository)
    lay_out(source, part.names(part.files), folder)
    names = part.names(part.archives)
    for name, path in zip(names, source.paths(names), strict=True):
        unpack(path, folder / PurePosixPath(name).parent if beside else folder)


def lay_out(source: Listing, names: Sequence[str], folder: Path) -> None:
    for name, path in zip(names, source.paths(names), strict=True):
        _link(path, folder / name)


def _link(path: Path, target: Path) -> None:
    """Put a file of the hub's cache at `target`, without a second copy where the disk is the same."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_file() and target.samefile(path):
        return
    target.unlink(missing_ok=True)
    try:
        os.link(path.resolve(), target)
    except OSError:  # another disk
        shutil.copyfile(path, target)


# A dataset without a home of its own ----------------------------------------------------------------------------------


def _make(dataset: Dataset, folder: Path) -> None:
    from datasets import disable_progress_bars

    made = dataset.publication.made
    assert made is not None
    ingredients = folder / ".ingredients"
    ingredients.mkdir(parents=True, exist_ok=True)
    paths = [_bring(item, ingredients) for item in made.sources]
    if not sys.stderr.isatty():
        disable_progress_bars()
    dataset.make(*paths, folder / made.writes)
    shutil.rmtree(ingredients)


def _bring(item: Ingredient, folder: Path) -> Path:
    """Where an ingredient is on this machine, fetched if it is not: a file, or the folder of an archive."""
    if item.url is not None:
        return _download(item.url, item.sha256, folder)
    _lay_out(item.part, folder)
    return folder / (item.folder or "")


def _download(url: str, sha256: str | None, folder: Path) -> Path:
    import urllib.request  # with all of TLS, which a plan does without
    from http.client import HTTPException

    path = folder / url.rpartition("/")[2]
    try:
        with urllib.request.urlopen(url, timeout=SECONDS_TO_ANSWER) as answer:
            content = answer.read()
    except (OSError, HTTPException) as error:
        raise MissingDataError(
            f"{url} does not answer.",
            why=str(error),
            next_step="connect this machine, or set HTTPS_PROXY, and run the same command again",
        ) from None
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise InvalidFileError(
            f"{url} is not the file that it was.",
            why=f"Its SHA-256 is not {sha256}.",
            next_step="look what changed there; the number of this benchmark would be another one",
        )
    path.write_bytes(content)
    return path
