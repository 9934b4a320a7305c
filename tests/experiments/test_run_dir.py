"""A command that is printed beside a run folder goes on in that folder."""

import errno
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from atrl_bench.data.dataset import data_digest
from atrl_bench.errors import MissingDataError
from atrl_bench.evaluation.cell_spec import Engine
from atrl_bench.evaluation.tasks import find_task
from atrl_bench.experiments import train_command
from atrl_bench.experiments.run_dir import RunDir, keep_settings, read_settings
from atrl_bench.mini.world import write_world
from atrl_bench.profiles import load_profile
from atrl_bench.report.figures import errors
from atrl_bench.report.figures.sources import Source


@pytest.mark.parametrize(
    ("root", "data", "options"),
    [
        (None, None, "--profile smoke"),
        (Path("runs/smoke"), None, "--profile smoke"),
        (Path("elsewhere"), None, "--profile smoke --out elsewhere"),
        (Path("runs/mini"), "mine", "--profile smoke --out runs/mini --data-dir mine"),
        (Path("my runs"), "dü a", "--profile smoke --out 'my runs' --data-dir 'dü a'"),
    ],
)
def test_the_options_name_what_is_not_the_default(tmp_path, monkeypatch, root, data, options):
    monkeypatch.chdir(tmp_path)
    Path(data or "mine").mkdir()
    assert RunDir.at(root, load_profile("smoke"), data and Path(data)).options == options


def test_a_store_that_is_only_read_has_to_be_there(tmp_path):
    run_dir = RunDir.at(tmp_path / "new", load_profile("smoke"))
    with pytest.raises(MissingDataError, match="no result store in") as caught:
        run_dir.open_store(read_only=True)
    assert caught.value.next_step == f"atrl-bench run-table main_7b --profile smoke --out {tmp_path}/new"
    assert not run_dir.root.exists()
    with run_dir.open_store() as store:
        assert store.cells() == []
    with run_dir.open_store(read_only=True) as store:
        assert store.cells() == []


def test_a_folder_that_may_only_be_read_has_the_data_that_its_plans_need(run_dir, monkeypatch):
    def write(out: Path, *asked):
        if out.is_relative_to(run_dir.root):
            raise OSError(errno.EROFS, "Read-only file system")
        return write_world(out, *asked)

    expected = write_world(run_dir.root / "data", run_dir.profile, ["geoqa"])
    monkeypatch.setattr("atrl_bench.experiments.run_dir.write_world", write)
    elsewhere = run_dir.data_dir("geoqa")
    assert elsewhere != expected
    assert data_digest(find_task("geoqa_test"), elsewhere) == data_digest(find_task("geoqa_test"), expected)


def test_what_is_chosen_for_a_folder_leaves_what_was_chosen_before(run_dir, tmp_path):
    assert run_dir.environment() == {}
    run_dir.record_environment()
    replace(run_dir, engine=Engine("vllm", "0.29.0")).keep_choices()
    before = run_dir.environment()
    assert RunDir.at(tmp_path, load_profile("smoke")).engine == Engine("vllm", "0.29.0")
    run_dir.keep_choices()
    assert RunDir.at(tmp_path, load_profile("smoke")) == run_dir
    assert run_dir.environment() == before != {}


def test_the_command_that_classifies_errors_names_the_benchmark_and_the_folder(run_dir, tmp_path):
    source = Source(run_dir, task="geoqa_test")
    with pytest.raises(MissingDataError) as caught:
        errors._types(source, [])
    assert caught.value.next_step == (
        f"atrl-bench figure errors --task geoqa_test --profile smoke --out {tmp_path} "
        "--judge-base-url URL --judge-model MODEL"
    )


def test_the_command_after_a_training_evaluates_it_in_the_same_folder(run_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(train_command, "train", lambda *_: tmp_path / "checkpoints" / "one")
    trained = train_command.train_recipe("grpo", {}, run_dir, quiet=True)
    assert trained.next == (
        f"atrl-bench evaluate {tmp_path}/checkpoints/one --tasks geoqa_test --profile smoke --out {tmp_path}"
    )


def test_what_several_commands_choose_for_a_folder_at_once_is_all_kept(tmp_path):
    def keep(name):
        keep_settings(tmp_path / "run", lambda kept: {"tables": kept.tables | {name: f"{name}.csv"}})

    names = [f"benchmark-{number}" for number in range(100)]
    with ThreadPoolExecutor(4) as commands:
        list(commands.map(keep, names))
    assert read_settings(tmp_path / "run").tables.keys() == set(names)
