"""How far judge and rule grader agree, from the grades that are stored.

The judge decides about the answers that the rules did not prove right. To see both sides it also gives its opinion on
some of the proven ones, which changes nothing: of a cell's answers one in twenty, at most 50, are chosen by hash, and
it is asked about those of them that were proven right. Kappa lets these stand for all that were.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from atrl_bench.grading.judge import Scope, is_in_scope
from atrl_bench.results.records import Sample, Verdict

ONE_IN = 20
MAX_OPINIONS = 50  # a cell


def opinion_places(problem_ids: Iterable[str], num_repeats: int) -> frozenset[tuple[str, int]]:
    """Return the answers, by problem and repeat, on which the judge is heard even when the rules prove them right.

    They depend on the names alone, so a resumed run asks about the same ones.
    """
    places = [(problem_id, repeat) for problem_id in problem_ids for repeat in range(num_repeats)]
    ranked = sorted(places, key=lambda place: hashlib.sha256(repr(place).encode("utf-8", "replace")).digest())
    return frozenset(ranked[: min(MAX_OPINIONS, math.ceil(len(ranked) / ONE_IN))])


def combined(rule: Verdict, opinion: Verdict) -> Verdict:
    """Return the verdict that counts, with the other one in its details.

    A proven answer stays proven and keeps the judge's state under "judge". Any other gets the judge's verdict, with the
    rule's state and reason under "rule" and "rule_why".
    """
    if rule.state == "correct":
        return rule._replace(details={**rule.details, "judge": opinion.state, **opinion.details})
    return opinion._replace(details={"rule": rule.state, "rule_why": rule.why, **opinion.details})


class Disagreement(NamedTuple):
    """One answer on which rule grader and judge say the opposite."""

    problem_id: str
    repeat: int
    gold: str
    extracted: str | None
    rule: str
    judge: str


@dataclass(frozen=True)
class Agreement:
    """Rule grader against judge over the answers both decided, as counts; each name says who calls an answer correct.

    An answer that the rules could not decide (unparseable, timed out) is in neither row, only in `undecided`.
    """

    both: int
    only_rule: int
    only_judge: int
    neither: int
    proven: int  # all answers the rules proved right; the judge was heard on `both + only_rule` of them
    undecided_correct: int = 0  # answers beyond the rules that the judge calls correct
    undecided_wrong: int = 0
    disagreements: tuple[Disagreement, ...] = ()

    @property
    def num_compared(self) -> int:
        """How many answers have a verdict of both."""
        return self.both + self.only_rule + self.only_judge + self.neither

    @property
    def fraction(self) -> float | None:
        """The share of the cell's answers on which both agree; None without a comparison on every side there is."""
        weights = self._weights()
        return None if weights is None else weights[0] + weights[3]

    @property
    def kappa(self) -> float | None:
        r"""Cohen's kappa, (p_o - p_e) / (1 - p_e): agreement beyond what two graders with these rates have by chance.

        None where it is undefined: nothing compared, or both give every answer the same verdict.
        """
        weights = self._weights()
        if weights is None:
            return None
        both, only_rule, only_judge, neither = weights
        rule, judge = both + only_rule, both + only_judge
        by_chance = rule * judge + (1 - rule) * (1 - judge)
        return None if math.isclose(by_chance, 1.0) else (both + neither - by_chance) / (1 - by_chance)

    def _weights(self) -> tuple[float, float, float, float] | None:
        """Return the table as shares of the cell, the sample of the proven answers standing for all of them."""
        sampled = self.both + self.only_rule
        total = self.proven + self.only_judge + self.neither
        if total == 0 or (self.proven and not sampled):
            return None
        scale = self.proven / sampled if sampled else 0.0
        cells = (self.both * scale, self.only_rule * scale, float(self.only_judge), float(self.neither))
        return cells[0] / total, cells[1] / total, cells[2] / total, cells[3] / total

    def as_record(self) -> dict[str, Any]:
        """Return the table, what follows from it, and the disagreements as plain values."""
        return {
            "both": self.both,
            "only_rule": self.only_rule,
            "only_judge": self.only_judge,
            "neither": self.neither,
            "proven": self.proven,
            "undecided_correct": self.undecided_correct,
            "undecided_wrong": self.undecided_wrong,
            "fraction": self.fraction,
            "kappa": self.kappa,
            "disagreements": [disagreement._asdict() for disagreement in self.disagreements],
        }


def agreement(samples: Sequence[Sample], scope: Scope = "all") -> Agreement:
    """Return how far rule grader and judge agree on the graded answers of a cell, judged with this scope."""
    table: Counter[tuple[str, str]] = Counter()
    disagreements, proven = [], 0
    for sample in samples:
        verdict = sample.verdict
        if verdict is None:
            continue
        rule, judge = verdict.opinions
        proven += rule == "correct" and is_in_scope(verdict, sample.problem.gold, scope)
        table[rule, judge] += 1
        if {rule, judge} == {"correct", "wrong"}:
            disagreements.append(
                Disagreement(
                    sample.problem.problem_id,
                    sample.response.repeat,
                    sample.problem.gold.answer,
                    verdict.extracted,
                    rule,
                    judge,
                )
            )
    undecided = {
        judge: sum(table[rule, judge] for rule in ("unparseable", "timed out")) for judge in ("correct", "wrong")
    }
    return Agreement(
        both=table["correct", "correct"],
        only_rule=table["correct", "wrong"],
        only_judge=table["wrong", "correct"],
        neither=table["wrong", "wrong"],
        proven=proven,
        undecided_correct=undecided["correct"],
        undecided_wrong=undecided["wrong"],
        disagreements=tuple(disagreements),
    )
