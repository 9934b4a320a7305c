"""The run folder: one store, the checkpoints it speaks of, the data that was generated, the reports."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from atrl_bench.errors import MissingDataError
from atrl_bench.profiles import Profile


@dataclass(frozen=True)
class Workspace:
    """A run folder under one profile; `given_data` is the user's own `--data-dir`."""

    root: Path
    profile: Profile
    given_data: Path | None = None

    @classmethod
    def at(cls, root: Path | None, profile: Profile, data_dir: Path | None = None) -> Workspace:
        """Return the run folder at `root`, by default `runs/<profile>` below the current folder."""
        if data_dir is not None and not data_dir.is_dir():
            raise MissingDataError(f"There is no folder {data_dir}.", next_step="give --data-dir a folder of datasets")
        return cls(root or Path("runs") / profile.name, profile, data_dir)

    @property
    def store_path(self) -> Path:
        """The result store."""
        return self.root / "store.sqlite"

    @property
    def checkpoints(self) -> Path:
        """One folder a training run."""
        return self.root / "checkpoints"

    @property
    def reports(self) -> Path:
        """Where tables are rendered to."""
        return self.root / "reports"

    @cached_property
    def data_dir(self) -> Path | None:
        """Local datasets: the user's, else the generated mini world, else None for the hub."""
        if self.given_data is not None or not self.profile.generated_data:
            return self.given_data
        from atrl_bench.mini import write_world

        return write_world(self.root / "data", self.profile)
