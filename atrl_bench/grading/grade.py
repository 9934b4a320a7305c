r"""Whether an answer is right, in five states; the same rules give scores in evaluation and rewards in training (D7).

`grade` extracts the answer (`extraction`), reads it and the gold answer exactly (`answer_parser`) and compares the two
(`comparison`). Most answers are decided there, in microseconds. Only a formula beyond that grammar goes to sympy, in a
worker process with a limit on time and memory (`pool`). Where the benchmark does not ask "right or wrong", a scorer
decides in place of the comparison (`scorers`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.util import Finalize
from typing import Any, NamedTuple

from atrl_bench.grading.answer_parser import parse
from atrl_bench.grading.comparison import PendingCheck, compare, parse_gold
from atrl_bench.grading.extraction import extract_answer
from atrl_bench.grading.pool import Call, Failure, WorkerPool
from atrl_bench.grading.scorers.registry import Metric, ProgramMetric, find_metric
from atrl_bench.grading.scorers.scored import Scored
from atrl_bench.grading.sympy_worker import PRELOADED, compare_formulas
from atrl_bench.results.records import Gold, State, Verdict

GRADER_VERSION = "3"  # changes with any verdict
MAX_ANSWER_CHARS = 2000  # no gold answer is longer; a longer extraction is a runaway response
MAX_DEPTH = 16  # of brackets in an answer


class PendingScore(NamedTuple):
    """What a slow scorer decides, in a worker process, or a scorer that runs programs."""

    gold: Gold
    answer: str
    metric: Metric | ProgramMetric


def grade(response: str, gold: Gold) -> Verdict:
    """Return the verdict on a response; what is slow goes to a pool that all calls of this process share."""
    decided = grade_fast(response, gold)
    return decided if isinstance(decided, Verdict) else shared_pool().grade_many([(response, gold)])[0]


def grade_fast(response: str, gold: Gold) -> Verdict | PendingCheck | PendingScore:
    """Return the verdict, or what remains for a worker process to decide. Never slow, never raises."""
    if gold.metric != "equal":
        return _score(response, gold)
    if gold.references:
        return _grade_any(response, gold)
    parsed_gold = parse_gold(gold)
    text = extract_answer(response, num_choices=parsed_gold.num_choices).text
    if text is None or len(text) > MAX_ANSWER_CHARS:
        return _no_answer(text, "fast")
    if text == parsed_gold.answer.text:
        return Verdict("correct", text, "fast", "same text")
    if _depth(text) > MAX_DEPTH:
        return Verdict("unparseable", text[:80], "fast", f"brackets nested more than {MAX_DEPTH} deep")
    compared = compare(parsed_gold, parse(text))
    if isinstance(compared, PendingCheck):
        return compared
    return Verdict("correct" if compared.equal else "wrong", text, "fast", compared.why)


def _grade_any(response: str, gold: Gold) -> Verdict | PendingCheck:
    """Return the verdict by the accepted answer that the response gives, or what is left to check about all of them."""
    decided = [grade_fast(response, replace(gold, answer=answer, references=())) for answer in gold.references]
    verdicts = [item for item in decided if isinstance(item, Verdict)]
    right = next((verdict for verdict in verdicts if verdict.state == "correct"), None)
    if right is not None:
        return right
    pending = [item for item in decided if isinstance(item, PendingCheck)]
    if pending:
        return pending[0]._replace(gold="\n".join(check.gold for check in pending))
    if verdicts[0].state == "wrong":
        return verdicts[0]._replace(why=f"none of the {len(verdicts)} accepted answers")
    return verdicts[0]


def _score(response: str, gold: Gold) -> Verdict | PendingScore:
    metric = find_metric(gold.metric)
    if isinstance(metric, ProgramMetric):
        return PendingScore(gold, response, metric)
    answer = response
    if metric.reads != "response":
        text = extract_answer(response, words=metric.reads == "words").text
        if text is None or len(text) > MAX_ANSWER_CHARS:
            return _no_answer(text, gold.metric)
        answer = text
    if metric.is_slow:
        return PendingScore(gold, answer, metric)
    return _scored(gold, answer, metric.score(answer, gold))


def _scored(gold: Gold, answer: str, scored: Scored) -> Verdict:
    return Verdict(scored.state, answer, gold.metric, scored.why, scored.score, scored.details)


def _no_answer(text: str | None, grader: str) -> Verdict:
    if text is None:
        return Verdict("unparseable", None, grader, "no answer in the response")
    return Verdict("unparseable", text[:80], grader, f"the answer has {len(text)} characters")


_BRACKET = re.compile(r"[()\[\]{}]")


def _depth(text: str) -> int:
    """Return how deep brackets are nested: the grammar behind sympy takes exponentially long over deep ones."""
    depth = deepest = 0
    for bracket in _BRACKET.findall(text):
        depth += 1 if bracket in "([{" else -1
        deepest = max(deepest, depth)
    return deepest


# Many answers -----------------------------------------------------------------------------------------------------


class GradingPool(WorkerPool):
    """Grades many answers; starts workers only for what cannot be decided at once."""

    def __init__(self, *, num_workers: int = 1, seconds: float = 3.0, memory_bytes: int = 2 << 30) -> None:
        super().__init__(num_workers=num_workers, seconds=seconds, memory_bytes=memory_bytes, preloaded=PRELOADED)

    def grade_many(self, answers: Sequence[tuple[str, Gold]]) -> list[Verdict]:
        """Return the verdicts on (response, gold) pairs, in their order."""
        decided = [grade_fast(response, gold) for response, gold in answers]
        pending = list(dict.fromkeys(item for item in decided if not isinstance(item, Verdict)))
        verdicts = _run_programs(pending)
        calls = {item: call for item in pending if (call := _call(item)) is not None}
        results = self.call_each(list(calls.values()))
        verdicts |= {item: _verdict(item, result) for item, result in zip(calls, results, strict=True)}
        return [item if isinstance(item, Verdict) else verdicts[item] for item in decided]


def _call(item: PendingCheck | PendingScore) -> Call | None:
    """Return what a worker process has to compute; nothing where programs run."""
    if isinstance(item, PendingCheck):
        return compare_formulas, (item.gold, item.answer)
    return (item.metric.score, (item.answer, item.gold)) if isinstance(item.metric, Metric) else None


_SYMPY_SAYS: dict[str, tuple[State, str]] = {
    "equal": ("correct", "equal as a formula"),
    "different": ("wrong", "a different formula"),
    "unreadable": ("unparseable", "no grammar reads the answer"),
}


def _verdict(item: PendingCheck | PendingScore, result: Any) -> Verdict:
    """Return the verdict that follows from what a worker process has computed, or has failed to."""
    if isinstance(item, PendingCheck):
        state, why = result if isinstance(result, Failure) else _SYMPY_SAYS[result]
        return Verdict(state, item.extracted, "symbolic", why)
    extracted = item.answer[:MAX_ANSWER_CHARS]
    if isinstance(result, Failure):
        return Verdict(result.state, extracted, item.gold.metric, result.why)
    return _scored(item.gold, extracted, result)


def _run_programs(pending: Sequence[PendingCheck | PendingScore]) -> dict[PendingCheck | PendingScore, Verdict]:
    """Return the verdicts on answers that are programs; no pool of ours, the operating system isolates those."""
    verdicts: dict[PendingCheck | PendingScore, Verdict] = {}
    by_metric: dict[ProgramMetric, list[PendingScore]] = {}
    for item in pending:
        if isinstance(item, PendingScore) and isinstance(item.metric, ProgramMetric):
            by_metric.setdefault(item.metric, []).append(item)
    for metric, items in by_metric.items():
        answers = [(item.answer, item.gold) for item in items]
        verdicts |= dict(zip(items, metric.score_many(answers), strict=True))
    return verdicts


_shared: list[GradingPool] = []


def shared_pool() -> GradingPool:
    """Return the pool that `grade` uses in this process."""
    if not _shared:
        _shared.append(GradingPool())
        # Not atexit: a process of multiprocessing ends without it, after waiting for its children, these workers.
        Finalize(None, _shared[0].close, exitpriority=0)
    return _shared[0]
