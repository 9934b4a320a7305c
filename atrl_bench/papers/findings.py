"""What the audit has to say: one finding, and a section of findings of one kind."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

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
