"""Progress is read from the store alone, and says what a waiting person asks: what runs, how far, how long."""

import io
import time

import pytest
from rich.console import Console

from atrl_bench.cli.printing import text_of
from atrl_bench.errors import MissingDataError
from atrl_bench.experiments import progress
from atrl_bench.experiments.progress import Watch, duration, read_status, short_label
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import load_profile
from atrl_bench.results.store import Store

RECIPE = {
    "objective": "dapo",
    "entropy_fraction": None,
    "schedule": "strict",
    "credit": {"rule": "uniform", "preset": "default"},
}
RUN = {"kind": "training", "recipe": RECIPE, "seed": 0}
CELL = {"kind": "evaluation", "task": "geoqa_test", "model_name": "mini"}


def run_dir(folder):
    return RunDir.at(folder, load_profile("smoke"))


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "store.sqlite") as opened:
        yield opened


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59, "59 s"), (60, "1 min"), (200, "3 min 20 s"), (7500, "2 h 5 min")]
)
def test_a_duration_is_told_in_its_two_largest_units(seconds, text):
    assert duration(seconds) == text


def test_status_counts_and_names_what_runs_and_what_failed(store, tmp_path):
    run, cell = store.add_run(RUN), store.add_cell(CELL)
    store.heartbeat("run", run, 3, 16)
    store.fail_cell(cell, "no picture")
    text = " ".join(text_of(read_status(run_dir(tmp_path))).split())
    assert "1 cells failed, 1 runs running" in text
    assert "train dapo, schedule strict, seed 0: 3 of 16" in text
    assert "evaluate mini on geoqa_test: no picture" in text


def test_an_empty_folder_has_no_status_but_a_command_that_makes_one(tmp_path):
    with pytest.raises(MissingDataError, match=r"run-table main_7b --profile smoke --out .*nowhere"):
        read_status(run_dir(tmp_path / "nowhere"))


def test_a_progress_line_names_the_running_work_and_the_time_left(store):
    watch = Watch(store, num_jobs=4, num_workers=2, quiet=True)
    run = store.add_run(RUN)
    assert watch.line() == "0/4 rows | starting"
    watch._started -= 60
    store.heartbeat("run", run, 8, 16)
    # Half a row took one minute, three and a half are left.
    assert watch.line() == "0/4 rows, about 7 min left | dapo 8/16"


def test_bars_say_the_same_on_a_terminal(store):
    watch = Watch(store, num_jobs=4, num_workers=2, quiet=True)
    run = store.add_run(RUN)
    watch._started -= 60
    store.heartbeat("run", run, 8, 16)
    console = Console(file=io.StringIO(), width=80)
    console.print(watch.bars())
    all_rows, one_run = console.file.getvalue().splitlines()
    assert all_rows.split()[0] == "rows"
    assert all_rows.rstrip().endswith("0/4, about 7 min left")
    assert one_run.split()[0] == "dapo"
    assert one_run.rstrip().endswith("8/16")


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
