"""One training, several numbers: the weaker of two baselines, seeds, and code that does otherwise than the text."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from statistics import mean, stdev

from atrl_bench.papers.arithmetic import baseline_address
from atrl_bench.papers.findings import AuditFinding, AuditOutcome, Section, section
from atrl_bench.papers.paper import Paper
from atrl_bench.papers.printed import Score, grouped


def weaker_baselines(scores: Sequence[Score], paper: Paper) -> Section:
    """A finding for each printed gain over a baseline of which the paper has a better version."""
    at = {score.address: score for score in scores}
    findings: dict[Hashable, AuditFinding] = {}
    for score in scores:
        column = spec.gain_of if (spec := paper.columns.get(score.column)) else None
        baseline, mine = at.get(baseline_address(score, column or "")), at.get((score.table, score.row, column or ""))
        if column is None or baseline is None or mine is None or score.row == baseline.row:
            continue
        better = [
            other
            for other in scores
            if (other.training, other.column) == (baseline.training, column) and other.settings != baseline.settings
            if baseline.value < other.value and other.training and other.row != score.row
        ]
        if better and score.training != baseline.training:
            best = max(better, key=lambda other: other.value)
            gain = 100 * (mine.value / best.value - 1)
            key, last = (score.training, baseline.address), findings.get((score.training, baseline.address))
            if last is None or last.details["points"] < mine.value - best.value:  # the best row of that method
                findings[key] = AuditFinding(
                    where=f"{score.source}: {score.row_label}, {column}",
                    printed=f"{score.value} % over {baseline.cited}",
                    computed=f"{mine.value} is {mine.value - best.value:+} points, {gain:.2f} %, from {best.cited}",
                    outcome="open",
                    sure=f"certain as arithmetic; the two differ in {_differ(baseline, best)}, which may be the point",
                    details={"gain": float(gain), "points": float(mine.value - best.value)},
                )
    return section("weaker_baselines", findings.values())


def _differ(one: Score, other: Score) -> str:
    names = sorted({*one.settings, *other.settings})
    pairs = ((name, one.settings.get(name, "?"), other.settings.get(name, "?")) for name in names)
    return ", ".join(f"{name} ({a}, {b})" for name, a, b in pairs if a != b) or "nothing that is stated"


def seeds(scores: Sequence[Score]) -> Section:
    """A finding for each training of several seeds: their spread, and whether the number of the text is the best."""
    findings = []
    trained = [score for score in scores if score.training]
    for (_, what), members in grouped(trained, lambda s: (s.training, str(sorted(s.settings.items())))).items():
        columns = grouped((s for s in members if s.seed is not None), lambda score: score.column)
        headlines = {s.column: s for s in members if s.seed is None}
        columns = {name: of_column for name, of_column in columns.items() if len(of_column) > 1}
        best = [c for c, ones in columns.items() if c in headlines and headlines[c].value == max(s.value for s in ones)]
        if not columns:
            continue
        told = [name for name in columns if name in headlines]
        lines = []
        for name, ones in columns.items():
            values = [float(score.value) for score in ones]
            head = f" (elsewhere {headlines[name].value})" if name in headlines else ""
            printed = ", ".join(f"{score.value}" for score in ones)
            lines.append(f"{name} {printed}: mean {mean(values):.2f}, sd {stdev(values):.2f}{head}")
        is_best = bool(told) and 2 * len(best) > len(told)
        outcome: AuditOutcome = "fails" if is_best else "open"
        first = next(iter(columns.values()))
        findings.append(
            AuditFinding(
                where=f"{' + '.join(members[0].training[1:])} of {members[0].training[0]}, seeds "
                + ", ".join(str(score.seed) for score in first),
                printed="; ".join(lines),
                computed=_headline(best, told, columns) + _paired(columns, scores),
                outcome=outcome,
                sure=f"certain as a count; by chance {len(told) / len(first):.1f} columns. It may be the first seed, "
                "not a chosen one"
                if told
                else "certain; two runs say little about a standard deviation",
                details={"best": len(best), "columns": len(told), "settings": what},
            )
        )
    return section("seeds", findings)


def _headline(best: Sequence[str], told: Sequence[str], columns: dict[str, list[Score]]) -> str:
    if not told:
        return "a spread that a difference of two single runs has to exceed"
    num_seeds = len(next(iter(columns.values())))
    return f"the headline is the best of {num_seeds} seeds in {len(best)} of {len(told)} columns"


def _paired(columns: dict[str, list[Score]], scores: Sequence[Score]) -> str:
    """What is gained over the baseline of the same seed, where each seed names one."""
    at, parts = {score.address: score for score in scores}, []
    for name, ones in columns.items():
        gains = [float(s.value - at[a].value) for s in ones if s.baseline and (a := baseline_address(s, name)) in at]
        if len(gains) > 1:
            parts.append(
                f"{name} {gains[0]:+.1f} with the first seed, {mean(gains):+.2f} ± {stdev(gains):.2f} over all"
            )
    return f"; gain over the baseline of the same seed: {'; '.join(parts)}" if parts else ""


def versions(scores: Sequence[Score], paper: Paper) -> Section:
    """A finding for each row that tables of different settings, such as releases, print with different numbers."""
    of_tables = {name: table.settings for name, table in paper.tables.items() if table.settings}
    findings = []
    own = [score for score in scores if score.table in of_tables and (score.training or score.checkpoint)]
    for (row, column), members in grouped(own, lambda score: (score.row, score.column)).items():
        values = [member.value for member in members]
        if len(set(values)) > 1:
            names = ", ".join(f"{value}" for member in members for value in of_tables[member.table].values())
            findings.append(
                AuditFinding(
                    where=f"{row}, {column}",
                    printed="; ".join(member.cited for member in members),
                    computed=f"{max(values) - min(values)} points between {names}",
                    outcome="open",
                    sure="certain as printed; a release changes software and defaults, which are then worth so much",
                )
            )
    return section("versions", findings)


def code_against_text(paper: Paper) -> Section:
    """A finding for each setting of the released code that the text does not have, or has otherwise."""
    stated = paper.protocol.stated()
    findings = [
        AuditFinding(
            where=f"protocol: {name}",
            printed=f"{stated[name]}" if name in stated else "not stated",
            computed=f"{value} in the released code",
            outcome="fails" if name in stated and stated[name] != value else "open",
            sure="certain that they differ; which one the printed numbers are of is not said"
            if name in stated
            else "certain; whoever measures again by the text alone has another setting",
        )
        for name, value in paper.code.stated().items()
    ]
    return section("code", findings)
