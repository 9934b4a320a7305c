"""The few answers of a cell that a table's own page shows."""

from __future__ import annotations

import numpy as np

from atrl_bench.report.table_model import SampleView
from atrl_bench.results.records import Sample
from atrl_bench.results.score_array import STATES, ScoreArray
from atrl_bench.results.store import Store

NUM_SAMPLES = 8  # shown per cell
MAX_TEXT = 900  # characters of a question or response that a report shows; the store has all of it
ORDER = ("wrong", "correct", "unparseable", "timed out", "judge failed", "ungraded")


def sample_views(store: Store, key: str, answers: ScoreArray) -> list[SampleView]:
    """Return a few answers of every state in turn, in the order of the problems: successes hide no failures."""
    first_P = answers.states_PR[:, 0] if answers.num_answers else np.array([], dtype=np.int8)
    queues = [np.flatnonzero(first_P == STATES.index(state))[:NUM_SAMPLES].tolist() for state in ORDER]
    turns = [queue[i] for i in range(NUM_SAMPLES) for queue in queues if i < len(queue)][:NUM_SAMPLES]
    problems = [answers.problems[p] for p in turns]
    return [_view(sample) for sample in store.samples_of(key, problems) if sample.response.repeat == 0]


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
