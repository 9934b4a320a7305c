"""Which printed scores are possible at all, as k right answers out of n, and which look rounded by hand.

A percentage over n problems is 100 k / n for a whole k. With two decimals about n in 10,000 of all printable numbers
are of that form: for a small n, a number that is not was not counted over n. (Psychology knows it as the GRIM test.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import prod

from atrl_bench.papers.findings import AuditFinding, AuditOutcome, Section, section
from atrl_bench.papers.printed import Score, Size, grouped

DECISIVE = 0.001  # a number of fits that chance reaches more rarely than this is an explanation


@dataclass(frozen=True)
class Fit:
    """How many of a column's scores are possible over `total` answers, and how many would be by chance."""

    total: int
    what: str
    num_scores: int
    num_fits: int
    expected: float  # fits, among numbers of as many decimals that have nothing to do with `total`
    tail: float  # how often all of these would fit

    @property
    def reading(self) -> str:
        """Either "ruled out" (some score is impossible), "confirmed" (all fit, beyond chance), or "untestable"."""
        if self.num_fits < self.num_scores:
            return "ruled out"
        return "confirmed" if self.tail < DECISIVE else "untestable"

    def __str__(self) -> str:
        return f"{self.what}: {self.num_fits} of {self.num_scores} ({self.expected:.1f} by chance), {self.reading}"


def is_possible(score: Decimal, total: int) -> bool:
    """Whether some k out of `total`, in percent, is printed as `score`, halves rounded either way."""
    half = Decimal(1).scaleb(int(score.as_tuple().exponent)) / 2
    nearest = int(score * total / 100)
    return any(abs(Decimal(100 * k) / total - score) <= half for k in (nearest, nearest + 1) if k <= total)


def chance_of_fit(total: int, digits: int) -> float:
    """The share of all printable numbers with so many decimals that are possible over `total`."""
    return min(1.0, total / 10 ** (digits + 2))


def fit(scores: Sequence[Decimal], total: int, what: str) -> Fit:
    """How well one size explains the scores."""
    chances = [chance_of_fit(total, -int(score.as_tuple().exponent)) for score in scores]
    num_fits = sum(is_possible(score, total) for score in scores)
    return Fit(total, what, len(scores), num_fits, sum(chances), prod(chances))


def granularity(scores: Sequence[Score], sizes: Mapping[str, Sequence[Size]], repeats: int) -> Section:
    """A finding for each table and benchmark: which of the sizes it may have been counted over are possible."""
    findings = [
        _finding(table, members, fits)
        for (table, task), members in sorted(grouped(scores, lambda score: (score.table, score.task)).items())
        if (fits := [_fit_of(members, size, n) for size in sizes.get(task, ()) for n in sorted({1, repeats})])
    ]
    unexplained = [finding.where for finding in findings if finding.outcome == "fails"]
    explained = [finding.where for finding in findings if finding.outcome == "holds"]
    named = {"explained": ", ".join(explained) or "none", "unexplained": ", ".join(unexplained) or "none"}
    return section("granularity", findings, repeats=repeats, **named)


def _fit_of(members: Sequence[Score], size: Size, repeats: int) -> Fit:
    how = "one run" if repeats == 1 else f"mean of {repeats} runs"
    return fit([score.value for score in members], size.problems * repeats, f"{how} over {size.what}")


def _finding(table: str, members: Sequence[Score], fits: Sequence[Fit]) -> AuditFinding:
    readings = {each.reading for each in fits}
    outcome: AuditOutcome
    if "confirmed" in readings:
        best = min((each for each in fits if each.reading == "confirmed"), key=lambda each: each.tail)
        outcome, sure = "holds", f"{best.what}; chance does this {_once_in(best.tail)}"
    elif readings == {"ruled out"}:
        outcome, sure = "fails", "certain, if none of these sizes is wrong and the scores are counts of right answers"
    else:
        outcome, sure = "open", "what fits would fit by chance too"
    return AuditFinding(
        where=f"{table}: {members[0].column_label}",
        printed=f"{len(members)} scores",
        computed="; ".join(map(str, fits)),
        outcome=outcome,
        sure=sure,
        details={
            "table": table,
            "task": members[0].task,
            "sizes": [
                {
                    "total": each.total,
                    "what": each.what,
                    "fits": each.num_fits,
                    "by_chance": round(each.expected, 2),
                    "reading": each.reading,
                    "impossible": [str(s.value) for s in members if not is_possible(s.value, each.total)],
                }
                for each in fits
            ],
        },
    )


def _once_in(tail: float) -> str:
    return f"once in {1 / tail:,.0f} times" if tail > 1e-9 else "less than once in a thousand million times"


# Last digits --------------------------------------------------------------------------------------------------------


def last_digits(scores: Sequence[Score], sizes: Mapping[str, Sequence[Size]]) -> Section:
    """A finding for each table of two decimals: how many of its trained scores end in 0 or 5.

    A column that is all k/1000 is left out: its scores end in 0 because of its size. Where 1,000 problems explain a
    column in part, it is counted but does not decide.
    """
    columns = grouped(scores, lambda score: (score.table, score.task))
    explained = {column for column, members in columns.items() if _explain_round(members, sizes.get(column[1], ()))}
    counted = [s for s in scores if s.digits == 2 and not s.is_baseline and (s.table, s.task) not in explained]
    findings = [
        _last_digit_finding(table, members, sizes)
        for table, members in grouped(counted, lambda score: score.table).items()
        if len(members) >= 10
    ]
    rounded = [finding.where for finding in findings if finding.outcome == "fails"]
    said = "No table has more scores ending in 0 or 5 than chance gives."
    if rounded:
        said = f"Rounded to 0.05, by the look of it: {', '.join(rounded)}. Second decimals there carry no information."
    return section("last_digits", findings, said=said)


def _explain_round(column: Sequence[Score], sizes: Sequence[Size]) -> bool:
    possible = [size.problems for size in sizes if 1000 % size.problems == 0]
    return any(all(is_possible(score.value, total) for score in column) for total in possible)


def _last_digit_finding(table: str, members: Sequence[Score], sizes: Mapping[str, Sequence[Size]]) -> AuditFinding:
    from scipy.stats import binom

    deciding = [s for s in members if all(1000 % size.problems for size in sizes.get(s.task, ()))]
    num_round, num_deciding = (
        sum(s.value.as_tuple().digits[-1] in (0, 5) for s in part) for part in (members, deciding)
    )
    tail = float(binom.sf(num_deciding - 1, len(deciding), 0.2)) if deciding else 1.0
    computed = f"{num_round} of {len(members)} end in 0 or 5; {0.2 * len(members):.0f} by chance"
    if len(deciding) < len(members):
        computed += f"; without benchmarks of 1,000 problems {num_deciding} of {len(deciding)}"
    return AuditFinding(
        where=table,
        printed=f"{len(members)} scores with two decimals",
        computed=computed,
        outcome="fails" if tail < DECISIVE else "holds",
        sure=f"chance does this {_once_in(tail)}" if tail < DECISIVE else "as chance gives, or nearly",
        details={"table": table, "round": num_round, "scores": len(members), "deciding": len(deciding), "p": tail},
    )
