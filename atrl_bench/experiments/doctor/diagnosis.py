"""One thing looked at, and all of them together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.printable import Block, Command, Record, Rows

State = Literal["ok", "missing", "note"]
SECONDS = 20  # for one attempt with a native library, or one answer from a program or a network


@dataclass(frozen=True)
class Check:
    """One thing looked at. `missing` keeps the profile from running; a `note` is worth knowing."""

    name: str
    state: State
    found: str
    fix: str = ""


@dataclass(frozen=True)
class Diagnosis(Record):
    """What was looked at on this machine, in order, for a run folder and its profile."""

    run_dir: RunDir
    checks: tuple[Check, ...]

    @property
    def is_healthy(self) -> bool:
        """Whether the profile can run: the command ends with 1 where it cannot."""
        return not any(check.state == "missing" for check in self.checks)

    def document(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        checks = [asdict(check) for check in self.checks]
        return {"profile": self.run_dir.profile.name, "healthy": self.is_healthy, "checks": checks}

    def blocks(self) -> Iterable[Block]:
        """Yield the checks, each with the command that mends it, and whether the profile can run."""
        rows: list[tuple[str, ...]] = []
        for check in self.checks:
            rows.append(("MISSING" if check.state == "missing" else check.state, check.name, check.found))
            rows += [("", f"-> {check.fix}")] if check.fix else []
        yield Rows(rows, indent=0)
        yield ""
        name, missing = self.run_dir.profile.name, sum(check.state == "missing" for check in self.checks)
        if missing:
            yield f"Profile {name} lacks {missing} thing{'s' * (missing != 1)} here."
        else:
            yield f"Profile {name} can run here."
            yield Command(f"atrl-bench run-table main_7b {self.run_dir.options}")
