"""Finished checkpoints in a folder or an object store, so that any machine has what one of them trained.

A checkpoint lies there under its training's key as it does in its run folder, file by file. `done.json`, which holds
its digest, is sent last and looked for first: what has none is not there.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from atrl_bench.errors import AtrlBenchError, EndpointError, InvalidFileError, MissingDataError
from atrl_bench.models.local import DONE, model_ref
from atrl_bench.models.upload import files_of

NONE = "none"  # what `--checkpoints` says for the run folder alone
OPENED = "atrl-bench.json"  # proves that this store can be written and read, before anything is trained for it
PACKAGES = {"s3": "atrl-bench[s3]", "s3a": "atrl-bench[s3]", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs"}
VARIABLES = ("AWS_", "FSSPEC_")
R = TypeVar("R")


@dataclass(frozen=True)
class CheckpointStore:
    """Where checkpoints are kept beside the run folder: a folder, `s3://BUCKET/...`, or `hf://USER/REPOSITORY/...`."""

    url: str

    @classmethod
    def by(cls, option: str) -> CheckpointStore | None:
        """Return what `--checkpoints` names; a folder by its whole path, which other processes find, too."""
        if option == NONE:
            return None
        return cls((option if "://" in option else str(Path(option).absolute())).rstrip("/"))

    def require_open(self) -> None:
        """Raise unless checkpoints can be kept there; the first time that is found out by writing a small file."""

        def open_it(files: Any, root: str) -> None:
            path = f"{root}/{OPENED}"
            if not files.exists(path):
                files.pipe_file(path, b'{"holds": "checkpoints of atrl-bench, each under its training\'s key"}\n')
            files.cat_file(path)

        self._reached(open_it)

    def credentials(self) -> dict[str, str]:
        """Return the variables of this process that another machine needs to reach the store; files there say more."""
        return {name: value for name, value in os.environ.items() if name.startswith(VARIABLES)}

    def digest_of(self, key: str) -> str | None:
        """Return the digest of a training's checkpoint, None where it is not there, or not whole."""

        def read(files: Any, root: str) -> bytes:
            path = f"{root}/{key}/{DONE}"
            return bytes(files.cat_file(path)) if files.exists(path) else b"{}"

        try:
            return str(json.loads(self._reached(read))["digest"])
        except (ValueError, KeyError, TypeError):
            return None

    def put(self, folder: Path, digest: str) -> None:
        """Send a finished checkpoint, unless it is there; another one under its key is never overwritten."""
        if self.require_same(folder.name, digest):
            return

        def send(files: Any, root: str) -> None:
            for name in [*(name for name in files_of(folder) if name != DONE), DONE]:
                files.put_file(str(folder / name), f"{root}/{folder.name}/{name}")

        self._reached(send)

    def fetch(self, folder: Path) -> bool:
        """Return whether the store has this training's checkpoint, which is then in its folder here, whole.

        What is in the folder already, of a training that was begun, is replaced once all has arrived with the digest
        that its training gave it.
        """
        digest = self.digest_of(folder.name)
        if digest is None:
            return False
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="arriving-", suffix=".tmp", dir=folder) as temporary:
            arriving = Path(temporary)
            self._reached(lambda files, root: _get(files, f"{root}/{folder.name}", arriving))
            self._require_whole(arriving, folder.name, digest)
            names = [path.relative_to(arriving) for path in arriving.rglob("*") if path.is_file()]
            for name in sorted(names, key=lambda name: name.name == DONE):  # that one last
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(arriving / name, folder / name)
        shutil.rmtree(folder / "resume", ignore_errors=True)
        return True

    def require_same(self, key: str, digest: str) -> bool:
        """Return whether a training's checkpoint is there; raises if it is not the one that has this digest."""
        there = self.digest_of(key)
        if there not in (None, digest):
            raise MissingDataError(
                f"The checkpoint {key} in {self.url} is not the one of this run folder.",
                why=f"Its digest is {there}, that of the training here {digest}.",
                next_step=f"give --checkpoints another URL, or delete {self.url}/{key}",
            )
        return there is not None

    def _require_whole(self, folder: Path, key: str, digest: str) -> None:
        try:
            found = model_ref(folder).digest
        except MissingDataError as error:
            found = error.why or error.what
        if found != digest:
            raise MissingDataError(
                f"The checkpoint {key} in {self.url} is damaged.",
                why=f"What arrived has the digest {found}, and its training left {digest}.",
                next_step=f"delete {self.url}/{key}, then give the command again: it is sent, or trained, anew",
            )

    def _system(self) -> tuple[Any, str]:
        """Return fsspec's file system of the URL, and what the URL is called in it."""
        import fsspec

        protocol = self.url.partition("://")[0]
        # Buckets and repositories are never made: a wrong name has to be noticed.
        options = {"auto_mkdir": True} if protocol in (self.url, "file") else {}
        try:
            files, root = fsspec.url_to_fs(self.url, **options)
            files.invalidate_cache()  # others write there, too
        except ImportError as error:
            package = PACKAGES.get(protocol, "")
            raise MissingDataError(
                f"Checkpoints in {protocol}:// need a package that is not installed.",
                why=str(error).splitlines()[0],
                next_step=f"pip install '{package}'" if package else "install the package that is named above",
            ) from None
        except ValueError as error:
            raise InvalidFileError(
                f"{self.url} is no place for checkpoints.",
                why=str(error).splitlines()[0],
                next_step="--checkpoints s3://BUCKET/FOLDER, hf://USER/REPOSITORY, or a folder's path",
            ) from None
        return files, root.rstrip("/")

    def _reached(self, action: Callable[[Any, str], R]) -> R:
        """Return what an action on the store's file system and the name of its root returns.

        Each kind of store has errors of its own for a wrong key, a bucket that is not there and a cut line; none is
        hidden: what it says is the reason that is given.
        """
        try:
            return action(*self._system())
        except AtrlBenchError:
            raise
        except Exception as error:
            said = str(error).strip() or type(error).__name__
            raise EndpointError(
                f"The checkpoints' store {self.url} does not answer as it should.",
                why=f"{type(error).__name__}: {said.splitlines()[0]}",
                next_step="check the address and its credentials (s3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                "hf: `hf auth login`), then give the same command again",
            ) from error


def _get(files: Any, root: str, folder: Path) -> None:
    for path in files.find(root):
        name = Path(path).relative_to(root)
        if ".." in name.parts:  # an object store takes any name
            raise ValueError(f"{path} would be written outside the checkpoint's folder")
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        files.get_file(path, str(target))
