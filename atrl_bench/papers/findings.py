"""What the audit has to say: one finding, and a section of findings of one kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from atrl_bench.resources import folder
from atrl_bench.settings import read_mapping

# holds: recomputed and the same; fails: recomputed and different; open: no arithmetic can decide it
AuditOutcome = Literal["holds", "fails", "open"]


@dataclass(frozen=True)
class AuditFinding:
    """One thing that was looked at: what is printed where, what was computed, and how sure that is."""

    where: str
    printed: str
    computed: str
    outcome: AuditOutcome
    sure: str
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Section:
    """The findings of one check; `method` says how it was done, `summary` what came out, in a sentence each."""

    id: str
    title: str
    method: str
    summary: str
    findings: tuple[AuditFinding, ...]

    def count(self, outcome: AuditOutcome) -> int:
        return Counter(finding.outcome for finding in self.findings)[outcome]


def section(name: str, summary: str, findings: Iterable[AuditFinding], **numbers: float) -> Section:
    """The section of a check, with its words of `reports/templates/audit.yaml`, in which these numbers stand."""
    words = _words()[name]
    return Section(name, words["title"], words["method"].format(**numbers), summary, tuple(findings))


@cache
def _words() -> dict[str, dict[str, str]]:
    return read_mapping(folder("reports") / "templates" / "audit.yaml")
