"""benchmarks/schedule.py at small sizes: tables on two nodes of eight GPUs that are numbers, one of which dies."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="pip install 'atrl-bench[ray]'")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
NUM_GPUS = 16
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="benchmarks are in the checkout alone"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
TABLES = {
    "small": (["kl_free"], 2, 2, 3.0),
    "large": (["kl_free", "bias_correction"], 5, 6, 9.0),
}


@pytest.mark.parametrize("size", ["small", pytest.param("large", marks=pytest.mark.large)])
def test_every_job_runs_where_there_is_room_and_a_dead_nodes_training_goes_on_elsewhere(size, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for variable in ("PYTHONPATH", "RAY_ADDRESS", "RAY_prestart_worker_first_driver"):  # what it sets is put back
        monkeypatch.setenv(variable, os.environ.get(variable, ""))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # as trainings of other tests may leave it
    import schedule

    tables, num_trainings, num_answers, seconds = TABLES[size]
    with schedule.cluster_of(2) as lost:
        result = schedule.schedule(tables, 2, seconds, "vllm", lost)
    assert (result.num_gpus, result.left_out) == (NUM_GPUS, ())
    attempts = Counter(each.name for each in result.intervals)
    trainings = {name for name in attempts if ": train " in name}
    answers = {name for name in attempts if ": evaluate " in name}
    assert (len(trainings), len(answers)) == (num_trainings, num_answers), "no job is lost"
    for training in trainings:
        ended = max(each.end for each in result.intervals if each.name == training)
        row = training.replace(": train ", ": evaluate ")
        assert all(each.start >= ended for each in result.intervals if each.name.startswith(f"{row} on"))
    for each in result.intervals:
        at_once = [other for other in result.intervals if other.start <= each.start < other.end]
        assert sum(other.gpus for other in at_once) <= NUM_GPUS
    assert result.hours > result.hours_of_work / NUM_GPUS
    begun_again = {name for name, count in attempts.items() if count > 1}
    assert begun_again, "the node died in its work"
    assert begun_again <= {each.name for each in result.intervals if each.node == lost.name}, "and cost no other's"
    # Each of its trainings went on after its last rollout there: from the beginning it would be a sixth more, or more.
    done = sum(each.gpus * (each.end - each.start) for each in result.intervals)
    assert done == pytest.approx(result.hours_of_work, rel=0.1)
