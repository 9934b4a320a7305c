"""A plan with a row that does not fit is refused before anything runs, with the rows that do."""

from __future__ import annotations

import pytest

from atrl_bench.engines.devices import Cluster, Machine
from atrl_bench.engines.ray_cluster import RayCluster
from atrl_bench.errors import MachineTooSmallError, NotFetchedError
from atrl_bench.evaluation.cell_spec import EvaluationOptions
from atrl_bench.experiments import plan, room, run
from atrl_bench.experiments.evaluate_command import evaluate_model
from atrl_bench.experiments.plan import plan_table
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import load_profile
from atrl_bench.training.fits import Capacity
from atrl_bench.training.recipe import load_recipe

PAPER = load_profile("paper")


@pytest.fixture
def four_gpus(monkeypatch):
    """Four GPUs of 80 GB, on a machine with enough of everything else."""

    def capacity(run_dir, gpus):
        return Capacity((80.0,) * len(gpus), host_gb=1000, disk_gb=9000)

    monkeypatch.setattr(room, "this_machine", capacity)
    monkeypatch.setattr(room, "free_disk_gb", lambda _: 9000.0)
    monkeypatch.setattr(run, "side_by_side", lambda *_: pytest.fail("it was started"))
    return Machine(tuple("0123"))


def test_a_table_is_refused_with_the_rows_that_would_fit(tmp_path, four_gpus):
    planned = plan_table("main_7b", RunDir.at(tmp_path, PAPER), rows=["zero_shot", "grpo", "dapo", "grpo_atrl"])
    with pytest.raises(MachineTooSmallError) as caught:
        run.run_plan(planned, four_gpus)
    text = str(caught.value)
    assert "It needs 8 GPUs, 55 GB of each; 4 can be used here." in text
    assert "The same is true of: grpo_atrl." in text
    assert text.endswith("choose what fits; --rows zero_shot,dapo runs what fits")


def test_the_gpus_that_the_command_leaves_count_and_not_all_of_the_machine(tmp_path, four_gpus):
    run_dir, two = RunDir.at(tmp_path, PAPER), Machine(tuple("31"), is_chosen=True)
    room.require_room([load_recipe("dapo")], run_dir, four_gpus, seed=0)
    with pytest.raises(MachineTooSmallError, match="It needs 4 GPUs, 67 GB of each; 2 can be used here") as caught:
        room.require_room([load_recipe("dapo")], run_dir, two, seed=0)
    assert "Fits here: atrl-bench train dapo --set finetuning=lora, on 1 of 2 GPUs." in str(caught.value)


def test_a_training_that_no_node_of_a_cluster_holds_is_refused_with_what_the_largest_has(tmp_path, four_gpus):
    cluster = Cluster(gpus_per_node=4, memory_gb=2000.0)
    room.require_room([load_recipe("dapo")], RunDir.at(tmp_path, PAPER), cluster, seed=0)
    with pytest.raises(MachineTooSmallError) as caught:
        room.require_room([load_recipe("grpo")], RunDir.at(tmp_path, PAPER), cluster, seed=0)
    assert "Training grpo on Qwen/Qwen2.5-VL-7B-Instruct does not fit on the cluster's largest node." in str(
        caught.value
    )
    assert "It needs 8 GPUs, 55 GB of each; 4 can be used on the cluster's largest node." in str(caught.value)


def test_answers_that_no_node_of_a_cluster_has_a_gpu_for_are_refused_before_anything_is_sent(tmp_path):
    cluster = RayCluster(gpus_per_node=0, memory_gb=2000.0, host="127.0.0.1", ray=None)
    with pytest.raises(MachineTooSmallError) as caught:
        evaluate_model(
            PAPER.model, ["geoqa_test"], EvaluationOptions(), RunDir.at(tmp_path, PAPER), cluster, quiet=True
        )
    text = str(caught.value)
    assert "has the GPUs for a job: evaluate Qwen/Qwen2.5-VL-7B-Instruct on geoqa_test." in text
    assert "It needs 1 on one node; the largest has none." in text
    assert "without --on" in text


def test_what_is_not_fetched_is_said_of_rows_that_fit(tmp_path, four_gpus):
    planned = plan_table("main_7b", RunDir.at(tmp_path, PAPER), rows=["dapo"])
    with pytest.raises(NotFetchedError, match="the hub does not give it"):
        run.run_plan(planned, four_gpus)
    assert not planned.run_dir.store_path.exists()


def test_a_training_that_is_done_needs_no_room(tmp_path, four_gpus, monkeypatch):
    monkeypatch.setattr(plan, "_digests", lambda *_: ("base", "data"))  # as of what was fetched
    planned = plan_table("main_7b", RunDir.at(tmp_path, PAPER), rows=["grpo"])
    job = planned.jobs[0]
    with planned.run_dir.open_store() as store:
        store.add_run(job.run_spec)
        store.finish_run(job.run_key, checkpoint="gone", digest="d", seconds=1.0, summary={})
    room.require_room_for_plan(planned, four_gpus)
