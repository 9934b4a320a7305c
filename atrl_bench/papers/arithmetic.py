"""Whether the paper's derived numbers follow from its scores: averages, arrows, Δ, and what its text says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import groupby

from atrl_bench.experiments.definition import AVERAGE
from atrl_bench.papers.findings import AuditFinding, Section
from atrl_bench.papers.printed import (
    Address,
    Claim,
    Derived,
    Order,
    Score,
    compute,
    rounded,
    tables_in,
)

KINDS = {"average": "averages", "change": "changes from another row"}


def arithmetic(scores: Sequence[Score], derived: Sequence[Derived]) -> Section:
    """A finding for each table and kind of derived number, and one for each that does not follow."""
    values = {score.address: score.value for score in scores}
    findings = []
    for (table, kind), items in groupby(derived, key=lambda item: (item.table, item.kind)):
        members = [(item, recompute(item, values)) for item in items]
        wrong = [(item, value) for item, value in members if value != item.printed]
        findings.append(
            AuditFinding(
                where=table,
                printed=f"{len(members)} {KINDS[kind]}",
                computed=f"{len(members) - len(wrong)} follow from the scores beside them, to the last digit",
                outcome="fails" if wrong else "holds",
                sure="certain",
                details={"table": table, "kind": kind, "numbers": len(members), "wrong": len(wrong)},
            )
        )
        findings += [
            AuditFinding(f"{table}: {item.row}, {item.column}", str(item.printed), str(value), "fails", "certain")
            for item, value in wrong
        ]
    num_wrong = sum(finding.details.get("wrong", 0) for finding in findings)
    return Section(
        "arithmetic",
        "Arithmetic within each table",
        "Every printed average, arrow and Δ is recomputed from the printed scores, in decimal, halves rounded up.",
        f"{len(derived)} derived numbers: {num_wrong or 'none'} of them wrong.",
        tuple(findings),
    )


def recompute(item: Derived, values: Mapping[Address, Decimal]) -> Decimal | None:
    """What a derived number should be, rounded as it is printed, or None if a score it needs is not printed.

    The change of an average is the difference of the rounded averages, which is how the paper computes it.
    """
    digits = -int(item.printed.as_tuple().exponent)

    def cell(row: str) -> Decimal | None:
        if item.column != AVERAGE:
            return values.get((item.table, row, item.column))
        row_values = [value for (table, name, _), value in values.items() if (table, name) == (item.table, row)]
        return rounded(sum(row_values, Decimal(0)) / len(row_values), digits) if row_values else None

    mine = cell(item.row)
    if item.kind == "average" or mine is None:
        return mine
    theirs = cell(item.against)
    return None if theirs is None else rounded(mine - theirs, digits)


def prose(scores: Sequence[Score], claims: Sequence[Claim], orders: Sequence[Order]) -> Section:
    """A finding for each number in the running text, and for each claim that one model is above another."""
    values = {score.address: score.value for score in scores}
    tables = {score.table for score in scores}
    findings = [_claim(claim, values) for claim in claims if tables_in(claim.computed_from) <= tables]
    findings += [_order(order, scores) for order in orders if order.table in tables]
    return Section(
        "prose",
        "The text against the tables",
        "Each number that the text prints is computed from the scores of the tables it speaks of.",
        f"{sum(f.outcome == 'holds' for f in findings)} of {len(findings)} statements hold as printed.",
        tuple(findings),
    )


def _claim(claim: Claim, values: Mapping[Address, Decimal]) -> AuditFinding:
    printed = Decimal(claim.printed.rstrip("%<≈ +").lstrip("<≈+~ "))
    digits = max(0, -int(printed.as_tuple().exponent))
    exact = compute(claim.computed_from, values)
    holds = abs(exact) < abs(printed) if claim.printed.startswith("<") else rounded(exact, digits) == printed
    computed, sure = f"{exact:.4f}".rstrip("0").rstrip("."), "certain"
    if not holds and rounded(compute(claim.computed_from, values, digits), digits) == printed:
        computed += f"; {printed} only if the averages are rounded first"
    note = f"; {claim.note}" if claim.note else ""
    return AuditFinding(
        where=claim.where,
        printed=f"{claim.says} ({claim.printed})",
        computed=computed,
        outcome="holds" if holds else "fails",
        sure=sure + note,
        details={"printed": claim.printed, "exact": float(exact)},
    )


def _order(order: Order, scores: Sequence[Score]) -> AuditFinding:
    better = {s.column: s for s in scores if s.benchmark and (s.table, s.row) == (order.table, order.better)}
    worse = {s.column: s for s in scores if (s.table, s.row) == (order.table, order.worse)}
    common = [column for column in better if column in worse and (not order.only or column in order.only)]
    against = [column for column in common if better[column].value <= worse[column].value]
    exceptions = ", ".join(f"{better[c].column_label} {better[c].value} against {worse[c].value}" for c in against)
    return AuditFinding(
        where=order.where,
        printed=order.says,
        computed=f"true of {len(common) - len(against)} of {len(common)} benchmarks"
        + (f"; not of {exceptions}" if against else ""),
        outcome="fails" if against else "holds",
        sure="certain",
        details={"true_of": len(common) - len(against), "of": len(common), "exceptions": against},
    )
