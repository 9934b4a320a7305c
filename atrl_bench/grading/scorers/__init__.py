"""How an answer is scored where a benchmark does not ask "right or wrong": parts of a point, by name.

A metric is a function `(answer, gold) -> Scored` in one module of this package. `Gold.metric` names it, `references`
and `rules` say what it compares with. Nothing a model wrote is ever evaluated in a process of ours; what may take long
runs in a worker, and programs run in isolation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from atrl_bench.errors import UnknownNameError
from atrl_bench.grading.extraction import extract_answer
from atrl_bench.grading.grade import MAX_ANSWER_CHARS, Question
from atrl_bench.results.records import Gold, State, Verdict

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Scored(NamedTuple):
    """What an answer is worth, between 0 and 1, why, and the parts of the score by name."""

    score: float
    why: str
    details: Mapping[str, Any] = NOTHING
    unscored: State | None = None  # `unparseable` or `judge failed`: the score then says nothing

    @property
    def state(self) -> State:
        """Only a full point is `correct`."""
        return self.unscored or ("correct" if self.score >= 1 else "wrong")


class Metric(NamedTuple):
    """Where a metric is and what it reads: the extracted `answer`, extracted `words`, or the whole `response`."""

    module: str
    reads: Literal["answer", "words", "response"]
    slow: bool = False
    isolated: bool = False  # runs programs: `score_many` of its module takes all answers at once

    def function(self, name: str) -> Callable[..., Any]:
        """Return the metric itself, `(answer, gold) -> Scored`, or another function of its module."""
        function: Callable[..., Any] = getattr(import_module(f"{__name__}.{self.module}"), name)
        return function


METRICS: dict[str, Metric] = {
    "anls": Metric("text", "words"),
    "chart": Metric("charts", "response", isolated=True),
    "math_verify": Metric("official", "response", slow=True),
    "mega": Metric("mega", "response", slow=True),
    "mra": Metric("numbers", "answer"),
    "relaxed": Metric("text", "words"),
    "vqa": Metric("text", "words"),
}


def find_metric(name: str) -> Metric:
    """Return the metric called `name`."""
    if name not in METRICS:
        raise UnknownNameError("metric", name, ["equal", *METRICS])
    return METRICS[name]


def score_fast(response: str, gold: Gold) -> Verdict | Question:
    """Return the verdict of the gold's metric on a response, or the question that a worker has to decide."""
    metric = find_metric(gold.metric)
    answer: str | None = response
    if metric.reads != "response":
        answer = extract_answer(response, words=metric.reads == "words").text
        if answer is None:
            return Verdict("unparseable", None, gold.metric, "no answer in the response")
        if len(answer) > MAX_ANSWER_CHARS:
            return Verdict("unparseable", answer[:80], gold.metric, f"the answer has {len(answer)} characters")
    assert answer is not None
    if metric.slow or metric.isolated:
        return Question(answer[:MAX_ANSWER_CHARS], json.dumps(asdict(gold)), answer, gold.metric)
    scored = metric.function(gold.metric)(answer, gold)
    return Verdict(scored.state, answer, gold.metric, scored.why, scored.score, scored.details)


def score_slow(gold: str, answer: str, name: str) -> tuple[str, str, float, dict[str, Any]]:
    """Return state, reason, score and parts; for the worker processes of `grading.GradingPool`."""
    scored = find_metric(name).function(name)(answer, Gold(**json.loads(gold)))
    return scored.state, scored.why, scored.score, dict(scored.details)


def score_isolated(questions: Sequence[Question]) -> list[Verdict]:
    """Return the verdicts on answers whose metrics run programs, each metric's all at once."""
    verdicts: dict[Question, Verdict] = {}
    for name in dict.fromkeys(question.metric for question in questions):
        asked = [question for question in questions if question.metric == name]
        score_many = find_metric(name).function("score_many")
        answers = [(question.answer, Gold(**json.loads(question.gold))) for question in asked]
        verdicts |= dict(zip(asked, score_many(answers), strict=True))
    return [verdicts[question] for question in questions]
