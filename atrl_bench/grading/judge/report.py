"""What a judge did in one cell: asked, failed, agreement with the rules, and how it did on its calibration set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from atrl_bench.grading.judge.agreement import Agreement, agreement
from atrl_bench.grading.judge.calibration import CalibrationReport, calibration_report
from atrl_bench.results.store import Store


@dataclass(frozen=True)
class JudgeSummary:
    """What a judge did in a cell.

    `asked` answers took a request and `cached` ones none, `retried` counts the requests beyond the first; `failed`
    answers have no verdict, and `reasons` says why. Opinions on proven answers are among those asked.
    """

    identity: Mapping[str, Any]
    asked: int
    cached: int
    retried: int
    failed: int
    reasons: Mapping[str, int]
    agreement: Agreement
    calibration: CalibrationReport | None

    @property
    def line(self) -> str:
        """What a reader has to know, as one line; how many requests it took depends on what interrupted them."""
        parts = [
            f"{self.asked + self.cached} questions, {self.failed} without a verdict",
            _agreement_text(self.agreement),
            _calibration_text(self.calibration),
        ]
        if not self.identity.get("strict", True):
            parts.append("not held to its calibration set")
        return f"judge {self.identity['model']}: {'; '.join(parts)}"


def judge_summary(store: Store, key: str) -> JudgeSummary | None:
    cell = store.cell(key)
    identity = cell.spec.get("judge") if cell is not None else None
    if identity is None:
        return None
    # Without the texts, which nothing here reads: a cell may have a hundred megabytes of them.
    samples = [replace(sample, response=replace(sample.response, text="")) for sample in store.stream(key)]
    verdicts = [sample.verdict for sample in samples if sample.verdict is not None]
    calls = [int(verdict.details["calls"]) for verdict in verdicts if "calls" in verdict.details]
    reasons = Counter(verdict.why for verdict in verdicts if verdict.state == "judge failed")
    return JudgeSummary(
        identity=dict(identity),
        asked=sum(count > 0 for count in calls),
        cached=calls.count(0),
        retried=sum(count - 1 for count in calls if count),
        failed=reasons.total(),
        reasons=dict(reasons.most_common(5)),
        agreement=agreement(samples, identity.get("scope", "all")),
        calibration=calibration_report(store, identity),
    )


def _agreement_text(table: Agreement) -> str:
    if table.fraction is None:
        return "not comparable with the rules"
    kappa = "" if table.kappa is None else f", kappa {table.kappa:.2f}"
    return f"agrees with the rules on {100 * table.fraction:.1f} %{kappa}"


def _calibration_text(report: CalibrationReport | None) -> str:
    if report is None:
        return "calibration questions not asked"
    passed = ", ".join(f"{kind} {part.passed}/{part.total}" for kind, part in report.classes.items())
    return f"calibration questions {passed} on {datetime.fromtimestamp(report.created, UTC):%Y-%m-%d}"
