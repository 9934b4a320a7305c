"""What a judge did in a cell, and how far it and the rule grader agree, from the grades that are stored.

The judge decides about the answers that the rules did not prove right. To see both sides it also gives its opinion on
some of the proven ones, which changes nothing: of a cell's answers one in twenty, at most 50, are chosen by hash, and
it is asked about those of them that were proven right. Kappa lets these stand for all that were.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from atrl_bench.grading.judge.calibration import CalibrationReport, calibration_report
from atrl_bench.grading.judge.judge import Scope, is_in_scope
from atrl_bench.results.records import Sample, Verdict
from atrl_bench.results.store import Store

ONE_IN = 20
MAX_OPINIONS = 50  # a cell


def opinion_keys(problem_ids: Iterable[str], num_repeats: int) -> frozenset[tuple[str, int]]:
    """The answers, by problem and repeat, on which the judge is heard even when the rules prove them right.

    They depend on the names alone, so a resumed run asks about the same ones.
    """
    keys = [(problem_id, repeat) for problem_id in problem_ids for repeat in range(num_repeats)]
    ranked = sorted(keys, key=lambda key: hashlib.sha256(repr(key).encode("utf-8", "replace")).digest())
    return frozenset(ranked[: min(MAX_OPINIONS, math.ceil(len(ranked) / ONE_IN))])


def combined(rule: Verdict, opinion: Verdict) -> Verdict:
    """The verdict that counts, with the other one in its details.

    A proven answer stays proven and keeps the judge's state under "judge". Any other gets the judge's verdict, with the
    rule's state and reason under "rule" and "rule_why".
    """
    if rule.state == "correct":
        return rule._replace(details={**rule.details, "judge": opinion.state, **opinion.details})
    return opinion._replace(details={"rule": rule.state, "rule_why": rule.why, **opinion.details})


@dataclass(frozen=True)
class Agreement:
    """Rule grader against judge over the answers both decided, as counts; each name says who calls an answer correct.

    `fraction` is the share of the cell's answers on which both agree, `kappa` Cohen's: agreement beyond what these
    rates give by chance. None without a comparison on every side there is; kappa also where all verdicts are the same.
    """

    both: int
    only_rule: int
    only_judge: int
    neither: int
    proven: int  # all answers the rules proved right; the judge was heard on `both + only_rule` of them
    fraction: float | None
    kappa: float | None

    @classmethod
    def of(cls, both: int, only_rule: int, only_judge: int, neither: int, proven: int) -> Agreement:
        sampled, total = both + only_rule, proven + only_judge + neither
        if total == 0 or (proven and not sampled):
            return cls(both, only_rule, only_judge, neither, proven, None, None)
        scale = proven / sampled if sampled else 0.0  # the sample of the proven answers stands for all of them
        fraction, rule, judge = (both * scale + neither) / total, proven / total, (both * scale + only_judge) / total
        by_chance = rule * judge + (1 - rule) * (1 - judge)
        kappa = None if math.isclose(by_chance, 1.0) else (fraction - by_chance) / (1 - by_chance)
        return cls(both, only_rule, only_judge, neither, proven, fraction, kappa)


def agreement(samples: Sequence[Sample], scope: Scope = "all") -> Agreement:
    table: Counter[tuple[str, str]] = Counter()
    proven = 0
    for sample in samples:
        if (verdict := sample.verdict) is not None:
            table[verdict.opinions] += 1
            proven += verdict.opinions[0] == "correct" and is_in_scope(verdict, sample.problem.gold, scope)
    both, only_rule = table["correct", "correct"], table["correct", "wrong"]
    return Agreement.of(both, only_rule, table["wrong", "correct"], table["wrong", "wrong"], proven)


@dataclass(frozen=True)
class JudgeSummary:
    """What a judge did in a cell.

    `asked` answers took a request and `cached` ones none; `failed` answers have no verdict. Opinions on proven answers
    are among those asked.
    """

    identity: Mapping[str, Any]
    asked: int
    cached: int
    failed: int
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
    return JudgeSummary(
        identity=dict(identity),
        asked=sum(count > 0 for count in calls),
        cached=calls.count(0),
        failed=sum(verdict.state == "judge failed" for verdict in verdicts),
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
