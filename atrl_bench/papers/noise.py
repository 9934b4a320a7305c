"""Which published differences are larger than the noise that their benchmark's size implies.

No answers are printed, so how often two rows disagree on a problem is unknown. Two bounds are known. Unpaired:
both rows answer independently, and the standard error of the difference is sqrt(p(1-p)/n + q(1-q)/n). Best case: the
better row loses no problem that the other solves, and the exact McNemar test has only wins to count. Between the two
lies what decides: how many problems may change sides before the difference could be chance.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from atrl_bench.papers.findings import AuditFinding, AuditOutcome, Section, section
from atrl_bench.papers.printed import Address, Claims, Score, Size, address_of, grouped

Z95 = 1.959964  # of the normal distribution


@dataclass(frozen=True)
class Bounds:
    """What a difference between two scores over the same n problems can mean."""

    difference: float
    num_problems: int
    unpaired_stderr: float
    best_case_p: float
    max_changed: float

    @property
    def reading(self) -> str:
        """Either "noise" (even in the best case), "beyond noise" (even unpaired), or "undecided"."""
        if self.best_case_p >= 0.05:
            return "noise"
        return "beyond noise" if abs(self.difference) > Z95 * self.unpaired_stderr else "undecided"


def bounds(score: float, other: float, num_problems: int, repeats: int = 1) -> Bounds:
    """Both bounds for two accuracies in percent, means of `repeats` samples over the same problems.

    `max_changed` is the largest share of the problems on which the two rows may disagree with the difference still
    significant at 5 %: with D disagreements and a surplus of k, McNemar needs k / sqrt(D) above 1.96.
    """
    p, q = score / 100, other / 100
    unpaired = math.sqrt((p * (1 - p) + q * (1 - q)) / num_problems)
    surplus = round(abs(p - q) * num_problems)
    best_case = min(1.0, 2 * 0.5 ** round(abs(p - q) * num_problems * repeats))
    changed = min(1.0, (surplus / Z95) ** 2 / num_problems)
    return Bounds(score - other, num_problems, 100 * unpaired, best_case, changed)


def noise(scores: Sequence[Score], claims: Claims) -> Section:
    """A finding for each difference the paper builds on: credit against none, and best against second best."""
    at = {score.address: score for score in scores}
    findings = [
        _finding(score, other, claims.sizes[score.task][0])
        for score, other in (*_pairs(scores, at), *_claimed(claims, at), *_bold(scores))
        if score.task in claims.sizes
    ]
    spread = grouped((s for s in scores if s.spread is not None), lambda score: (score.table, score.column))
    known = (members for members in spread.values() if members[0].task in claims.sizes)
    findings += [_spread(members, claims.sizes[members[0].task][0]) for members in known]
    readings = Counter(finding.details.get("reading") for finding in findings)
    return section("noise", findings, readings=readings)


def against_baseline(scores: Sequence[Score], sizes: Mapping[str, Sequence[Size]]) -> Section:
    """A finding for each table: how many of its differences from the untrained model are beyond noise."""
    at = {score.address: score for score in scores}
    findings = []
    for table, members in grouped(scores, lambda score: score.table).items():
        pairs = [
            (s, at[s.table, s.baseline, s.column])
            for s in members
            if not s.is_baseline and (s.table, s.baseline, s.column) in at and s.task in sizes
        ]
        readings = Counter(_bounds(s, b, sizes[s.task][0]).reading for s, b in pairs)
        if pairs:
            findings.append(
                AuditFinding(
                    where=table,
                    printed=f"{len(pairs)} differences from {pairs[0][1].row_label}",
                    computed=f"{readings['beyond noise']} beyond noise, {readings['undecided']} undecided, "
                    f"{readings['noise']} noise",
                    outcome="open" if readings["noise"] or readings["undecided"] else "holds",
                    sure="for these test problems and one training run; another seed may move a row by more",
                    details=dict(readings),
                )
            )
    arrows = sum((Counter[str](finding.details) for finding in findings), Counter[str]())
    return section("baseline_noise", findings, arrows=arrows.total(), beyond=arrows["beyond noise"])


def _pairs(scores: Sequence[Score], at: Mapping[Address, Score]) -> list[tuple[Score, Score]]:
    """Each score with that of the row which differs from its own in its credit alone."""
    return [
        (score, at[score.table, score.compared_with, score.column])
        for score in scores
        if score.compared_with and (score.table, score.compared_with, score.column) in at
    ]


def _claimed(claims: Claims, at: Mapping[Address, Score]) -> list[tuple[Score, Score]]:
    """The cells whose difference the text speaks of."""
    pairs = [[at.get(address_of(cell)) for cell in claim.difference or ()] for claim in claims.claims]
    return [(score, other) for score, other in (pair for pair in pairs if len(pair) == 2) if score and other]


def _bold(scores: Sequence[Score]) -> list[tuple[Score, Score]]:
    """Each column's best score with the second best, unless that pair is compared already."""
    pairs = []
    for column in grouped(scores, lambda score: (score.table, score.column)).values():
        ranked = sorted(column, key=lambda s: -s.value)
        if len(ranked) > 2 and ranked[0].compared_with != ranked[1].row and ranked[0].value > ranked[1].value:
            pairs.append((ranked[0], ranked[1]))
    return pairs


def _bounds(score: Score, other: Score, size: Size) -> Bounds:
    return bounds(float(score.value), float(other.value), size.problems, score.protocol.get("repeats", 1))


def _finding(score: Score, other: Score, size: Size) -> AuditFinding:
    limits = _bounds(score, other, size)
    meanings: dict[str, tuple[AuditOutcome, str]] = {
        "beyond noise": ("holds", "for these problems, even if the rows were unrelated"),
        "noise": ("fails", "too few problems for this difference, however the answers are paired"),
        "undecided": ("open", f"chance, if more than {100 * limits.max_changed:.1f} % of the problems changed sides"),
    }
    outcome, sure = meanings[limits.reading]
    return AuditFinding(
        where=f"{score.table}: {score.row_label} against {other.row_label}, {score.column_label}",
        printed=f"{score.value} and {other.value}",
        computed=f"{score.value - other.value:+} points; unpaired 95 %: ±{Z95 * limits.unpaired_stderr:.1f} "
        f"(n = {size.problems})",
        outcome=outcome,
        sure=sure,
        details={
            "reading": limits.reading,
            "difference": float(score.value - other.value),
            "problems": size.problems,
            "unpaired_stderr": limits.unpaired_stderr,
            "best_case_p": limits.best_case_p,
            "max_changed": limits.max_changed,
        },
    )


def _spread(members: Sequence[Score], size: Size) -> AuditFinding:
    """How still the problems must have stood for a standard deviation over trainings to be this small."""
    spreads = [member.spread for member in members if member.spread is not None]
    p = float(members[-1].value) / 100
    binomial = 100 * math.sqrt(p * (1 - p) / size.problems)
    # A problem that is a toss-up in every training adds 1/4 to the variance of the number of right answers.
    tossed = [min(1.0, (float(spread) / 100) ** 2 * size.problems / 0.25) for spread in (min(spreads), max(spreads))]
    return AuditFinding(
        where=f"{members[0].table}: spread over training runs, {members[0].column_label}",
        printed=f"standard deviations of {min(spreads)} to {max(spreads)} points",
        computed=f"one run's binomial standard error is {binomial:.2f}; spreads so small allow toss-ups on "
        f"{100 * tossed[0]:.1f} to {100 * tossed[1]:.1f} % of the {size.problems} problems",
        outcome="open",
        sure="suggestive: trainings share the problems, so they may differ by less than a run's own error",
        details={
            "smallest": float(min(spreads)),
            "largest": float(max(spreads)),
            "binomial_stderr": binomial,
            "max_tossed": tossed[1],
        },
    )
