r"""Whether an answer is right, in five states; the same rules give scores in evaluation and rewards in training (D7).

`grade` leaves a thought out (`thought`), extracts the answer (`extraction`), reads it and the gold answer exactly
(`answer_parser`) and compares the two (`comparison`). Most answers are decided there, in microseconds. Only a formula
beyond that grammar goes to sympy, in a worker process with a limit on time and memory (`pool`). Where the benchmark
does not ask "right or wrong", a scorer decides in place of the comparison (`scorers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from atrl_bench.grading.answer_parser import depths, parse
from atrl_bench.grading.comparison import PendingCheck, compare, parse_gold
from atrl_bench.grading.extraction import extract_answer
from atrl_bench.grading.scorers.registry import METRICS, Metric, ProgramMetric, find_metric
from atrl_bench.grading.sympy_worker import PRELOADED, compare_formulas
from atrl_bench.grading.thought import behind_thought
from atrl_bench.resources import usable_cores
from atrl_bench.results.records import Gold, State, Verdict
from atrl_bench.sandbox.pool import Call, Failure, WorkerPool

MAX_ANSWER_CHARS = 2000  # no gold answer is longer; a longer extraction is a runaway response
MAX_DEPTH = 16  # of brackets in an answer: the grammar behind sympy takes exponentially long over deep ones


class PendingScore(NamedTuple):
    """What a slow scorer decides, in a worker process, or a scorer that runs programs."""

    gold: Gold
    answer: str
    metric: Metric | ProgramMetric


def grade(response: str, gold: Gold) -> Verdict:
    """The verdict on a response; what is slow goes to a pool that all calls of this process share."""
    decided = grade_fast(response, gold)
    return decided if isinstance(decided, Verdict) else shared_pool().grade_many([(response, gold)])[0]


def grade_fast(response: str, gold: Gold) -> Verdict | PendingCheck | PendingScore:
    """The verdict, or what remains for a worker process to decide. Never slow, never raises."""
    metric = None if gold.metric == "equal" else find_metric(gold.metric)
    if isinstance(metric, Metric) and metric.reads == "thought and response":  # by rules that others published
        return _score(response, gold)
    answer = behind_thought(response)
    if answer is None:
        return Verdict("unparseable", None, "fast", "it ends inside its thought")
    return _grade_answer(answer, gold)


def _grade_answer(response: str, gold: Gold) -> Verdict | PendingCheck | PendingScore:
    if gold.metric != "equal":
        return _score(response, gold)
    if gold.references:
        return _grade_any(response, gold)
    parsed_gold = parse_gold(gold)
    text = extract_answer(response, choices=gold.choices, num_choices=parsed_gold.num_choices)
    if text is None or len(text) > MAX_ANSWER_CHARS:
        return _no_answer(text, "fast")
    if text == parsed_gold.answer.text:
        return Verdict("correct", text, "fast", "same text")
    if max(depths(text), default=0) > MAX_DEPTH:
        return Verdict("unparseable", text[:80], "fast", f"brackets nested more than {MAX_DEPTH} deep")
    compared = compare(parsed_gold, parse(text))
    if isinstance(compared, PendingCheck):
        return compared
    return Verdict("correct" if compared.equal else "wrong", text, "fast", compared.why)


def _grade_any(response: str, gold: Gold) -> Verdict | PendingCheck:
    """The verdict by the accepted answer that the response gives, or what is left to check about all of them."""
    decided = [_grade_answer(response, replace(gold, answer=answer, references=())) for answer in gold.references]
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
    text = response
    if metric.reads in ("answer", "words"):
        extracted = extract_answer(response, words=metric.reads == "words")
        if extracted is None or len(extracted) > MAX_ANSWER_CHARS:
            return _no_answer(extracted, gold.metric)
        text = extracted
    pending = PendingScore(gold, text, metric)
    return pending if metric.is_slow else _verdict(pending, metric.score(text, gold))


def _no_answer(text: str | None, grader: str) -> Verdict:
    if text is None:
        return Verdict("unparseable", None, grader, "no answer in the response")
    return Verdict("unparseable", text[:80], grader, f"the answer has {len(text)} characters")


class GradingPool(WorkerPool):
    """Grades many answers; starts workers, one a core at most, only for what cannot be decided at once."""

    def __init__(self, *, num_workers: int | None = None, seconds: float = 3.0) -> None:
        super().__init__(num_workers=num_workers or usable_cores(), seconds=seconds, preloaded=PRELOADED)

    def grade_many(self, answers: Sequence[tuple[str, Gold]]) -> list[Verdict]:
        decided = [grade_fast(response, gold) for response, gold in answers]
        pending = list(dict.fromkeys(item for item in decided if not isinstance(item, Verdict)))
        verdicts = _run_programs(pending)
        computed = [item for item in pending if item not in verdicts]
        results = self.call_each([_call(item) for item in computed])
        verdicts |= {item: _verdict(item, result) for item, result in zip(computed, results, strict=True)}
        return [item if isinstance(item, Verdict) else verdicts[item] for item in decided]


def _call(item: PendingCheck | PendingScore) -> Call:
    if isinstance(item, PendingCheck):
        return compare_formulas, (item.gold, item.answer)
    assert isinstance(item.metric, Metric)
    return item.metric.score, (item.answer, item.gold)


_SYMPY_SAYS: dict[str, tuple[State, str]] = {
    "equal": ("correct", "equal as a formula"),
    "different": ("wrong", "a different formula"),
    "unreadable": ("unparseable", "no grammar reads the answer"),
    "too large": ("unparseable", "too large to expand"),
}


def _verdict(item: PendingCheck | PendingScore, result: Any) -> Verdict:
    if isinstance(item, PendingCheck):
        state, why = result if isinstance(result, Failure) else _SYMPY_SAYS[result]
        return Verdict(state, item.extracted, "symbolic", why)
    extracted, grader = item.answer[:MAX_ANSWER_CHARS], item.gold.metric
    if isinstance(result, Failure):
        return Verdict(result.state, extracted, grader, result.why)
    return Verdict(result.state, extracted, grader, result.why, result.score, result.details)


def _run_programs(pending: Sequence[PendingCheck | PendingScore]) -> dict[PendingCheck | PendingScore, Verdict]:
    """The verdicts on answers that are programs; no pool of ours, the operating system isolates those."""
    verdicts: dict[PendingCheck | PendingScore, Verdict] = {}
    for metric in METRICS.values():
        if isinstance(metric, ProgramMetric):
            items = [item for item in pending if isinstance(item, PendingScore) and item.metric == metric]
            answers = [(item.answer, item.gold) for item in items]
            verdicts |= zip(items, metric.score_many(answers) if items else (), strict=True)
    return verdicts


@cache
def shared_pool() -> GradingPool:
    return GradingPool()
