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


def section(name: str, findings: Iterable[AuditFinding], **values: object) -> Section:
    """The section of a check: its words are those of `reports/templates/audit.yaml`, in which these values stand.

    So do the number of its findings, `total`, and the numbers of those that hold, fail, and stay open.
    """
    found = tuple(findings)
    outcomes = [finding.outcome for finding in found]
    counts = {outcome: outcomes.count(outcome) for outcome in ("holds", "fails", "open")}
    said = {field: text.format(total=len(found), **(counts | values)) for field, text in _words()[name].items()}
    return Section(id=name, findings=found, **said)


@cache
def _words() -> dict[str, dict[str, str]]:
    return read_mapping(folder("reports") / "templates" / "audit.yaml")
