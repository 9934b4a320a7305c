"""What a judge did in one cell, as a record and as a line: asked, failed, agreement with the rules, canaries."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from atrl_bench.grading.judge.agreement import agreement
from atrl_bench.grading.judge.calibration import calibration_report
from atrl_bench.results.store import Store


def judge_summary(store: Store, key: str) -> dict[str, Any] | None:
    """Return what the judge did in a cell, from what is stored; None for a cell without one.

    `asked` answers took a request and `cached` ones none, `retried` counts the requests beyond the first; `failed`
    answers have no verdict, and `reasons` says why. Opinions on proven answers are among those asked.
    """
    cell = store.cell(key)
    identity = cell.spec.get("judge") if cell is not None else None
    if identity is None:
        return None
    samples = store.samples(key)
    grades = [sample.verdict for sample in samples if sample.verdict is not None]
    calls = [int(grade.details["calls"]) for grade in grades if "calls" in grade.details]
    reasons = Counter(grade.why for grade in grades if grade.state == "judge failed")
    calibration_set = calibration_report(store, identity)
    return {
        "identity": dict(identity),
        "asked": sum(count > 0 for count in calls),
        "cached": calls.count(0),
        "retried": sum(count - 1 for count in calls if count),
        "failed": reasons.total(),
        "reasons": dict(reasons.most_common(5)),
        "agreement": agreement(samples, identity.get("scope", "all")).as_record(),
        "canaries": None if calibration_set is None else calibration_set.as_record(),
    }


def judge_text(summary: dict[str, Any]) -> str:
    """Return what a judge did as one line."""
    identity = summary["identity"]
    counts = (
        f"{summary['asked']} asked, {summary['cached']} known, {summary['retried']} retries,"
        f" {summary['failed']} without a verdict"
    )
    parts = [counts, _agreement_text(summary["agreement"]), _calibration_text(summary["canaries"])]
    if not identity.get("strict", True):
        parts.append("not held to its canaries")
    return f"judge {identity['model']}: {'; '.join(parts)}"


def _agreement_text(record: dict[str, Any]) -> str:
    if record["fraction"] is None:
        return "not comparable with the rules"
    kappa = "" if record["kappa"] is None else f", kappa {record['kappa']:.2f}"
    return f"agrees with the rules on {100 * record['fraction']:.1f} %{kappa}"


def _calibration_text(record: dict[str, Any] | None) -> str:
    if record is None:
        return "canaries not asked"
    parts = [f"{kind} {record[kind]['passed']}/{record[kind]['total']}" for kind in ("right", "wrong", "injection")]
    return f"canaries {', '.join(parts)} on {datetime.fromtimestamp(record['created'], UTC):%Y-%m-%d}"
