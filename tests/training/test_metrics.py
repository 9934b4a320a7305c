"""The metrics file of a run, and what is read from it."""

import json

import pytest

from atrl_bench.errors import InvalidFileError
from atrl_bench.training.clock import PhaseClock
from atrl_bench.training.metrics import MetricsFile, read_metrics, summarise


def log(file, step, **values):
    file.write({"step": step, **values})


def test_a_resumed_run_drops_the_lines_after_its_checkpoint(tmp_path):
    path = tmp_path / "metrics.jsonl"
    first = MetricsFile(path, 2, first_step=0)
    for step in (1, 2, 3):
        log(first, step, loss=float(step))
    path.write_text(path.read_text() + '{"step": 4, "lo', encoding="utf-8")  # killed in the middle of a line
    second = MetricsFile(path, 2, first_step=2)
    log(second, 3, loss=30.0)
    assert [(line["step"], line["rollout"], line["loss"]) for line in read_metrics(path)] == [
        (1, 0, 1.0),
        (2, 0, 2.0),
        (3, 1, 30.0),
    ]


def test_a_damaged_last_line_is_passed_over_and_one_before_it_is_named_and_left_as_it_is(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log(MetricsFile(path, 1, first_step=0), 1, loss=1.0)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"loss": \xff')
    assert [line["loss"] for line in read_metrics(path)] == [1.0]
    path.write_bytes(damaged := whole + b'{"loss": \xff}\n' + whole)
    with pytest.raises(InvalidFileError, match=r"metrics\.jsonl:2 is no line of metrics"):
        MetricsFile(path, 1, first_step=1)
    assert path.read_bytes() == damaged


def test_a_value_that_is_not_a_number_is_null_in_the_file(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log(MetricsFile(path, 1, first_step=0), 1, loss=float("nan"))
    assert json.loads(path.read_text())["loss"] is None


@pytest.fixture
def summary(tmp_path):
    """A function from the metrics of each rollout to their summary, by means over so many rollouts."""

    def make(num_rollouts, lines):
        path = tmp_path / "metrics.jsonl"
        file = MetricsFile(path, 1, first_step=0)
        for step, line in enumerate(lines, 1):
            log(file, step, loss=0.0, reward=1.0, **line)
        return summarise(path, num_rollouts)

    return make


def test_a_summary_compares_the_first_rollouts_with_the_last_and_adds_up_the_seconds_of_each_phase(summary):
    found = summary(2, [{"accuracy": step / 10, "seconds/generation": 0.5} for step in range(1, 5)])
    assert found["first accuracy"] == pytest.approx(0.15)
    assert found["last accuracy"] == pytest.approx(0.35)
    assert found["accuracy"] == pytest.approx(0.25)
    assert found["seconds/generation"] == 2.0


def test_a_summary_has_the_accuracy_of_the_second_half_with_the_rollout_in_the_middle(summary):
    found = summary(1, [{"accuracy": step / 10} for step in range(1, 6)])
    assert found["late accuracy"] == pytest.approx(0.4)  # of 0.3, 0.4 and 0.5


def test_a_summary_follows_every_reward_but_the_one_that_accuracy_says_already(summary):
    others = {"rewards/chain_validity/std": 0.1, "rewards/accuracy/mean": 0.2, "accuracy": 0.6}
    found = summary(1, [{"rewards/chain_validity/mean": validity, **others} for validity in (0.0, 0.5)])
    assert (found["first rewards/chain_validity/mean"], found["last rewards/chain_validity/mean"]) == (0.0, 0.5)
    assert not [name for name in found if "std" in name or "accuracy/mean" in name]


def test_a_phase_inside_another_counts_for_itself_only():
    times = iter([0.0, 1.0, 3.0, 10.0])
    clock = PhaseClock(lambda: next(times))
    with clock.phase("outer"), clock.phase("inner"):
        clock.add("elsewhere", 0.5)
    assert clock.pop() == {"outer": 8.0, "inner": 1.5, "elsewhere": 0.5}
    assert clock.pop() == {}
