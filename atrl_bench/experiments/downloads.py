"""What is downloaded before something can run: what it needs of the hub and this machine does not have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from atrl_bench.data.archives import SPARE_BYTES
from atrl_bench.data.repository import Repository, is_downloaded, without_asking
from atrl_bench.errors import MissingDataError, StoreError
from atrl_bench.experiments.needs import Need
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.training.cost_estimate import GB
from atrl_bench.training.fits import free_disk_gb


@dataclass(frozen=True)
class Download:
    """A model, training set or benchmark that is not here; `gb` is None where no listing says its size yet.

    `terms` are the pages on which its conditions have to be accepted.
    """

    kind: str
    name: str
    gb: float | None
    terms: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Its size, in words."""
        return "size not known until fetch" if self.gb is None else f"{self.gb:,.2f} GB"


def missing_downloads(needs: Iterable[Need], run_dir: RunDir) -> tuple[Download, ...]:
    """Return which of these are not here; a file that two of them need counts for the first. Asks no hub."""
    counted: set[tuple[Repository, str]] = set()
    with without_asking():
        downloads = [_download(need, counted) for need in needs if need.data_dir(run_dir) is None]
    return tuple(filter(None, downloads))


def _download(need: Need, counted: set[tuple[Repository, str]]) -> Download | None:
    try:
        if need.is_here:
            return None
        files = need.files
    except MissingDataError:
        return Download(*need, None, (need.terms,) if need.terms else ())
    absent = {
        (listed.repository, file.name): file.size
        for listed, names in files
        for file in listed.select(names)
        if not is_downloaded(listed, [file.name])
    }
    num_bytes = sum(size for file, size in absent.items() if file not in counted)
    counted |= absent.keys()
    return Download(*need, num_bytes / GB, tuple(listed.repository.page for listed, _ in files if listed.gated))


def require_space(gigabytes: float) -> None:
    """Raise `StoreError` where the disk of the hub's cache has no room for so much."""
    from huggingface_hub import constants

    free = max(0.0, free_disk_gb(Path(constants.HF_HOME)) - SPARE_BYTES / GB)
    if gigabytes > free:
        raise StoreError(
            f"{gigabytes:,.1f} GB are to be fetched and unpacked, and {free:,.1f} GB are free.",
            why=f"They go to {constants.HF_HOME}.",
            next_step="free space, or set HF_HOME to a folder on a larger disk, and run the same command again",
        )
