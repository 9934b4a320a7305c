"""A plan with a row that does not fit is refused before anything runs, with the rows that do."""

from __future__ import annotations

import pytest

from atrl_bench.errors import MachineTooSmallError
from atrl_bench.experiments import room, run
from atrl_bench.experiments.plan import plan_table
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.experiments.train_command import train_recipe
from atrl_bench.profiles import load_profile
from atrl_bench.training.fits import Capacity

PAPER = load_profile("paper")


@pytest.fixture
def four_gpus(monkeypatch):
    machine = Capacity((80.0,) * 4, host_gb=1000, disk_gb=9000)
    monkeypatch.setattr(room, "machine_at", lambda _: machine)
    monkeypatch.setattr(run, "side_by_side", lambda *_: pytest.fail("it was started"))


def test_a_table_is_refused_with_the_rows_that_would_fit(tmp_path, four_gpus):
    planned = plan_table("main_7b", RunDir.at(tmp_path, PAPER), rows=["zero_shot", "grpo", "dapo", "grpo_atrl"])
    with pytest.raises(MachineTooSmallError) as caught:
        run.run_plan(planned)
    text = str(caught.value)
    assert "It needs 8 GPUs, 55 GB of each; 4 are here." in text
    assert "The same is true of: grpo_atrl." in text
    assert text.endswith("choose what fits; --rows zero_shot,dapo runs what fits")


def test_one_training_is_refused_before_anything_is_loaded(tmp_path, four_gpus, monkeypatch):
    with pytest.raises(MachineTooSmallError, match="Fits here: atrl-bench train grpo --set finetuning=lora"):
        train_recipe("grpo", {}, RunDir.at(tmp_path, PAPER))
    assert not (tmp_path / "checkpoints").exists()


def test_a_training_that_is_done_needs_no_room(tmp_path, four_gpus):
    planned = plan_table("main_7b", RunDir.at(tmp_path, PAPER), rows=["grpo"])
    job = planned.jobs[0]
    with planned.run_dir.open_store() as store:
        store.add_run(job.run_spec)
        store.finish_run(job.run_key, checkpoint="gone", digest="d", seconds=1.0, summary={})
    room.require_room_for_plan(planned)
