"""Runs as experiment trackers show them: real trackers, which write to local files here, read back."""

from __future__ import annotations

import json
import sys
from functools import partial

import pytest

from atrl_bench.errors import MissingDataError, UnknownNameError
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.run import train
from atrl_bench.training.trackers import TRACKERS, Trackers, check_trackers, run_name

OURS = ("accuracy", "credit/mean_connectivity", "seconds/generation", "skipped_updates")


@pytest.fixture
def run(base_folder, data_dir, profile, coin_grader, tmp_path):
    def start(trackers, *, out="checkpoints", on_progress=None):
        return train(
            load_recipe("grpo", data="geometry3k", credit="atrl"),
            profile=profile,
            base_model=base_folder,
            data_dir=data_dir,
            out=tmp_path / out,
            seed=0,
            on_progress=on_progress,
            trackers=Trackers(trackers, tmp_path.name, tmp_path),
        )

    return start


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


def wandb_history(folder):
    """Return the lines of metrics in the log that wandb keeps of a run without a network."""
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    store, lines = DataStore(), []
    store.open_for_scan(str(next(folder.glob("*.wandb"))))
    while (data := store.scan_data()) is not None:
        items = Record.FromString(data).history.item
        lines.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items})
    return [line for line in lines if line]


def test_tensorboard_shows_every_metric_of_every_step_of_a_run_that_was_killed_and_resumed_once(
    run, pull_the_plug, tmp_path
):
    pull_the_plug(partial(run, ("tensorboard",)), 2)
    result = run(("tensorboard",))
    [folder] = (tmp_path / "tensorboard").iterdir()
    assert folder.name == f"grpo+atrl-seed0-{result.checkpoint.name}"
    assert len(list(folder.iterdir())) == 2, "a file of each call"
    scalars, lines = tensorboard_scalars(folder), metrics_of(result)
    assert len(lines) == 4
    for line in lines:
        for name, value in line.items():
            if name not in ("step", "rollout", "elapsed"):  # of our file alone
                assert scalars[name][line["step"]] == pytest.approx(value, rel=1e-6)
    assert {name for name in OURS if name in scalars} == set(OURS)
    assert sorted(scalars["loss"]) == [1, 2, 3, 4]


def test_trackio_has_a_killed_and_resumed_run_as_one(run, pull_the_plug, tmp_path):
    pull_the_plug(partial(run, ("trackio",)), 2)
    result = run(("trackio",))
    [(name, rows)] = trackio_rows(tmp_path.name).items()
    assert name == f"grpo+atrl-seed0-{result.checkpoint.name}"
    losses = {row["train/global_step"]: row["train/loss"] for row in rows if "train/loss" in row}
    assert losses == {line["step"]: line["loss"] for line in metrics_of(result)}
    assert all(any(f"train/{metric}" in row for row in rows) for metric in OURS)


def test_wandb_gets_a_run_with_the_name_and_the_key_and_is_finished_after_it(run, tmp_path, monkeypatch):
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")
    result = run(("wandb",))
    [folder] = (tmp_path / "wandb").glob("offline-run-*")
    assert folder.name.endswith(result.checkpoint.name)
    assert wandb.run is None
    wandb.teardown()  # its service writes the log behind our back; this waits for it
    lines = wandb_history(folder)
    assert {line["train/global_step"]: line["train/loss"] for line in lines if "train/loss" in line} == {
        line["step"]: line["loss"] for line in metrics_of(result)
    }
    assert all(any(f"train/{metric}" in line for line in lines) for metric in OURS)


def test_reporting_changes_neither_the_key_nor_the_weights_and_keeps_the_standard_output_clean(run, capsys):
    plain = run((), out="plain")
    capsys.readouterr()
    reported = run(("trackio", "tensorboard"))
    assert capsys.readouterr().out == ""
    assert (reported.checkpoint.name, reported.digest) == (plain.checkpoint.name, plain.digest)


def test_without_trackers_nothing_is_written_beside_the_checkpoint(run, tmp_path):
    run(())
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]


def test_a_tracker_that_is_not_installed_or_not_known_is_refused_with_what_to_type(monkeypatch):
    assert check_trackers(["wandb", "trackio", "wandb"]) == ("wandb", "trackio")
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
