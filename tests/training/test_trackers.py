"""Runs as experiment trackers show them: real trackers, which write to local files here, read back."""

import contextlib
import importlib.util
import io
import json
import sys
from functools import partial

import needs
import pytest

from atrl_bench.errors import MissingDataError, UnknownNameError
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.run import train
from atrl_bench.training.trackers import TRACKERS, Trackers, check_trackers, run_name

OURS = ("accuracy", "credit/mean_connectivity", "seconds/generation", "skipped_updates")
INSTALLED = tuple(name for name in TRACKERS if importlib.util.find_spec(name))
PROJECT = "atrl-bench-test"


@pytest.fixture(scope="module")
def start(base_folder, data_dir, profile, coin_grader_of_all_tests):
    """Return a function that trains into a folder and reports to these trackers."""

    def run(folder, trackers, *, on_progress=None):
        return train(
            load_recipe("grpo", data="geometry3k", credit="atrl"),
            profile=profile,
            base_model=base_folder,
            data_dir=data_dir,
            out=folder / "checkpoints",
            seed=0,
            on_progress=on_progress,
            trackers=Trackers(trackers, PROJECT, folder),
        )

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The run folder of the training that every tracker sees."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def stdout():
    """What that training prints."""
    return io.StringIO()


@pytest.fixture(scope="module")
def result(start, folder, stdout, pull_the_plug):
    """A training that all trackers see at once, stopped in its second rollout and called again."""
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(stdout):
        patch.setenv("WANDB_MODE", "offline")
        pull_the_plug(partial(start, folder, INSTALLED), 2)
        return start(folder, INSTALLED)


def metrics_of(result):
    return [json.loads(line) for line in (result.checkpoint / "metrics.jsonl").read_text().splitlines()]


def trackio_rows(project):
    """Return the runs of a project in trackio's local store, and the metrics of each."""
    from trackio.sqlite_storage import SQLiteStorage

    return {name: SQLiteStorage.get_logs(project, name) for name in SQLiteStorage.get_runs(project)}


def tensorboard_scalars(folder):
    """Return the scalars of a run as TensorBoard reads its event files: by name, the value of each step."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    return {
        tag.removeprefix("train/"): {event.step: event.value for event in events.Scalars(tag)}
        for tag in events.Tags()["scalars"]
    }


def wandb_log(folder):
    """Return what wandb keeps of a run without a network: the run's record, and the lines of its metrics."""
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    store, records = DataStore(), []
    store.open_for_scan(str(next(folder.glob("*.wandb"))))
    while (data := store.scan_data()) is not None:
        records.append(Record.FromString(data))
    [run] = [record.run for record in records if record.HasField("run")]
    lines = [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in records
    ]
    return run, [line for line in lines if "train/loss" in line]


def test_tensorboard_shows_every_metric_of_every_step_of_a_run_that_was_killed_and_resumed_once(result, folder):
    [events] = (folder / "tensorboard").iterdir()
    assert events.name == f"grpo+atrl-seed0-{result.checkpoint.name}"
    assert len(list(events.iterdir())) == 2, "a file of each call"
    scalars, lines = tensorboard_scalars(events), metrics_of(result)
    assert len(lines) == 4
    for line in lines:
        for name, value in line.items():
            if name not in ("step", "rollout", "elapsed") and value is not None:  # of our file alone
                assert scalars[name][line["step"]] == pytest.approx(value, rel=1e-6)
    assert {name for name in OURS if name in scalars} == set(OURS)
    assert sorted(scalars["loss"]) == [1, 2, 3, 4]


@needs.trackio
def test_trackio_has_a_killed_and_resumed_run_as_one(result):
    [(name, rows)] = trackio_rows(PROJECT).items()
    assert name == f"grpo+atrl-seed0-{result.checkpoint.name}"
    losses = {row["train/global_step"]: row["train/loss"] for row in rows if "train/loss" in row}
    assert losses == {line["step"]: line["loss"] for line in metrics_of(result)}
    assert all(any(f"train/{metric}" in row for row in rows) for metric in OURS)


def test_wandb_gets_each_part_of_a_killed_and_resumed_run_under_one_id_and_is_finished_after_it(result, folder):
    import wandb

    assert wandb.run is None
    wandb.teardown()  # its service writes the logs behind our back; this waits for it
    (first, before), (second, after) = map(wandb_log, sorted((folder / "wandb").glob("offline-run-*")))
    assert first.run_id == second.run_id == result.checkpoint.name
    assert first.display_name == second.display_name == f"grpo+atrl-seed0-{result.checkpoint.name}"
    assert first.project == second.project == PROJECT
    assert [line["train/global_step"] for line in after] == [3, 4], "those after the checkpoint"
    losses = {line["train/global_step"]: line["train/loss"] for line in [*before, *after]}
    assert losses == {line["step"]: line["loss"] for line in metrics_of(result)}
    assert {metric for metric in OURS if any(f"train/{metric}" in line for line in after)} == set(OURS)


def test_reporting_changes_neither_the_key_nor_the_weights_and_keeps_the_standard_output_clean(
    start, result, stdout, tmp_path
):
    plain = start(tmp_path, ())
    assert (result.checkpoint.name, result.digest) == (plain.checkpoint.name, plain.digest)
    assert stdout.getvalue() == ""
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"], "nothing beside it without trackers"


def test_a_tracker_that_is_not_installed_or_not_known_is_refused_with_what_to_type(monkeypatch):
    assert check_trackers(["wandb", "tensorboard", "wandb"]) == ("wandb", "tensorboard")
    for name in TRACKERS:
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not there
        with pytest.raises(MissingDataError, match=rf"pip install 'atrl-bench\[{name}\]'"):
            check_trackers([name])
    with pytest.raises(UnknownNameError, match="tensorboard"):
        check_trackers(["tensorbord"])


def test_a_run_is_named_by_recipe_credit_seed_and_key():
    assert run_name(load_recipe("grpo"), 3, "abc") == "grpo-seed3-abc"
    assert run_name(load_recipe("grpo", name="beta:kl_coef=0.1", credit="atrl"), 0, "abc") == (
        "beta_kl_coef=0.1+atrl-seed0-abc"
    )
