"""The files of a benchmark's split in a dataset's repository, and their way from the hub to this machine.

A dataset that was downloaded once is never asked for again, so evaluation works with HF_HUB_OFFLINE=1; otherwise only
the Parquet files of the split are fetched. The commit is fixed before the first row is read and names the data in the
cell's key.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from atrl_bench.errors import MissingDataError

SECONDS_TO_ANSWER = 20
ALL_SUBSETS = "All"  # what a dataset's card may call the union of its subsets, without a folder of that name
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHARD = re.compile(r"-\d+-of-(\d+)")


class SplitOnHub(NamedTuple):
    """Which files of which commit hold a split."""

    hub_id: str
    revision: str  # the branch, tag or commit that was asked for
    commit: str
    names: tuple[str, ...]


def split_files(names: Sequence[str], split: str, config: str | None = None) -> list[str]:
    """Return the Parquet files that hold the split, of all files in a dataset's folder, in the order of its shards.

    Datasets are laid out in one of a few ways: `data/test-00000-of-00002.parquet`, the same in a folder named after the
    subset, in the folder itself, or `default/test/0000.parquet` where the hub converted them. `test` is neither
    `testmini` nor `test_text_only`. Where the subset is `All` and has no folder, it is all the subsets that have one.
    """
    of_split = re.compile(rf"{re.escape(split)}(?:[-.].*)?\.parquet")
    subset = config or "default"
    folders = (*((f"{config}/", f"{config}/data/", f"data/{config}/") if config else ()), "", "data/")
    for folder in folders:
        inside = [name for name in names if name.startswith(folder) and of_split.fullmatch(name.removeprefix(folder))]
        if inside:
            return sorted(inside)
    converted = [name for name in names if re.fullmatch(rf"{re.escape(f'{subset}/{split}')}/[^/]+\.parquet", name)]
    if config == ALL_SUBSETS and not converted:
        return sorted(name for name in names if name.count("/") == 1 and of_split.fullmatch(name.split("/")[1]))
    return sorted(converted)


def is_whole(names: Sequence[str]) -> bool:
    """Return whether there are files at all, and of those that count themselves (`-00000-of-00002`) every one."""
    promised: dict[str, list[int]] = {}  # of each series of shards, by what comes before the number
    for name in names:
        if match := _SHARD.search(name):
            promised.setdefault(name[: match.start()], []).append(int(match[1]))
    return bool(names) and all(count == len(counts) for counts in promised.values() for count in counts)


@cache
def locate(hub_id: str, split: str, config: str | None = None, revision: str | None = None) -> SplitOnHub:
    """Return where the split is: in the commit that is on this machine, else in the hub's latest. Fetches no data.

    Where some other part of the dataset was downloaded before, its commit is kept, so that one dataset stays one.
    """
    from huggingface_hub import HfApi

    revision = revision or "main"
    commit = _downloaded_commit(hub_id, revision)
    if commit is not None:
        folder = _cache_folder(hub_id) / "snapshots" / commit
        names = split_files(list_files(folder), split, config)
        if is_whole(names):
            return SplitOnHub(hub_id, revision, commit, tuple(names))
    try:
        info = HfApi().dataset_info(hub_id, revision=commit or revision, timeout=SECONDS_TO_ANSWER)
    except Exception as error:  # whatever the hub client and the network raise
        raise not_available("dataset", hub_id, error) from error
    everything = [sibling.rfilename for sibling in info.siblings or []]
    names = split_files(everything, split, config)
    if not names:
        tables = [name for name in everything if name.endswith(".parquet")]
        raise MissingDataError(
            f"The dataset {hub_id} at {info.sha} has no Parquet files of the split {split}.",
            why=f"Its Parquet files: {', '.join(tables[:6]) or 'none'}.",
            next_step="give --data-dir, or pin a revision that has them in the task file, under dataset_kwargs",
        )
    return SplitOnHub(hub_id, revision, str(info.sha), tuple(names))


def fetch(split: SplitOnHub) -> list[Path]:
    """Return the split's files on this machine, downloaded if they are not."""
    from huggingface_hub import snapshot_download

    folder = _cache_folder(split.hub_id) / "snapshots" / split.commit
    if not all((folder / name).is_file() for name in split.names):
        # By its name split it is new here: the client then remembers which commit `main` was, for later without a net.
        is_known = _downloaded_commit(split.hub_id, split.revision) is not None
        patterns = [glob.escape(name) for name in split.names]
        try:
            folder = Path(
                snapshot_download(
                    split.hub_id,
                    repo_type="dataset",
                    revision=split.commit if is_known else split.revision,
                    allow_patterns=patterns,
                )
            )
        except Exception as error:
            raise not_available("dataset", split.hub_id, error) from error
        if folder.name != split.commit:
            raise MissingDataError(
                f"The dataset {split.hub_id} changed on the hub while it was being fetched.",
                why=f"It was {split.commit} and is {folder.name}.",
                next_step="run the same command again",
            )
    return [folder / name for name in split.names]


def is_downloaded(hub_id: str, split: str, config: str | None = None, revision: str | None = None) -> bool:
    """Return whether the split can be read without a network."""
    commit = _downloaded_commit(hub_id, revision or "main")
    if commit is None:
        return False
    return is_whole(split_files(list_files(_cache_folder(hub_id) / "snapshots" / commit), split, config))


def list_files(folder: Path) -> list[str]:
    """Return the Parquet files at or below a folder, as paths in it."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet") if path.is_file())


def not_available(kind: str, hub_id: str, error: Exception) -> MissingDataError:
    """Return what to tell a user whom the hub does not give a dataset or model, and what can be done about it."""
    from huggingface_hub import constants, errors

    download = f"hf download {'--repo-type dataset ' if kind == 'dataset' else ''}{hub_id}"
    instead = "give --data-dir" if kind == "dataset" else "give a checkpoint folder"
    page = f"{constants.ENDPOINT}/{'datasets/' if kind == 'dataset' else ''}{hub_id}"
    what = f"The {kind} {hub_id} is not on this machine and the hub does not give it."
    causes = [error, error.__cause__, error.__context__]
    if any(isinstance(cause, errors.GatedRepoError) for cause in causes):
        why, next_step = "Its owner asks for an agreement first.", f"agree on {page}, then hf auth login"
    elif any(isinstance(cause, errors.RevisionNotFoundError) for cause in causes):
        why, next_step = "It has no such revision.", f"look at {page}/commits and correct the revision"
    elif any(isinstance(cause, errors.RepositoryNotFoundError) for cause in causes):
        why = "The hub knows no such name, or not to this user."
        next_step = f"hf auth login with a token that may read {page}, or {instead}"
    elif any(isinstance(cause, errors.OfflineModeIsEnabled) for cause in causes):
        why, next_step = "HF_HUB_OFFLINE is set.", f"HF_HUB_OFFLINE=0 {download}, or {instead}"
    else:
        why, next_step = f"{type(error).__name__}: {error}".splitlines()[0], f"{download}, or {instead}"
    return MissingDataError(what, why=why, next_step=f"{next_step}, or use --profile mini")


def _cache_folder(hub_id: str) -> Path:
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    return Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=hub_id, repo_type="dataset")


def _downloaded_commit(hub_id: str, revision: str) -> str | None:
    """Return the commit that this revision was when it was last downloaded."""
    if _COMMIT.fullmatch(revision):
        return revision if (_cache_folder(hub_id) / "snapshots" / revision).is_dir() else None
    reference = _cache_folder(hub_id) / "refs" / revision
    return reference.read_text(encoding="utf-8").strip() if reference.is_file() else None
