"""A paper against itself and against others: arithmetic, contradictions, and what its digits and sizes allow.

Nothing here is measured; every finding follows from what is printed, and says how sure it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from atrl_bench.errors import UnknownNameError
from atrl_bench.papers.across import across, concerning
from atrl_bench.papers.arithmetic import arithmetic, follows, prose
from atrl_bench.papers.contradictions import below_baseline, coincidences, contradictions
from atrl_bench.papers.findings import Section
from atrl_bench.papers.granularity import granularity, last_digits
from atrl_bench.papers.noise import against_baseline, noise
from atrl_bench.papers.paper import Paper
from atrl_bench.papers.printed import load_claims, load_derived, load_scores
from atrl_bench.papers.runs import code_against_text, seeds, versions, weaker_baselines


def audit(paper: Paper, tables: Sequence[str] | None = None) -> list[Section]:
    """Everything that a paper's printed numbers say about each other, and about those of other papers.

    Of these tables, and then of this paper alone, or of all; a check that has nothing to look at is left out.
    """
    scores = load_scores(paper)
    names = list(dict.fromkeys(score.table for score in scores))
    for table in tables or ():
        if table not in names:
            raise UnknownNameError("table with printed scores", table, names)
    names = [name for name in names if not tables or name in tables]
    every, claims = [score for score in scores if score.table in names], load_claims(paper)
    scores = [score for score in every if score.benchmark]
    sections = [
        arithmetic(scores, load_derived(paper, names)),
        follows(every, paper),
        prose(every, claims.claims, claims.orders),
        contradictions(every, claims.same, claims.statements),
        coincidences(scores),
        granularity(scores, claims.sizes, paper.protocol.repeats or 1),
        last_digits(scores, claims.sizes),
        noise(scores, claims),
        against_baseline(scores, claims.sizes),
        below_baseline(scores, claims.below),
        weaker_baselines(every, paper),
        seeds(every),
        versions(every, paper),
        code_against_text(paper),
        *(concerning(paper.name, across()) if not tables else ()),
    ]
    return [section for section in sections if section.findings]
