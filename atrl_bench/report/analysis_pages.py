"""Pages of what `audit` and `doctor --gpu` found; beside each is its JSON, which for a GPU is what prices read."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atrl_bench.analysis.overhead import PUBLISHED
from atrl_bench.analysis.step_time import PHASES
from atrl_bench.escape import one_line
from atrl_bench.experiments.cost import RATES
from atrl_bench.experiments.run_dir import GPU_CHECK
from atrl_bench.papers.findings import AuditFinding, AuditOutcome, Section
from atrl_bench.printable import flat_text
from atrl_bench.report.page import render_page
from atrl_bench.results.files import write_texts, writing

if TYPE_CHECKING:
    from atrl_bench.analysis.gpu_check import GpuCheck  # which loads torch

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


def write_gpu_check(check: GpuCheck, out: Path) -> list[Path]:
    text = json.dumps(check.document(), indent=2, sort_keys=True) + "\n"
    with writing(f"what was measured to {out}"):
        return write_texts(out, {GPU_CHECK: text, "gpu_check.html": gpu_check_html(check)})


def gpu_check_html(check: GpuCheck) -> str:
    rates = []
    for name, rate in RATES.items():
        value = f"{check.rates[name]:.4g} {rate.title}" if name in check.rates else ""
        rates.append((name.replace("_", " "), value, f"{rate.default:.4g} {rate.title}", rate.description))
    shares = check.step.shares if check.step else {}
    return render_page(
        "gpu_check.html.j2",
        check=check,
        rates=rates,
        shares=[(PHASES.get(name, name), percent(share)) for name, share in shares.items()],
        published=PUBLISHED,
        percent=percent,
        machine=list(flat_text(check.machine)),
        file=GPU_CHECK,
    )


def percent(value: float) -> str:
    """A share with one decimal, or with two digits that are not zero where it is small."""
    return f"{value:.1f}" if value >= 1 or value == 0 else f"{value:.2g}"
