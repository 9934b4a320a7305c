"""Finished checkpoints in a folder or an object store, by fsspec, so that any machine has what one of them trained.

A checkpoint lies there under its training's key as it does in its run folder, file by file. `done.json`, which holds
its digest, is sent last and looked for first: what has none is not there.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atrl_bench.errors import AtrlBenchError, EndpointError, MissingDataError, reason_of
from atrl_bench.models.local import DONE, find_model

NONE = "none"  # what `--checkpoints` says for the run folder alone
OPENED = "atrl-bench.json"  # proves that this store can be written, before anything is trained for it
# What a run folder keeps beside a model: locks, what resuming needs, and what is not finished.
NOT_SENT = ("lock", "*.tmp", "resume", "unfinished")


@dataclass(frozen=True)
class CheckpointStore:
    """Where checkpoints are kept beside the run folder: a folder, `s3://BUCKET/...`, or `hf://USER/REPOSITORY/...`."""

    url: str

    @classmethod
    def by(cls, option: str) -> CheckpointStore | None:
        if option == NONE:
            return None
        return cls((option if "://" in option else str(Path(option).absolute())).rstrip("/"))

    def require_open(self) -> None:
        """Raise unless checkpoints can be kept there, by writing a small file."""
        with self._files() as (files, root):
            files.pipe_file(f"{root}/{OPENED}", b'{"holds": "checkpoints of atrl-bench by their trainings\' keys"}\n')

    def digest_of(self, key: str) -> str | None:
        """The digest of a training's checkpoint, None where it is not there, or not whole."""
        with self._files() as (files, root):
            path = f"{root}/{key}/{DONE}"
            content = files.cat_file(path) if files.exists(path) else b"{}"
        try:
            return str(json.loads(content)["digest"])
        except (ValueError, KeyError, TypeError):
            return None

    def put(self, folder: Path, digest: str) -> None:
        """Send a finished checkpoint, unless it is there; another one under its key is never overwritten."""
        if self.has(folder.name, digest):
            return
        with self._files() as (files, root):
            for name in sorted(files_of(folder), key=DONE.__eq__):  # that one last
                files.put_file(str(folder / name), f"{root}/{folder.name}/{name}")

    def fetch(self, folder: Path, digest: str = "") -> bool:
        """Bring this training's checkpoint into its folder here, whole; false where the store has none.

        With `digest` another checkpoint is refused. What is in the folder already, of a training that was begun, is
        replaced once all has arrived with the digest that its training gave it.
        """
        if not self.has(folder.name, digest):
            return False
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="arriving-", suffix=".tmp", dir=folder) as temporary:
            arrived = Path(temporary)
            with self._files() as (files, root):
                for path in files.find(f"{root}/{folder.name}"):
                    files.get_file(path, str(_inside(arrived, Path(path).relative_to(f"{root}/{folder.name}"))))
            try:
                find_model(arrived)
            except MissingDataError as error:
                raise MissingDataError(
                    f"The checkpoint {folder.name} in {self.url} is damaged.",
                    why=error.why or error.what,
                    next_step=f"delete {self.url}/{folder.name}, then give the command again: it is made anew",
                ) from None
            for name in sorted(files_of(arrived), key=DONE.__eq__):
                os.replace(arrived / name, _inside(folder, Path(name)))
        shutil.rmtree(folder / "resume", ignore_errors=True)
        return True

    def has(self, key: str, digest: str) -> bool:
        """Whether a training's checkpoint is there; raises if it is not the one that has this digest."""
        there = self.digest_of(key)
        if digest and there not in (None, digest):
            raise MissingDataError(
                f"The checkpoint {key} in {self.url} is not the one of this run folder.",
                why=f"Its digest is {there}, that of the training here {digest}.",
                next_step=f"give --checkpoints another URL, or delete {self.url}/{key}",
            )
        return there is not None

    @contextmanager
    def _files(self) -> Iterator[tuple[Any, str]]:
        """Hold fsspec's file system of the URL, and what the URL is called in it.

        Each kind has errors of its own for a wrong key, a bucket that is not there, a cut line or a package that is
        not installed; none is hidden: what it says is the reason that is given.
        """
        import fsspec

        is_here = "://" not in self.url or self.url.startswith("file://")
        try:
            # Buckets and repositories are never made: a wrong name has to be noticed.
            files, root = fsspec.url_to_fs(self.url, **({"auto_mkdir": True} if is_here else {}))
            files.invalidate_cache()  # others write there, too
            yield files, root.rstrip("/")
        except AtrlBenchError:
            raise
        except Exception as error:
            said = str(error).strip() or type(error).__name__
            raise EndpointError(
                f"Checkpoints cannot be kept in {self.url}.",
                why=f"{type(error).__name__}: {said.splitlines()[0]}",
                next_step="check the address (s3://BUCKET/FOLDER, hf://USER/REPOSITORY, or a folder), its package "
                "(s3: pip install 'atrl-bench[s3]') and its credentials, then give the same command again",
            ) from error


def _inside(folder: Path, name: Path) -> Path:
    """Where a file of a checkpoint lies; an object store takes any name, also one that leads out."""
    if ".." in name.parts or name.is_absolute():
        raise ValueError(f"{name} would be written outside the checkpoint's folder")
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    return folder / name


def upload_model(
    folder: Path, written: Mapping[str, bytes], hub_id: str, *, private: bool
) -> tuple[str, tuple[str, ...]]:
    """Send a folder's files and `written`, by their names; returns the repository's address and all names."""
    from huggingface_hub import CommitOperationAdd, HfApi

    contents: dict[str, Path | bytes] = {name: folder / name for name in files_of(folder)} | dict(written)
    operations = [CommitOperationAdd(name, content) for name, content in contents.items()]
    api = HfApi()
    try:
        url = api.create_repo(hub_id, private=private, exist_ok=True)
        api.create_commit(hub_id, operations, commit_message=f"Add {folder.name}")
    except Exception as error:  # whatever the hub client and the network raise
        raise EndpointError(
            f"{hub_id} did not take the model.",
            why=reason_of(error),
            next_step="check the name of the repository, `hf auth login`, and that HF_HUB_OFFLINE is not set",
        ) from None
    return str(url), tuple(contents)


def files_of(folder: Path) -> list[str]:
    """The files of a checkpoint's folder that are sent, by their names below it."""
    names = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    return [
        name.as_posix()
        for name in names
        if not any(Path(part).match(pattern) for part in name.parts for pattern in NOT_SENT)
    ]
