"""Repositories of the Hugging Face hub: which commit is used, what is in it, and its files on this machine.

The first listing of a repository is kept, in the run folder and beside the repository's files in the hub's cache. It
pins the commit: whatever is fetched later comes from the same one, until `fetch --update` asks again. A listing has
the size and SHA-256 of every large file, so a digest names contents whether or not they are on this machine, and a file
is checked before it is used.
"""

from __future__ import annotations

import glob
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from atrl_bench.digests import digest_of_hashes, recall, remember, sha256_of
from atrl_bench.errors import MissingDataError, NotFetchedError

SECONDS_TO_ANSWER = 10
SECONDS_OF_SILENCE = 60  # a hub that did not answer is not asked again for so long: a plan has dozens of questions
COMMIT = re.compile(r"[0-9a-f]{40}")
# In the environment of a command and its processes: where its run folder keeps listings.
LISTINGS = "ATRL_BENCH_LISTINGS"


class Repository(NamedTuple):
    """A dataset or a model on the hub; `revision` is a branch, tag or commit, by default the hub's main branch."""

    kind: Literal["dataset", "model"]
    hub_id: str
    revision: str | None = None

    @property
    def page(self) -> str:
        """The address at which a person looks at it, and accepts its conditions."""
        from huggingface_hub import constants

        return f"{constants.ENDPOINT}/{'datasets/' if self.kind == 'dataset' else ''}{self.hub_id}"

    @property
    def folder(self) -> Path:
        """Where the hub's cache keeps it."""
        from huggingface_hub import constants

        # As `huggingface_hub.file_download.repo_folder_name` says, which takes a third of a second to load.
        return Path(constants.HF_HUB_CACHE) / "--".join([f"{self.kind}s", *self.hub_id.split("/")])


@dataclass(frozen=True)
class RemoteFile:
    """A file of a commit. A small one is kept in git, which does not know its SHA-256."""

    name: str
    size: int
    sha256: str | None


@dataclass(frozen=True)
class Listing:
    """What is in one commit of a repository; `gated`: its owner asks for an agreement before files are given."""

    repository: Repository
    commit: str
    files: tuple[RemoteFile, ...]
    gated: bool = False

    @property
    def folder(self) -> Path:
        """Where this commit's files are on this machine, once they are downloaded."""
        return self.repository.folder / "snapshots" / self.commit

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(file.name for file in self.files)

    def select(self, names: Sequence[str]) -> list[RemoteFile]:
        by_name = {file.name: file for file in self.files}
        if absent := [name for name in names if name not in by_name]:
            raise MissingDataError(
                f"{self.repository.hub_id} at {self.commit[:12]} has no file {', '.join(absent[:6])}.",
                why=f"It has {', '.join(self.names[:6]) or 'no files'}{', ...' if len(self.names) > 6 else ''}.",
                next_step=f"look at {self.repository.page}",
            )
        return [by_name[name] for name in names]

    def match(self, pattern: str) -> list[str]:
        """The files whose path in the repository matches, sorted; `**/` stands for any folders, or none."""
        matches = re.compile(re.escape(pattern).replace(r"\*\*/", "(?:.+/)?").replace(r"\*", "[^/]*")).fullmatch
        return sorted(name for name in self.names if matches(name))

    def is_here(self, names: Sequence[str]) -> bool:
        """Whether these files are on this machine, each in its full size; their bytes are not read."""
        return not _missing(self.select(names), self.folder)

    def paths(self, names: Sequence[str]) -> list[Path]:
        """Where these files are on this machine, downloaded if they are not."""
        folder = download(self, names)
        return [folder / name for name in names]

    def sha256(self, names: Sequence[str]) -> list[str]:
        """The SHA-256 of each of these files. Those that the hub does not know, of small files, are fetched once."""
        listing = _with_known_hashes(self)
        sums = {file.name: file.sha256 or "" for file in listing.select(names)}
        if small := [name for name, sha256 in sums.items() if not sha256]:
            sums |= zip(small, sha256_of(listing.paths(small)), strict=True)
            files = tuple(replace(file, sha256=sums.get(file.name) or file.sha256) for file in listing.files)
            # Written down, so that from now on neither network nor files are needed to know them.
            pins = [path for path in _pin_files(listing.repository) if recall(path).get("commit") == listing.commit]
            _write(replace(listing, files=files), pins)
        return [sums[name] for name in names]

    def __str__(self) -> str:
        return self.repository.hub_id


def keep_listings_in(folder: Path) -> None:
    """Let this command and its processes use the commits that are pinned in a folder, and pin others there."""
    os.environ[LISTINGS] = str(folder.absolute())


def listing(repository: Repository, *, update: bool = False) -> Listing:
    """What is in the pinned commit, else in the one of the cache, else in the hub's latest, which is pinned.

    `update` asks the hub for its latest and pins that.
    """
    pinned = None if update else _pinned(repository)
    if pinned is None:
        commit = None if update else _cached_commit(repository)
        try:
            pinned = _ask(repository, commit)
        except MissingDataError:
            pinned = _cached_tree(repository, commit) if commit else None
            if pinned is None:
                raise
        _write(pinned, _pin_files(repository))
    return pinned


@contextmanager
def without_asking() -> Iterator[None]:
    """Let this code use only the listings that are kept here: another is an error, with or without a hub."""
    token = _may_ask.set(False)
    try:
        yield
    finally:
        _may_ask.reset(token)


def download(listing: Listing, names: Sequence[str]) -> Path:
    """The folder of the commit with these files in it, each of the size and the SHA-256 that the hub says.

    What is there and whole is not fetched again; a file that was changed or cut off on disk is fetched anew.
    """
    files = listing.select(names)
    if missing := _missing(files, listing.folder):
        _fetch(listing, missing)
    if damaged := _damaged(files, listing.folder):
        _fetch(listing, damaged, anew=True)
        if still := _damaged(damaged, listing.folder):
            raise MissingDataError(
                f"{still[0].name} of {listing.repository.hub_id} arrived with other bytes than the hub announces.",
                why=f"{listing.folder / still[0].name} does not have the SHA-256 {still[0].sha256}.",
                next_step="run the same command again; if it stays so, the connection or a mirror changes files",
            )
    return listing.folder


def digest(listing: Listing, names: Sequence[str]) -> str:
    """What `file_digest` gives for these files once they are downloaded. Only small files are fetched for it."""
    return digest_of_hashes(zip((Path(name).name for name in names), listing.sha256(names), strict=True))


def may_read(repository: Repository) -> bool:
    """Whether the hub gives its files to this user: False where an agreement on its page is due first."""
    from huggingface_hub import HfApi, errors

    try:
        HfApi().auth_check(repository.hub_id, repo_type=repository.kind)
    except errors.GatedRepoError:
        return False
    except Exception as error:  # whatever the hub client and the network raise
        raise not_available(repository, error) from error
    return True


def not_available(repository: Repository, error: Exception) -> NotFetchedError:
    """What to tell a user whom the hub does not give a dataset or model, and what can be done about it."""
    from huggingface_hub import errors

    kind, hub_id, page = repository.kind, repository.hub_id, repository.page
    instead = "give --data-dir" if kind == "dataset" else "give a checkpoint folder"
    causes = [error, error.__cause__, error.__context__]
    if any(isinstance(cause, errors.GatedRepoError) for cause in causes):
        why, next_step = "Its owner asks for an agreement first.", f"agree on {page}, then hf auth login"
    elif any(isinstance(cause, errors.RevisionNotFoundError) for cause in causes):
        why, next_step = "It has no such revision.", f"look at {page}/commits and correct the revision"
    elif any(isinstance(cause, errors.RepositoryNotFoundError) for cause in causes):
        why = "The hub knows no such name, or not to this user."
        next_step = f"hf auth login with a token that may read {page}, or {instead}"
    elif any(isinstance(cause, errors.OfflineModeIsEnabled) for cause in causes):
        why, next_step = "HF_HUB_OFFLINE is set.", f"unset HF_HUB_OFFLINE and run the same command again, or {instead}"
    else:
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        next_step = f"connect this machine and run the same command again, or {instead}"
    what = f"The {kind} {hub_id} is not on this machine and the hub does not give it."
    return NotFetchedError(what, why=why, next_step=f"{next_step}, or use --profile mini")


def _pinned(repository: Repository) -> Listing | None:
    first, *others = _pin_files(repository)
    for path in (first, *others):
        if content := recall(path):
            if path != first:
                remember(first, content)
            files = tuple(RemoteFile(**file) for file in content["files"])
            return Listing(repository, content["commit"], files, content["gated"])
    return None


def _with_known_hashes(listing: Listing) -> Listing:
    """A listing with the SHA-256 of those small files that were downloaded since it was made."""
    pinned = _pinned(listing.repository)
    return pinned if pinned is not None and pinned.commit == listing.commit else listing


def _write(listing: Listing, paths: Sequence[Path]) -> None:
    content = {"commit": listing.commit, "gated": listing.gated, "files": [asdict(file) for file in listing.files]}
    for path in paths:
        remember(path, content)


def _pin_files(repository: Repository) -> list[Path]:
    """Where a listing is kept: in the run folder, whose numbers came from it, then for every other one."""
    name = f"{quote(repository.revision or 'main', safe='')}.json"
    run_folder = os.environ.get(LISTINGS)
    folders = [Path(run_folder) / repository.folder.name] if run_folder else []
    return [folder / name for folder in (*folders, repository.folder / "listings")]


_may_ask = ContextVar("may_ask", default=True)
_silence: dict[str, tuple[float, Exception]] = {}  # when the hub at an address did not answer, and how that showed


def _ask(repository: Repository, commit: str | None = None) -> Listing:
    """The hub's own listing of a commit, by default of the latest one of the repository's revision."""
    from huggingface_hub import HfApi, constants, errors

    if not _may_ask.get():
        raise not_available(repository, errors.OfflineModeIsEnabled())
    asked, error = _silence.get(constants.ENDPOINT, (float("-inf"), None))
    if error is not None and time.monotonic() - asked < SECONDS_OF_SILENCE:
        raise not_available(repository, error)
    api = HfApi()
    info = api.dataset_info if repository.kind == "dataset" else api.model_info
    revision = commit or repository.revision
    try:
        answer: Any = info(repository.hub_id, revision=revision, files_metadata=True, timeout=SECONDS_TO_ANSWER)
    except Exception as error:  # whatever the hub client and the network raise
        if not isinstance(error, (errors.HfHubHTTPError, errors.OfflineModeIsEnabled)):
            _silence[constants.ENDPOINT] = time.monotonic(), error
        raise not_available(repository, error) from error
    files = tuple(
        RemoteFile(file.rfilename, file.lfs.size if file.lfs else file.size or 0, file.lfs.sha256 if file.lfs else None)
        for file in answer.siblings or ()
    )
    return Listing(repository, str(answer.sha), files, bool(answer.gated))


def _cached_commit(repository: Repository) -> str | None:
    """The commit that the revision was when any program last downloaded from it."""
    revision = repository.revision or "main"
    if COMMIT.fullmatch(revision):
        return revision
    reference = repository.folder / "refs" / revision
    return reference.read_text(encoding="utf-8").strip() if reference.is_file() else None


def _cached_tree(repository: Repository, commit: str) -> Listing | None:
    """The listing that `hf download` left in the cache, None where there is none."""
    content = recall(repository.folder / "trees" / f"{commit}.json").get("files")
    if content is None:
        return None
    files = tuple(
        RemoteFile(name, file.get("lfs_size") or file["size"], file.get("lfs_sha256")) for name, file in content.items()
    )
    return Listing(repository, commit, files)


def _missing(files: Sequence[RemoteFile], folder: Path) -> list[RemoteFile]:
    return [file for file in files if not _has_size(folder / file.name, file.size)]


def _has_size(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def _damaged(files: Sequence[RemoteFile], folder: Path) -> list[RemoteFile]:
    large = [file for file in files if file.sha256 is not None]
    sums = sha256_of([folder / file.name for file in large])
    return [file for file, sha256 in zip(large, sums, strict=True) if file.sha256 != sha256]


def _fetch(listing: Listing, files: Sequence[RemoteFile], *, anew: bool = False) -> None:
    """Download these files of the commit, `anew` where other bytes have their name in the cache."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils import disable_progress_bars

    repository = listing.repository
    if not sys.stderr.isatty():
        disable_progress_bars()
    _ask(repository, listing.commit)  # the client retries for minutes where there is no network
    anew = anew or any((listing.folder / file.name).is_file() for file in files)  # of another size
    try:
        snapshot_download(
            repository.hub_id,
            repo_type=repository.kind,
            revision=listing.commit,
            allow_patterns=[glob.escape(file.name) for file in files],
            force_download=anew,
        )
    except Exception as error:  # whatever the hub client and the network raise
        raise not_available(repository, error) from error
    if missing := _missing(files, listing.folder):
        raise MissingDataError(
            f"{missing[0].name} of {repository.hub_id} did not arrive whole.",
            why=f"{listing.folder / missing[0].name} does not have {missing[0].size:,} bytes.",
            next_step="run the same command again",
        )
