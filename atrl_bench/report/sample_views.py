"""The few answers of a cell that a table's own page shows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from atrl_bench.report.table_model import SampleView
from atrl_bench.results.records import Sample

NUM_SAMPLES = 8  # shown per cell
MAX_TEXT = 900  # characters of a question or response that a report shows; the store has all of it
ORDER = ("wrong", "correct", "unparseable", "timed out", "judge failed", "ungraded")


def sample_views(samples: Sequence[Sample]) -> list[SampleView]:
    """Return a few answers of every state in turn, in the order of the problems: successes hide no failures."""
    by_state: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.response.repeat == 0:
            by_state[sample.state].append(sample)
    queues = [by_state[state] for state in sorted(by_state, key=ORDER.index)]
    turns = [queue[i] for i in range(NUM_SAMPLES) for queue in queues if i < len(queue)]
    return [_view(sample) for sample in turns[:NUM_SAMPLES]]


def _view(sample: Sample) -> SampleView:
    verdict = sample.verdict
    return SampleView(
        problem_id=sample.problem.problem_id,
        repeat=sample.response.repeat,
        question=_cut(sample.problem.question),
        gold=_cut(sample.problem.gold.answer),
        response=_cut(sample.response.text),
        extracted=None if verdict is None or verdict.extracted is None else _cut(verdict.extracted),
        state=sample.state,
        grader=verdict.grader if verdict else "",
        why=_cut(verdict.why) if verdict else "",
        truncated=sample.response.truncated,
    )


def _cut(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    half = MAX_TEXT // 2
    return f"{text[:half]} […{len(text) - 2 * half} characters…] {text[-half:]}"
