"""benchmarks/schedule.py at a small size: two tables on two nodes of eight GPUs that are numbers, one of which dies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="pip install 'atrl-bench[ray]'")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
pytestmark = [
    pytest.mark.large,
    pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="benchmarks are in the checkout alone"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_every_job_runs_once_where_there_is_room_and_a_dead_nodes_training_goes_on_elsewhere(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for variable in ("PYTHONPATH", "RAY_ADDRESS", "RAY_prestart_worker_first_driver"):  # what it sets is put back
        monkeypatch.setenv(variable, os.environ.get(variable, ""))
    import schedule

    with schedule.cluster_of(2) as kill_a_node:
        result = schedule.schedule(["kl_free", "bias_correction"], 2, 9.0, "vllm", kill_a_node)
    assert (result.num_gpus, result.left_out) == (16, ())
    trainings = {each.name for each in result.intervals if ": train " in each.name}
    answers = {each.name for each in result.intervals if ": evaluate " in each.name}
    assert len(trainings) == 5
    assert len(answers) == 6, "the base model's too"
    for training in trainings:
        ended = max(each.end for each in result.intervals if each.name == training)
        row = training.replace(": train ", ": evaluate ")
        assert all(each.start >= ended for each in result.intervals if each.name.startswith(f"{row} on"))
    for each in result.intervals:
        at_once = [other for other in result.intervals if other.start <= each.start < other.end]
        assert sum(other.gpus for other in at_once) <= 16
    attempts = [sum(each.name == training for each in result.intervals) for training in trainings]
    assert max(attempts) == 2, "one was begun again"
    assert result.hours > result.hours_of_work / 16
