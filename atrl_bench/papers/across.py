"""All papers at once: the same checkpoint, training or row, printed by several.

A frame of every printed score, grouped by what papers share: the name of a checkpoint, of a benchmark, of a training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from itertools import combinations
from typing import Any

import pandas as pd

from atrl_bench.papers.findings import AuditFinding, AuditOutcome, Section, section
from atrl_bench.papers.noise import Z95, bounds
from atrl_bench.papers.paper import list_papers, load_paper
from atrl_bench.papers.printed import Score, load_claims, load_scores

FAR = 3.0  # points from the median of the others, and twice what their middle half is wide
COMMON = 3  # scores that two rows have in common before their equality says anything
CORE = ("prompt", "temperature", "repeats", "subset", "grader")  # what a number needs stated to be measured again


def frame() -> pd.DataFrame:
    """Every score of a benchmark that any paper prints, a row each; `score` has the rest."""
    scores = [score for name in list_papers() for score in load_scores(load_paper(name)) if score.benchmark]
    fields = ("paper", "benchmark", "checkpoint", "training", "table", "row")
    rows = [{name: getattr(s, name) for name in fields} | {"value": float(s.value), "score": s} for s in scores]
    return pd.DataFrame(rows)


@cache
def across() -> list[Section]:
    """What the printed numbers of all papers say of each other."""
    scores, sizes = frame(), _sizes()
    trained = scores[scores.training.map(bool)].assign(
        base_data=lambda table: table.training.map(lambda training: (training[0], training[-1]))
    )
    found = {
        "same_checkpoint": _apart(scores[scores.checkpoint != ""], "checkpoint", sizes),
        "same_training": _apart(trained, "training", sizes),
        "same_data": _apart(trained, "base_data", sizes, methods=True),
        "far_bases": _far_bases(scores),
        "copies": _copies(scores),
    }
    return [_section(name, findings) for name, findings in found.items() if findings]


def concerning(paper: str, sections: Sequence[Section]) -> list[Section]:
    """The sections with what they find of one paper."""
    return [_section(s.id, [f for f in s.findings if paper in f.details["papers"]]) for s in sections]


def _section(name: str, findings: Sequence[AuditFinding]) -> Section:
    return section(name, findings, far=FAR, common=COMMON)


def _sizes() -> dict[str, int]:
    sizes: dict[str, int] = {}
    for name in list_papers():
        for benchmark, of_benchmark in load_claims(load_paper(name)).sizes.items():
            sizes.setdefault(benchmark, of_benchmark[0].problems)
    return sizes


def _apart(scores: pd.DataFrame, by: str, sizes: Mapping[str, int], *, methods: bool = False) -> list[AuditFinding]:
    findings = []
    for (what, benchmark), group in scores.groupby([by, "benchmark"], sort=True):
        if group.paper.nunique() < 2:
            continue
        members: list[Score] = list(group.sort_values("value").score)
        low, high = members[0], members[-1]
        apart = high.value - low.value
        agree = _equal(low.value, high.value)
        if methods and len({member.training for member in members}) < 2:
            continue
        name = what if isinstance(what, str) else " + ".join(what)
        chance = _chance(low, sizes[benchmark]) if benchmark in sizes else ""
        explained, reasons = _explained(low, high)
        outcome: AuditOutcome = "holds" if agree else "open" if explained or methods else "fails"
        findings.append(
            AuditFinding(
                where=f"{name}, {benchmark}",
                printed="; ".join(dict.fromkeys(member.cited for member in members)),
                computed="the same number" if agree else f"{apart} points apart{chance}",
                outcome=outcome,
                sure="as printed" if agree else f"certain that both are printed; {reasons}",
                details=_details(members, apart=float(apart)),
            )
        )
    return sorted(findings, key=lambda finding: -finding.details["apart"])


def _chance(score: Score, problems: int) -> str:
    stderr = bounds(float(score.value), float(score.value), problems).unpaired_stderr
    return f"; two samples of {problems} problems: ±{Z95 * stderr:.1f}"


def _details(members: Sequence[Score], **more: Any) -> dict[str, Any]:
    cells = [f"{member.paper}:{'/'.join(member.address)}" for member in members]
    return {"papers": sorted({member.paper for member in members}), "cells": cells, **more}


def _equal(one: Decimal, other: Decimal) -> bool:
    """Whether the finer of two numbers is the coarser when it is rounded."""
    fine, coarse = sorted((one, other), key=lambda value: int(value.as_tuple().exponent))
    return fine.quantize(coarse, ROUND_HALF_UP) == coarse


def _explained(one: Score, other: Score) -> tuple[bool, str]:
    """Whether protocols or trainings are stated to differ, or not stated, and the words for it."""
    parts = []
    for kind, mine, theirs in (("protocol", one.protocol, other.protocol), ("training", one.settings, other.settings)):
        differ = [f"{k} ({_short(mine[k])}, {_short(theirs[k])})" for k in mine if k in theirs and mine[k] != theirs[k]]
        alone = [f"{k} ({_short({**mine, **theirs}[k])})" for k in {**mine, **theirs} if (k in mine) != (k in theirs)]
        parts += [f"{kind}s differ in {', '.join(differ)}"] if differ else []
        parts += [f"stated by one alone: {', '.join(alone)}"] if alone and kind == "training" else []
    missing = [name for name in CORE if name not in one.protocol or name not in other.protocol]
    parts += [f"not stated by both: {', '.join(missing)}"] if missing else []
    return bool(parts), "; ".join(parts) or "every stated setting is the same"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}…"


def _far_bases(scores: pd.DataFrame) -> list[AuditFinding]:
    bases = {training[0] for training in scores.training if training}
    untrained = scores[scores.checkpoint.isin(bases)]
    found: dict[tuple[str, str], list[tuple[Score, list[Score], bool]]] = {}
    for (checkpoint, _), group in untrained.groupby(["checkpoint", "benchmark"]):
        for paper, own in group.groupby("paper"):
            others = group[group.paper != paper]
            if others.empty:
                continue
            of_papers = others.groupby("paper").value.median()
            low, middle, high = of_papers.quantile([0.25, 0.5, 0.75])
            away = abs(own.value.median() - middle)
            is_far = len(of_papers) > 2 and away > max(FAR, 2 * (high - low))
            found.setdefault((paper, checkpoint), []).append((own.score.iloc[0], list(others.score), is_far))
    findings = []
    for (paper, checkpoint), items in found.items():
        if any(is_far for *_, is_far in items):
            far = [score.benchmark for score, _, is_far in items if is_far]
            lines = [_beside(scores, score, others) for score, others, _ in items]
            first, others, _ = next(item for item in items if item[2])
            findings.append(
                AuditFinding(
                    where=f"{checkpoint} in {paper}",
                    printed="; ".join(lines),
                    computed=f"far outside on {', '.join(far)}",
                    outcome="fails",
                    sure=f"certain as printed; {_explained(first, others[0])[1]}, which may explain it, and then gains "
                    "over it are partly gains in format",
                    details=_details([s for s, *_ in items], far=far),
                )
            )
    return findings


def _beside(scores: pd.DataFrame, score: Score, others: Sequence[Score]) -> str:
    values = ", ".join(map(str, sorted({other.value for other in others})))
    return f"{score.column_label} {score.value} (others {values}{_gains(scores, score)})"


def _gains(scores: pd.DataFrame, base: Score) -> str:
    """What trained rows of that base print above it, here and elsewhere."""
    same = scores[(scores.benchmark == base.benchmark) & scores.training.map(lambda t: t[:1] == (base.checkpoint,))]
    here, elsewhere = same[same.paper == base.paper], same[same.paper != base.paper]
    parts = [
        f"{name} {part.value.min():g} to {part.value.max():g}"
        for name, part in (("trained here", here), ("elsewhere", elsewhere))
        if not part.empty
    ]
    return f"; {', '.join(parts)}" if parts else ""


def _copies(scores: pd.DataFrame) -> list[AuditFinding]:
    rows = {
        key: {score.benchmark: score for score in group.score}
        for key, group in scores.groupby(["paper", "table", "row"], sort=False)
    }
    findings = []
    for (one, mine), (two, theirs) in combinations(rows.items(), 2):
        common = [name for name in mine if name in theirs]
        if one[0] == two[0] or len(common) < COMMON or not all(_equal(mine[n].value, theirs[n].value) for n in common):
            continue
        first, second = mine[common[0]], theirs[common[0]]
        is_rounded = any(mine[n].digits != theirs[n].digits for n in common)
        coarse, fine = (first, second) if first.digits <= second.digits else (second, first)
        both_own = coarse.origin != "of others" and fine.origin != "of others"
        is_own = both_own and coarse.origin == "own" and bool(coarse.training or fine.training)
        outcome: AuditOutcome = "fails" if is_own else "open" if both_own else "holds"
        places = [f"{score.paper}, {score.source}: {score.row_label}" for score in (coarse, fine)]
        findings.append(
            AuditFinding(
                where=" and ".join(places),
                printed="; ".join(f"{name} {mine[name].value} and {theirs[name].value}" for name in common),
                computed=f"equal in all {len(common)} common benchmarks{', once rounded' if is_rounded else ''}",
                outcome=outcome,
                sure="nearly certain to be a copy: chance is about one in "
                f"{10 ** (2 * len(common)):,} for scores within five points"
                + ("; citing is usual, and is not said here" if both_own else ", as citing does"),
                details=_details([*(mine[n] for n in common), *(theirs[n] for n in common)], rounded=is_rounded),
            )
        )
    return sorted(findings, key=lambda finding: (finding.outcome, -len(finding.details["cells"])))
