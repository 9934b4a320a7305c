"""The audit as a page, as eighty columns of text, and as a record."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from atrl_bench.analysis.audit.findings import AuditFinding, AuditOutcome, Section
from atrl_bench.escape import one_line

MARKS = {"holds": "✓", "fails": "✗", "open": "?"}
WORDS = {"holds": "hold", "fails": "do not hold", "open": "cannot be decided"}
ORDER: tuple[AuditOutcome, ...] = ("fails", "open", "holds")


def audit_record(sections: Sequence[Section]) -> dict[str, Any]:
    """Return the audit as plain values."""
    return {"sections": [asdict(section) for section in sections]}


def audit_text(sections: Sequence[Section], *, everything: bool = False) -> str:
    """Return the audit as a person reads it, eighty columns wide: what does not hold, or `everything`."""
    blocks = ["The paper against itself: computed from its printed numbers, nothing measured."]
    for section in sections:
        counts = ", ".join(f"{section.count(outcome)} {WORDS[outcome]}" for outcome in ORDER)
        lines = [section.title, "-" * len(section.title), *textwrap.wrap(one_line(section.summary), 80), f"({counts})"]
        for finding in sorted(section.findings, key=lambda finding: ORDER.index(finding.outcome)):
            if everything or finding.outcome == "fails":
                lines += _finding_lines(finding)
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _finding_lines(finding: AuditFinding) -> list[str]:
    head = textwrap.wrap(f"{MARKS[finding.outcome]} {one_line(finding.where)}", 80, subsequent_indent="  ")
    body = f"{one_line(finding.printed)} -> {one_line(finding.computed)} ({one_line(finding.sure)})"
    return head + textwrap.wrap(body, 80, initial_indent="    ", subsequent_indent="    ")


def audit_html(sections: Sequence[Section]) -> str:
    """Return the audit as one page: offline, without scripts, in the style of the tables."""
    from atrl_bench.report.page import render_page

    return render_page("audit.html.j2", sections=sections, marks=MARKS, outcomes=WORDS, order=ORDER)
