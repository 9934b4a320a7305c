"""Where two places of the paper disagree: one experiment with two numbers, or two experiments with one number."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from itertools import combinations, product

from atrl_bench.papers.findings import AuditFinding, Section, section
from atrl_bench.papers.printed import Below, SameExperiment, Score, Statement, address_of, grouped

AS_DEFINED = "one experiment as these tables are defined here, which reads what the paper leaves open"


def contradictions(scores: Sequence[Score], same: Sequence[SameExperiment], statements: Sequence[Statement]) -> Section:
    """A finding for each experiment that is printed more than once, and for each pair of passages.

    Experiments are matched by the tables' own definitions, and where those leave something open by `same`.
    """
    at = {score.address: score for score in scores}
    findings, seen = [], set()
    for item in same:
        members = [at[address] for cell in item.cells if (address := address_of(cell)) in at]
        if len(members) > 1:
            findings.append(_same(item.what, members, item.why, item.sure))
            seen.add(frozenset(member.address for member in members))
    for experiment, members in grouped((s for s in scores if s.experiment), lambda s: s.experiment).items():
        addresses = frozenset(member.address for member in members)
        if len({member.table for member in members}) > 1 and not any(addresses <= known for known in seen):
            words = ", ".join(value for _, value in experiment)
            findings.append(_same(words, members, AS_DEFINED, "likely"))
    findings += [
        AuditFinding(f"“{s.first}”", f"“{s.second}”", s.note, "fails" if s.sure == "certain" else "open", s.sure)
        for s in statements
    ]
    return section("contradictions", findings)


def coincidences(scores: Sequence[Score]) -> Section:
    """A finding for each number that two different experiments share to the digit, with how many chance gives.

    Of two scores at most half a point apart, on a grid of 0.01, one pair in 101 is equal by chance; where both are
    multiples of 0.1, as all scores over 1,000 problems are, one in 11.
    """
    findings, near = [], 0.0
    trained = grouped((s for s in scores if s.digits == 2 and not s.is_baseline), lambda score: score.table)
    for members, others in combinations(trained.values(), 2):
        pairs = [
            (a, b)
            for a, b in product(members, others)
            if abs(a.value - b.value) <= 0.5 and not (a.experiment and a.experiment == b.experiment)
        ]
        near += sum(_chance_of_equality(a.value, b.value) for a, b in pairs)
        findings += [
            AuditFinding(
                where=f"{a.where} and {b.where}",
                printed=str(a.value),
                computed="the same number for another method" if a.task == b.task else "the same number elsewhere",
                outcome="open",
                sure="may be chance",
                details={"first": "/".join(a.address), "second": "/".join(b.address)},
            )
            for a, b in pairs
            if a.value == b.value
        ]
    return section("coincidences", findings, expected=near)


def _chance_of_equality(a: Decimal, b: Decimal) -> float:
    grid = next(unit for unit in (Decimal("0.1"), Decimal("0.05"), Decimal("0.01")) if a % unit == b % unit == 0)
    return 1 / float(1 / grid + 1)


def below_baseline(scores: Sequence[Score], below: Sequence[Below]) -> Section:
    """A finding for each trained method: in how many cells it is below the model it started from."""
    at = {score.address: score.value for score in scores}
    findings = []
    for item in below:
        cells = [s for s in scores if s.row in item.rows and (s.table, s.baseline, s.column) in at]
        under = [s for s in cells if s.value < at[s.table, s.baseline, s.column]]
        if cells:
            findings.append(
                AuditFinding(
                    where=f"{cells[0].row_label}, {len(dict.fromkeys(s.table for s in cells))} tables",
                    printed=item.says,
                    computed=f"below the untrained model in {len(under)} of {len(cells)} cells",
                    outcome="open",
                    sure="certain as a count; that the run was untuned is a guess",
                    details={"below": len(under), "cells": len(cells)},
                )
            )
    said = "; ".join(f"{f.where.partition(',')[0]} is {f.computed}" for f in findings) or "None"
    return section("below_baseline", findings, said=said)


def _same(what: str, members: Sequence[Score], why: str, sure: str) -> AuditFinding:
    values = [member.value for member in members]
    apart = max(values) - min(values)
    return AuditFinding(
        where=what,
        printed="; ".join(f"{member.value} ({member.where})" for member in members),
        computed=f"{apart} points apart" if apart else "the same number",
        outcome="fails" if apart else "holds",
        sure=f"{sure}: {why}" if apart else why,
        details={"cells": ["/".join(m.address) for m in members], "apart": float(apart)},
    )
