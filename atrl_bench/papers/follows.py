"""Columns that follow from others: averages over benchmarks, and gains in percent of a baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from atrl_bench.papers.findings import AuditFinding, Section
from atrl_bench.papers.paper import Paper
from atrl_bench.papers.printed import Address, Score, grouped

Values = Mapping[Address, Decimal]


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
    return Section(
        "follows",
        "Averages and gains",
        "Every average is recomputed from its columns, as far as they are printed, and may be off by their rounding. A "
        "gain is that of the printed average; where it is not, the mean of the columns' own gains is tried.",
        f"{sum(f.outcome == 'fails' for f in findings)} numbers do not follow.",
        tuple(findings),
    )


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
    return _finding(
        score,
        f"{mean:.2f}, the mean of {', '.join(f'{name} {value}' for name, (value, _) in parts.items())}",
        "holds" if abs(mean - score.value) <= room else "fails",
        "certain, unless another set of columns was averaged",
    )


def _gain(score: Score, paper: Paper, values: Values) -> AuditFinding | None:
    column = paper.columns[score.column].gain_of or ""
    mine, theirs = values.get((score.table, score.row, column)), values.get(baseline_address(score, column))
    if mine is None or theirs is None:
        return None
    gain, room = 100 * (mine / theirs - 1), Decimal("0.02")
    computed = f"{gain:.2f}, as {mine} is to {theirs} ({score.baseline})"
    if abs(gain - score.value) <= room:
        return _finding(score, computed, "holds", "certain")
    each = [
        100 * (values[score.table, score.row, name] / values[address] - 1)
        for name in paper.columns[column].mean_of
        if (score.table, score.row, name) in values and (address := baseline_address(score, name)) in values
    ]
    if not each:
        return _finding(score, computed, "open", "the columns are not printed: it may be the mean of their own gains")
    other = sum(each, Decimal(0)) / len(each)
    if abs(other - score.value) <= room:
        return _finding(score, computed, "open", f"certain: {other:.2f} is the mean of the columns' own gains instead")
    return _finding(score, f"{computed}; the mean of the columns' gains is {other:.2f}", "fails", "certain")


def _twins(members: Sequence[Score], column: str, values: Values) -> list[AuditFinding]:
    """Equal gains over one baseline of rows whose averages differ: one of them is likely a copy of the other."""
    found = []
    for (gain, baseline), rows in grouped(members, lambda score: (score.value, score.baseline)).items():
        averages = {score.row: values.get((score.table, score.row, column)) for score in rows}
        if len(set(averages.values())) > 1 and baseline:
            printed = " and ".join(f"{column} {value} ({row})" for row, value in averages.items())
            sure = "likely a copied entry; a mean of the columns' own gains could be equal by chance"
            found.append(_finding(rows[0], f"the same gain of {gain} for {printed}", "fails", sure))
    return found


def _finding(score: Score, computed: str, outcome: str, sure: str) -> AuditFinding:
    where = f"{score.source}: {score.row_label}, {score.column}"
    return AuditFinding(where, str(score.value), computed, outcome, sure, {"address": "/".join(score.address)})  # type: ignore[arg-type]
