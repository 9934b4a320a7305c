"""Whether the paper's derived numbers follow from its scores: averages, arrows, Δ, and what its text says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import groupby

from atrl_bench.experiments.definition import AVERAGE
from atrl_bench.papers.findings import AuditFinding, AuditOutcome, Section, section
from atrl_bench.papers.paper import Paper
from atrl_bench.papers.printed import (
    KINDS,
    Address,
    Claim,
    Derived,
    Order,
    Score,
    compute,
    grouped,
    invalid_claims,
    rounded,
    tables_in,
)

Values = Mapping[Address, Decimal]


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
    return section("arithmetic", findings, derived=len(derived), wrong=num_wrong or "none")


def recompute(item: Derived, values: Values) -> Decimal | None:
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


def follows(scores: Sequence[Score], paper: Paper) -> Section:
    """A finding for each table's averages and gains together, and one for each that does not follow."""
    values = {score.address: score.value for score in scores}
    findings = []
    for (table, column), members in grouped(scores, lambda score: (score.table, score.column)).items():
        spec = paper.columns.get(column)
        if spec is None or not (spec.mean_of or spec.gain_of):
            continue
        check = _mean if spec.mean_of else _gain
        found = [finding for score in members if (finding := check(score, paper, values)) is not None]
        if found:
            right = sum(finding.outcome == "holds" for finding in found)
            findings.append(
                AuditFinding(
                    where=f"{members[0].source}: {column} ({table})",
                    printed=f"{len(found)} {'averages' if spec.mean_of else 'gains'}",
                    computed=f"{right} follow from the scores beside them",
                    outcome="holds" if right == len(found) else "open",
                    sure="certain",
                )
            )
            findings += [finding for finding in found if finding.outcome != "holds"]
        if spec.gain_of:
            findings += _twins(members, spec.gain_of, values)
    return section("follows", findings)


def baseline_address(score: Score, column: str) -> Address:
    table, slash, row = score.baseline.rpartition("/")
    return (table if slash else score.table), row, column


def _unit(value: Decimal) -> Decimal:
    return Decimal(1).scaleb(int(value.as_tuple().exponent))


def _parts(score: Score, paper: Paper, values: Values, column: str) -> dict[str, tuple[Decimal, int]]:
    """The columns that an average is of, each with its weight; averages of some of them stand for these."""
    spec = paper.columns[column]
    beside = {name: value for (table, row, name), value in values.items() if (table, row) == (score.table, score.row)}
    plain = {n: v for n, v in beside.items() if not (c := paper.columns.get(n)) or not (c.mean_of or c.gain_of)}
    if "*" in spec.mean_of:
        return {name: (value, 1) for name, value in plain.items()}
    parts, left = {n: (plain[n], 1) for n in spec.mean_of if n in plain}, set(spec.mean_of) - set(plain)
    for name, value in beside.items():
        inner = set(paper.columns[name].mean_of) if name in paper.columns and name != column else set()
        if left and inner and inner <= left:
            parts[name], left = (value, len(inner)), left - inner
    return {} if left else parts


def _mean(score: Score, paper: Paper, values: Values) -> AuditFinding | None:
    parts = _parts(score, paper, values, score.column)
    if not parts:
        return None
    mean = sum((value * weight for value, weight in parts.values()), Decimal(0)) / sum(w for _, w in parts.values())
    room = (_unit(score.value) + max(_unit(value) for value, _ in parts.values())) / 2
    return _stated(
        score,
        f"{mean:.2f}, the mean of {', '.join(f'{name} {value}' for name, (value, _) in parts.items())}",
        "holds" if abs(mean - score.value) <= room else "fails",
        "certain, unless another set of columns was averaged",
    )


def _gain(score: Score, paper: Paper, values: Values) -> AuditFinding | None:
    column = paper.columns[score.column].gain_of or ""
    mine, theirs = values.get((score.table, score.row, column)), values.get(baseline_address(score, column))
    if mine is None or not theirs:
        return None
    gain, room = 100 * (mine / theirs - 1), Decimal("0.02")
    computed = f"{gain:.2f}, as {mine} is to {theirs} ({score.baseline})"
    if abs(gain - score.value) <= room:
        return _stated(score, computed, "holds", "certain")
    each = [
        100 * (values[score.table, score.row, name] / values[address] - 1)
        for name in paper.columns[column].mean_of
        if (score.table, score.row, name) in values and values.get(address := baseline_address(score, name))
    ]
    if not each:
        return _stated(score, computed, "open", "the columns are not printed: it may be the mean of their own gains")
    other = sum(each, Decimal(0)) / len(each)
    if abs(other - score.value) <= room:
        return _stated(score, computed, "open", f"certain: {other:.2f} is the mean of the columns' own gains instead")
    return _stated(score, f"{computed}; the mean of the columns' gains is {other:.2f}", "fails", "certain")


def _twins(members: Sequence[Score], column: str, values: Values) -> list[AuditFinding]:
    """Equal gains over one baseline of rows whose averages differ: one of them is likely a copy of the other."""
    found = []
    for (gain, baseline), rows in grouped(members, lambda score: (score.value, score.baseline)).items():
        averages = {score.row: values.get((score.table, score.row, column)) for score in rows}
        if len(set(averages.values())) > 1 and baseline:
            printed = " and ".join(f"{column} {value} ({row})" for row, value in averages.items())
            sure = "likely a copied entry; a mean of the columns' own gains could be equal by chance"
            found.append(_stated(rows[0], f"the same gain of {gain} for {printed}", "fails", sure))
    return found


def _stated(score: Score, computed: str, outcome: AuditOutcome, sure: str) -> AuditFinding:
    where = f"{score.source}: {score.row_label}, {score.column}"
    return AuditFinding(where, str(score.value), computed, outcome, sure, {"address": "/".join(score.address)})


def prose(scores: Sequence[Score], claims: Sequence[Claim], orders: Sequence[Order]) -> Section:
    """A finding for each number in the running text, and for each claim that one model is above another."""
    values = {score.address: score.value for score in scores}
    tables = {score.table for score in scores}
    findings = [_claim(claim, values) for claim in claims if tables_in(claim.computed_from) <= tables]
    findings += [_order(order, scores) for order in orders if order.table in tables]
    return section("prose", findings)


def _claim(claim: Claim, values: Values) -> AuditFinding:
    printed = claim.number
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
    if not common:
        which = f"of {', '.join(order.only)} " if order.only else ""
        raise invalid_claims(f"{order.table} has no score {which}of both {order.better} and {order.worse}.")
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
