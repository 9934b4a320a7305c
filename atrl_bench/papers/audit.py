"""The paper against itself: its arithmetic, its contradictions, and what its digits and benchmark sizes allow.

Nothing here is measured; every finding follows from what the paper prints, and says how sure it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from atrl_bench.errors import UnknownNameError
from atrl_bench.papers.arithmetic import arithmetic, prose
from atrl_bench.papers.contradictions import below_baseline, coincidences, contradictions
from atrl_bench.papers.findings import AuditFinding, Section
from atrl_bench.papers.granularity import granularity, last_digits
from atrl_bench.papers.noise import against_baseline, noise
from atrl_bench.papers.printed import load_claims, load_derived, load_scores

__all__ = ["AuditFinding", "Section", "audit"]


def audit(tables: Sequence[str] | None = None) -> list[Section]:
    """Everything that the paper's printed numbers say about each other, for these tables or for all."""
    scores = load_scores()
    printed = list(dict.fromkeys(score.table for score in scores))
    for table in tables or ():
        if table not in printed:
            raise UnknownNameError("table with printed scores", table, printed)
    scores = [score for score in scores if not tables or score.table in tables]
    claims, names = load_claims(), [name for name in printed if not tables or name in tables]
    return [
        arithmetic(scores, load_derived(names)),
        prose(scores, claims.claims, claims.orders),
        contradictions(scores, claims.same, claims.statements),
        coincidences(scores),
        granularity(scores, claims.sizes),
        last_digits(scores, claims.sizes),
        noise(scores, claims),
        against_baseline(scores, claims.sizes),
        below_baseline(scores, claims.below),
    ]
