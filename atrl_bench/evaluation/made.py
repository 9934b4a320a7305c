"""Bring a benchmark to this machine: its tables, its images and videos, or what it is made from, joined."""

from __future__ import annotations

import hashlib
import shutil
import sys
import urllib.error
import urllib.request
from pathlib import Path

from atrl_bench.data.source import is_laid_out, laid_out_folder, lay_out
from atrl_bench.errors import InvalidFileError, MissingDataError
from atrl_bench.evaluation.contents import mark_as_made
from atrl_bench.evaluation.published import Ingredient, Made, published
from atrl_bench.evaluation.source import parquet_files, parts
from atrl_bench.evaluation.tasks import Task
from atrl_bench.results.files import write_atomically

SECONDS_TO_ANSWER = 30


def fetch(task: Task) -> Path:
    """Return the folder with the benchmark's tables; all that it needs is on this machine then."""
    where = published(task.folder)
    if where.made is not None:
        return make(task, where.made)
    files = parquet_files(task, None)
    media = [part for part in parts(task) if part.files or part.archives]
    if media:
        lay_out(task.folder, media)
    return files[0].parent


def make(task: Task, made: Made) -> Path:
    """Return the folder of a dataset without a home of its own, written from its ingredients unless it is there."""
    from datasets import disable_progress_bars

    folder = laid_out_folder(task.folder)
    if not is_laid_out(task.folder):
        ingredients = folder / ".ingredients"
        ingredients.mkdir(parents=True, exist_ok=True)
        paths = [_bring(item, ingredients) for item in made.sources]
        if not sys.stderr.isatty():
            disable_progress_bars()
        getattr(task.module, made.function)(*paths, folder / made.writes)
        for table in folder.glob("*.parquet"):
            mark_as_made(table)
        shutil.rmtree(ingredients)
        lay_out(task.folder, ())  # nothing more
    return folder


def _bring(item: Ingredient, folder: Path) -> Path:
    """Return where an ingredient is on this machine, fetched if it is not: a file, or the folder of an archive."""
    if item.url is not None:
        return _download(item.url, item.sha256, folder)
    item.part.lay_out(folder)
    return folder / (item.file or item.folder or "")


def _download(url: str, sha256: str | None, folder: Path) -> Path:
    path = folder / url.rpartition("/")[2]
    try:
        with urllib.request.urlopen(url, timeout=SECONDS_TO_ANSWER) as answer:
            content = answer.read()
    except (urllib.error.URLError, OSError) as error:
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
    write_atomically(path, content)
    return path
