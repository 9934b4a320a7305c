"""Progress is read from the store alone, and says what a waiting person asks: what runs, how far, how long."""

import io
import re
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from rich.console import Console

from atrl_bench.cli.printing import text_of
from atrl_bench.errors import MissingDataError
from atrl_bench.experiments import progress
from atrl_bench.experiments.progress import Watch, duration, read_status, short_label
from atrl_bench.results.shared_store import SharedStore

RECIPE = {
    "objective": "dapo",
    "entropy_fraction": None,
    "schedule": "strict",
    "credit": {"rule": "uniform", "preset": "default"},
}
RUN = {"kind": "training", "recipe": RECIPE, "seed": 0}
CELL = {"kind": "evaluation", "task": "geoqa_test", "model_name": "mini"}


@pytest.fixture
def now(monkeypatch) -> list[float]:
    """The time, in its only item, which a test moves."""
    time_now = [100_000.0]
    monkeypatch.setattr("time.time", lambda: time_now[0])
    return time_now


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59, "59 s"), (60, "1 min"), (200, "3 min 20 s"), (7500, "2 h 5 min")]
)
def test_a_duration_is_told_in_its_two_largest_units(seconds, text):
    assert duration(seconds) == text


def test_status_counts_and_names_what_runs_and_what_failed(store, run_dir):
    run, cell = store.add_run(RUN), store.add_cell(CELL)
    store.heartbeat("run", run, 3, 16)
    store.fail_cell(cell, "no picture")
    text = " ".join(text_of(read_status(run_dir)).split())
    assert "1 evaluation failed, 1 training running" in text
    assert "train dapo, schedule strict, seed 0: 3 of 16" in text
    assert "evaluate mini on geoqa_test: no picture" in text


def test_status_tells_the_points_of_an_ablation_and_their_evaluations_apart(store, run_dir):
    for similarity in (0.75, 0.8):
        credit = {"rule": "atrl", "preset": "default", "settings": {"min_centroid_similarity": similarity}}
        run = store.add_run({**RUN, "recipe": {**RECIPE, "credit": credit}})
        store.heartbeat("cell", store.add_cell({**CELL, "model_name": run}), 8, 48)
    names = [item.name for item in read_status(run_dir).items]
    points = [f"dapo+atrl min_centroid_similarity={similarity}, schedule strict, seed 0" for similarity in (0.75, 0.8)]
    assert sorted(names) == sorted(
        [f"train {point}" for point in points] + [f"evaluate {point} on geoqa_test" for point in points]
    )


def test_status_knows_a_killed_process_from_a_living_one(run_dir):
    program = (
        "import time; from pathlib import Path; from atrl_bench.results.shared_store import SharedStore\n"
        f"store = SharedStore(Path({str(run_dir.store_path)!r}))\n"
        f"store.heartbeat('run', store.add_run({RUN!r}), 3, 16); print('beats', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "beats\n"
        assert [item.state for item in read_status(run_dir).items] == ["running"]
        process.kill()
    status = read_status(run_dir)
    assert [item.state for item in status.items] == ["stopped"]
    assert "goes on where it stopped" in " ".join(text_of(status).split())


def test_the_time_left_is_told_by_the_speed_of_training_and_then_by_finished_rows(store, now):
    watch = Watch(store, num_jobs=6, num_workers=2, quiet=True)
    run = store.add_run(RUN)
    now[0] += 20.0  # a process starts and loads its model
    store.heartbeat("run", run, 1, 16)
    now[0] += 30.0
    store.heartbeat("run", run, 4, 16)
    # Three rollouts in 30 s: 150 s for fifteen, 20 s with the first. Two rows have 120 s left, then 170 s two by two.
    assert watch.line().startswith("0/6 rows, about 7 min 40 s left")
    now[0] += 120.0
    store.heartbeat("run", run, 16, 16)
    watch.row_done()
    watch.row_done()
    # Two rows in 170 s, so two more every 170 s.
    assert watch.line().startswith("2/6 rows, about 5 min 40 s left")
    for _ in range(4):
        watch.row_done()
    assert watch.line().startswith("6/6 rows, finishing")


def test_the_time_left_does_not_jump_while_short_trainings_begin_and_end(store, now, monkeypatch):
    left = []
    monkeypatch.setattr(progress, "_left", lambda seconds: left.append(seconds) or "")
    watch = Watch(store, num_jobs=8, quiet=True)
    # A row: 6 s until the first of 16 steps of a second, then 4 s of answering benchmarks; 25 s, eight times.
    for row in range(8):
        run = store.add_run({**RUN, "seed": row})
        for second in range(1, 26):
            now[0] += 1
            if 6 <= second <= 21:
                store.heartbeat("run", run, second - 5, 16)
            if second == 25:
                watch.row_done()
            watch.line()
            if watch.num_done:
                assert left[-1] == pytest.approx(100_200.0 - now[0], abs=1)  # 8 rows of 25 s from second 100,000
            elif second >= 8:
                # 15 steps of a second and 6 s with the first; nothing says yet that the row answers benchmarks.
                assert left[-1] == pytest.approx(7 * 21 + max(0, 21 - second), abs=1)


def test_a_clock_that_is_set_back_neither_hides_what_runs_nor_makes_time_run_backwards(run_dir, now):
    with SharedStore(run_dir.store_path) as store:
        watch = Watch(store, num_jobs=1, quiet=True)
        run = store.add_run(RUN)
        store.heartbeat("run", run, 1, 16)
        now[0] -= 50_000.0
        for step in (2, 3):
            now[0] += 10.0
            store.heartbeat("run", run, step, 16)
        [item] = read_status(run_dir).items
        assert (item.state, item.seconds_left) == ("running", 130.0)  # 13 steps of 10 s
        assert "3/16" in watch.line()


def test_the_time_left_of_a_row_that_trains_is_a_training_and_the_answers_that_the_base_gave(store, now):
    watch = Watch(store, num_jobs=5, quiet=True)
    now[0] += 10.0
    watch.row_done()  # the base model's
    run = store.add_run(RUN)
    now[0] += 20.0
    store.heartbeat("run", run, 1, 16)
    assert watch.line().startswith("1/5 rows | ")
    now[0] += 20.0
    store.heartbeat("run", run, 3, 16)
    # Two steps in 20 s: 150 s for fifteen, 20 s before, 10 s to answer as the base did. Of it 140 s; then three more.
    assert watch.line().startswith("1/5 rows, about 11 min 20 s left")


def test_the_time_left_of_a_run_of_half_a_minute_is_right_within_30_percent_after_the_first(store, now):
    """Thirteen rows of the smoke profile on two workers, as a laptop ran them: each loads its libraries first."""
    watch, run, ratios = Watch(store, num_jobs=13, num_workers=2, quiet=True), store.add_run(RUN), []
    ends = (7.4, 10.2, 12.6, 13.2, 15.7, 16.5, 19.2, 19.9, 22.7, 23.4, 25.9, 26.6, 29.2)
    for second in range(1, 25):
        now[0] += 1
        if second in (7, 8):  # the two rollouts of a worker's first row
            store.heartbeat("run", run, second - 6, 2)
        while watch.num_done < sum(end <= second for end in ends):
            watch.row_done()
        if said := re.search(r"about (\d+) s left", watch.line()):
            ratios.append(int(said[1]) / (ends[-1] - second))
    # Silent until a row without such a start ends, in second 13; that one imports what trains, and is half too long.
    assert ratios == pytest.approx([1.5, *[1] * 11], abs=0.3)


def test_the_time_left_is_until_the_last_worker_ends(store, now):
    watch = Watch(store, num_jobs=5, num_workers=2, quiet=True)
    for seconds in (10.0, 5.0, 5.0):
        now[0] += seconds
        watch.row_done()
    # A row takes 10 s; one has 5 s left, and one begins.
    assert watch.line().startswith("3/5 rows, about 10 s left")


def test_an_empty_folder_has_no_status_but_a_command_that_makes_one(run_dir, tmp_path):
    with pytest.raises(MissingDataError, match=r"run-table main_7b --profile smoke --out .*nowhere"):
        read_status(replace(run_dir, root=tmp_path / "nowhere"))


def test_a_progress_line_names_the_running_work_and_the_time_left_and_bars_say_the_same_on_a_terminal(store, now):
    watch = Watch(store, num_jobs=4, num_workers=2, quiet=True)
    run = store.add_run(RUN)
    assert watch.line() == "0/4 rows | starting"
    for step in range(1, 9):
        now[0] += 7.5
        store.heartbeat("run", run, step, 16)
    # Half a row took one minute; so do the halves of the two that run, and two more rows take two minutes.
    assert watch.line() == "0/4 rows, about 3 min left | dapo 8/16"
    console = Console(file=io.StringIO(), width=80)
    console.print(watch.bars())
    all_rows, one_run = (line.strip() for line in console.file.getvalue().splitlines())
    assert (all_rows[:5], one_run[:5]) == ("rows ", "dapo ")
    assert all_rows.endswith("0/4, about 3 min left")
    assert one_run.endswith("8/16")


def test_without_a_terminal_a_line_is_printed_every_few_seconds_until_the_work_ends(store, monkeypatch, capsys):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.01)
    with Watch(store, num_jobs=1):
        time.sleep(0.3)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 1
    assert set(lines) == {"0/1 rows | starting"}
    with Watch(store, num_jobs=1, quiet=True):
        time.sleep(0.05)
    assert capsys.readouterr().err == ""


def test_labels_tell_recipes_apart_by_objective_credit_and_selection():
    credit = {"rule": "atrl", "preset": "literal"}
    assert short_label("run", {"recipe": RECIPE | {"credit": credit}}) == "dapo+atrl literal"
    assert short_label("run", {"recipe": RECIPE | {"entropy_fraction": 0.2}}) == "ft_rl"
    assert short_label("cell", CELL) == "geoqa"


def test_a_terminal_that_cannot_redraw_gets_lines(store, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.01)
    with Watch(store, num_jobs=2):
        time.sleep(0.2)
    assert terminal.getvalue().startswith("0/2 rows | starting\n")
