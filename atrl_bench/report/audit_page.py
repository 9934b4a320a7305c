"""The audit as a page, as eighty columns of text, and as a record."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from atrl_bench.analysis.audit.findings import AuditFinding, AuditOutcome, Section
from atrl_bench.escape import one_line
from atrl_bench.report.page import render_page
from atrl_bench.results.files import write_texts, writing

MARKS = {"holds": "✓", "fails": "✗", "open": "?"}
WORDS = {"holds": "hold", "fails": "do not hold", "open": "cannot be decided"}
ORDER: tuple[AuditOutcome, ...] = ("fails", "open", "holds")


def audit_record(sections: Sequence[Section]) -> dict[str, Any]:
    return {"sections": [asdict(section) for section in sections]}


def audit_text(sections: Sequence[Section], *, everything: bool = False) -> str:
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


def write_audit(sections: Sequence[Section], out: Path) -> list[Path]:
    contents = {
        "audit.html": audit_html(sections),
        "audit.txt": audit_text(sections, everything=True) + "\n",
        "audit.json": json.dumps(audit_record(sections), indent=2, sort_keys=True) + "\n",
    }
    with writing(f"the audit to {out}"):
        return write_texts(out, contents)


def audit_html(sections: Sequence[Section]) -> str:
    return render_page("audit.html.j2", sections=sections, marks=MARKS, outcomes=WORDS, order=ORDER)
