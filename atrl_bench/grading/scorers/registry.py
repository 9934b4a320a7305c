"""The metrics by name: `Gold.metric` is one of them, `references` and `rules` say what it compares with.

To add one, write a function `(answer, gold) -> Scored` in a module of this package and name it here. Nothing a model
wrote is ever evaluated in a process of ours; what may take long runs in a worker, and programs run in isolation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from atrl_bench.errors import UnknownNameError
from atrl_bench.grading.scorers import numbers, text
from atrl_bench.grading.scorers.charts.scoring import score_many
from atrl_bench.grading.scorers.mega.scoring import mega
from atrl_bench.grading.scorers.scored import Scored
from atrl_bench.results.records import Gold, Verdict

Scorer = Callable[[str, Gold], Scored]


class Metric(NamedTuple):
    """A scorer and what it reads: the extracted `answer`, extracted `words`, or all of the `response`."""

    score: Scorer
    reads: Literal["answer", "words", "response", "thought and response"]
    is_slow: bool = False


class ProgramMetric(NamedTuple):
    """A scorer that runs programs in isolation, those of all its (response, gold) pairs side by side."""

    score_many: Callable[[Sequence[tuple[str, Gold]]], list[Verdict]]


METRICS: dict[str, Metric | ProgramMetric] = {
    "anls": Metric(text.anls, "words"),
    "chart": ProgramMetric(score_many),
    "math_verify": Metric(numbers.math_verify, "thought and response", is_slow=True),
    "mathruler": Metric(numbers.mathruler, "thought and response", is_slow=True),
    "mega": Metric(mega, "response", is_slow=True),
    "mra": Metric(numbers.mra, "answer"),
    "relaxed": Metric(text.relaxed, "words"),
    "vqa": Metric(text.vqa, "words"),
}


def find_metric(name: str) -> Metric | ProgramMetric:
    if name not in METRICS:
        raise UnknownNameError("metric", name, ["equal", *METRICS])
    return METRICS[name]
