"""Pages of what `audit` and `doctor --gpu` found; beside each is its JSON, which for a GPU is what prices read."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from atrl_bench.analysis.overhead import PUBLISHED
from atrl_bench.analysis.step_time import PHASES
from atrl_bench.escape import one_line
from atrl_bench.experiments.cost import RATES
from atrl_bench.experiments.definition import OWN, file_stem, paper_of
from atrl_bench.experiments.run_dir import GPU_CHECK
from atrl_bench.papers.findings import AuditFinding, AuditOutcome, Section
from atrl_bench.papers.paper import Paper
from atrl_bench.printable import flat_text
from atrl_bench.report.page import render_page
from atrl_bench.report.paper import against_paper
from atrl_bench.report.rendered import rendered_tables
from atrl_bench.report.table_model import Table
from atrl_bench.results.files import write_texts, writing

if TYPE_CHECKING:
    from atrl_bench.analysis.gpu_check import GpuCheck  # which loads torch

MARKS = {"holds": "✓", "fails": "✗", "open": "?"}
WORDS = {"holds": "hold", "fails": "do not hold", "open": "cannot be decided"}
ORDER: tuple[AuditOutcome, ...] = ("fails", "open", "holds")


def audit_text(sections: Sequence[Section], paper: Paper | None = None, *, everything: bool = False) -> str:
    """What an audit found; without a paper it is one of all papers."""
    whose = "The papers against each other" if paper is None else "The paper against itself"
    own = "" if paper is None or paper.name == OWN else f"{paper.title}. "
    blocks = ["\n".join(textwrap.wrap(f"{own}{whose}: computed from printed numbers, nothing measured.", 80))]
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


def write_audit(sections: Sequence[Section], out: Path, paper: Paper | None = None) -> list[Path]:
    """A paper's front page: what it claims, what its digits allow, what was measured here; or that of all papers."""
    name = "papers" if paper is None else "audit" if paper.name == OWN else f"audit.{paper.name}"
    contents = {
        f"{name}.html": audit_html(sections, paper, rendered_tables(out)),
        f"{name}.txt": audit_text(sections, paper, everything=True) + "\n",
        f"{name}.json": json.dumps({"sections": [*map(asdict, sections)]}, indent=2, sort_keys=True) + "\n",
    }
    with writing(f"the audit to {out}"):
        return write_texts(out, contents)


def audit_html(
    sections: Sequence[Section], paper: Paper | None = None, rendered: Mapping[str, Table] | None = None
) -> str:
    measured = [
        (table, f"{file_stem(name)}.html", [verdict for verdict in against_paper(table) if verdict.pairs])
        for name, table in (rendered or {}).items()
        if table.published and (paper is None or paper_of(name)[0] == paper.name)
    ]
    return render_page(
        "audit.html.j2",
        sections=sections,
        paper=paper,
        protocol=_protocol(paper) if paper else (),
        measured=measured,
        share=percent_points,
        marks=MARKS,
        outcomes=WORDS,
        order=ORDER,
    )


def _protocol(paper: Paper) -> list[tuple[str, str, str]]:
    """Each setting with what the text and the released code say of it."""
    text, code = paper.protocol.stated(), paper.code.stated()
    return [(name, str(text.get(name, "not stated")), str(code.get(name, ""))) for name in {**text, **code}]


def percent_points(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


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
