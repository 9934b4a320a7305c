"""What does not fit a machine is refused before anything is loaded, with what would fit."""

import math

import pytest

from atrl_bench.engines.devices import Cluster, Machine
from atrl_bench.engines.ray_cluster import RayCluster
from atrl_bench.errors import MachineTooSmallError, NotFetchedError, UnknownNameError
from atrl_bench.evaluation.cell_spec import EvaluationOptions
from atrl_bench.experiments import memory_check, plan, run
from atrl_bench.experiments.cost import ASSUMED, training_needs
from atrl_bench.experiments.definition import load_table
from atrl_bench.experiments.evaluate_command import evaluate_model
from atrl_bench.experiments.memory_check import (
    Capacity,
    misfits,
    require_fit,
    require_plan_fits,
    require_training_fits,
    this_machine,
)
from atrl_bench.experiments.plan import plan_definition, plan_table
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import load_profile
from atrl_bench.training.recipe import CreditChoice, load_recipe

PAPER = load_profile("paper")
SMALL = Capacity((24.0,), host_gb=64, disk_gb=500)
ONE = Capacity((80.0,), host_gb=200, disk_gb=500)
EIGHT = Capacity((80.0,) * 8, host_gb=1000, disk_gb=2000)
TWO_NODES = Capacity((80.0,) * 8, host_gb=1000, disk_gb=2000, nodes=2)
CPU = Capacity((), host_gb=64, disk_gb=500)


def paper(size):
    return PAPER.model_copy(update={"model": f"Qwen/Qwen2.5-VL-{size}-Instruct"})


def reasons(machine, size="7B", name="grpo", **overrides):
    needs = training_needs(load_recipe(name, **overrides), paper(size), ASSUMED.on(machine.gpus_gb))
    return misfits(needs, machine)


@pytest.mark.parametrize(
    ("machine", "size", "overrides"),
    [
        (ONE, "7B", {"finetuning": "lora"}),
        (EIGHT, "3B", {}),
        (EIGHT, "7B", {}),
        (TWO_NODES, "7B", {}),
    ],
)
def test_what_fits_has_no_reason_against_it(machine, size, overrides):
    assert reasons(machine, size, **overrides) == []


@pytest.mark.parametrize(
    ("machine", "size", "reason"),
    [
        # Activations, sampler and reserve alone are 34 GB.
        (SMALL, "7B", "On 64 GPUs it fills 37 GB of each; of 24 GB 10 % have to stay free."),
        (ONE, "7B", "It needs 4 GPUs, 67 GB of each; one can be used here."),
        (EIGHT, "32B", "On 64 GPUs it fills 93 GB of each; of 80 GB 10 % have to stay free."),
        (CPU, "7B", "It needs 4 GPUs, 67 GB of each; none can be used here."),
    ],
)
def test_devices_that_are_too_few_or_too_small_are_named(machine, size, reason):
    assert reasons(machine, size)[0] == reason


def test_host_memory_and_disk_are_looked_at_too():
    cramped = Capacity((80.0,) * 8, host_gb=110, disk_gb=200)
    needs = training_needs(load_recipe("grpo"), PAPER)
    # 12 * 8.29 + 4 * 4 GB of memory, (4 + 24) * 8.29 GB of disk.
    assert misfits(needs, cramped) == [
        "Loading and saving take 115 GB of memory; 110 are free.",
        "Checkpoints take 232 GB in the run folder; 200 GB are free there. Another disk: --out.",
    ]


def test_the_refusal_says_what_would_fit():
    with pytest.raises(MachineTooSmallError) as caught:
        require_fit(load_recipe("sapo", credit="atrl"), PAPER, ONE)
    assert str(caught.value).splitlines() == [
        "Training sapo on Qwen/Qwen2.5-VL-7B-Instruct does not fit here.",
        "It needs 4 GPUs, 63 GB of each; one can be used here.",
        "Would do: 4 GPUs of 80 GB.",
        "Fits here: atrl-bench train sapo --set finetuning=lora, on 1 of 1 GPUs.",
        "Next: choose what fits, or --profile mini",
    ]
    with pytest.raises(MachineTooSmallError, match=r"Would do: 16 GPUs of 141 GB on 2 nodes\."):
        require_fit(load_recipe("grpo"), paper("32B"), EIGHT)
    with pytest.raises(MachineTooSmallError, match=r"Would do: 4 GPUs of 80 GB\."):
        require_fit(load_recipe("grpo"), PAPER, SMALL)


def test_a_mini_training_fits_every_machine_but_one_without_disk():
    mini = load_profile("mini")
    assert misfits(training_needs(load_recipe("grpo"), mini), Capacity((), host_gb=4, disk_gb=1)) == []
    with pytest.raises(MachineTooSmallError) as caught:
        require_fit(load_recipe("grpo"), mini, Capacity((), host_gb=4, disk_gb=0.02))
    # (4 + 24) bytes of 1.07 M weights; adapters take less, and a machine without GPUs has none to name.
    assert caught.value.why.splitlines() == [
        "Checkpoints take 30 MB in the run folder; 20 MB are free there. Another disk: --out.",
        "Fits here: atrl-bench train grpo --set finetuning=lora",
    ]


def test_this_machine_is_measured_at_the_first_folder_that_exists(tmp_path, monkeypatch):
    machine = this_machine(tmp_path / "not" / "yet", ())
    assert 0 < machine.host_gb < math.inf
    assert 0 < machine.disk_gb < math.inf
    assert machine.nodes == 1
    monkeypatch.setenv("WORLD_SIZE", "16")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert this_machine(tmp_path, ()).nodes == 2


@pytest.fixture
def four_gpus(monkeypatch):
    """Four GPUs of 72 GB, on a machine with enough of everything else."""

    def capacity(run_dir, gpus):
        return Capacity((72.0,) * len(gpus), host_gb=1000, disk_gb=9000)

    monkeypatch.setattr(memory_check, "this_machine", capacity)
    monkeypatch.setattr(memory_check, "free_disk_gb", lambda _: 9000.0)
    monkeypatch.setattr(run, "side_by_side", lambda *_: pytest.fail("it was started"))
    return Machine(tuple("0123"))


def test_a_table_is_refused_with_the_rows_that_would_fit(tmp_path, four_gpus):
    planned = plan_table("main_7b", RunDir.at(tmp_path, PAPER), rows=["zero_shot", "grpo", "dapo", "grpo_atrl"])
    with pytest.raises(MachineTooSmallError) as caught:
        run.run_plan(planned, four_gpus)
    text = str(caught.value)
    assert "It needs 8 GPUs, 50 GB of each; 4 can be used here." in text
    assert "The same is true of: grpo_atrl." in text
    assert text.endswith("choose what fits; --rows zero_shot,dapo runs what fits")


def test_the_gpus_that_the_command_leaves_count_and_not_all_of_the_machine(tmp_path, four_gpus):
    run_dir, two = RunDir.at(tmp_path, PAPER), Machine(tuple("31"), is_chosen=True)
    require_training_fits(load_recipe("dapo"), run_dir, four_gpus, seed=0)
    with pytest.raises(MachineTooSmallError, match="It needs 4 GPUs, 63 GB of each; 2 can be used here") as caught:
        require_training_fits(load_recipe("dapo"), run_dir, two, seed=0)
    assert "Fits here: atrl-bench train dapo --set finetuning=lora, on 1 of 2 GPUs." in str(caught.value)


def test_a_training_that_no_node_of_a_cluster_holds_is_refused_with_what_the_largest_has(tmp_path, four_gpus):
    cluster = Cluster(gpus_per_node=2, memory_gb=2000.0)
    require_training_fits(load_recipe("dapo", finetuning="lora"), RunDir.at(tmp_path, PAPER), cluster, seed=0)
    with pytest.raises(MachineTooSmallError) as caught:
        require_training_fits(load_recipe("grpo"), RunDir.at(tmp_path, PAPER), cluster, seed=0)
    assert "Training grpo on Qwen/Qwen2.5-VL-7B-Instruct does not fit on the cluster's largest node." in str(
        caught.value
    )
    assert "It needs 4 GPUs, 67 GB of each; 2 can be used on the cluster's largest node." in str(caught.value)


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
    with pytest.raises(MachineTooSmallError, match="It needs 8 GPUs"):
        require_plan_fits(planned, four_gpus)
    with planned.run_dir.open_store() as store:
        store.add_run(job.run_spec)
        store.finish_run(job.run_key, checkpoint="gone", digest="d", seconds=1.0, summary={})
    require_plan_fits(planned, four_gpus)


def test_a_resumed_run_may_use_the_disk_that_its_own_checkpoints_fill(tmp_path, four_gpus, monkeypatch):
    run_dir = RunDir.at(tmp_path, PAPER)
    monkeypatch.setattr(memory_check, "this_machine", lambda *_: Capacity((80.0,) * 8, host_gb=1000, disk_gb=232.119))
    with pytest.raises(MachineTooSmallError, match="Checkpoints"):
        require_training_fits(load_recipe("grpo"), run_dir, four_gpus, seed=0)
    monkeypatch.setattr(memory_check, "planned_key", lambda *_: "run")
    (run_dir.checkpoints / "run").mkdir(parents=True)
    with (run_dir.checkpoints / "run" / "optimizer").open("wb") as file:
        file.truncate(2_000_000)  # 2 MB of the 232.12 GB
    require_training_fits(load_recipe("grpo"), run_dir, four_gpus, seed=0)


def test_a_row_of_an_unknown_credit_rule_is_refused_before_any_other_is_trained(tmp_path):
    run_dir = RunDir.at(tmp_path, load_profile("smoke"))
    table = load_table("main_7b").select(rows=["grpo", "grpo_atrl"])
    rows = table.rows[0], table.rows[1].model_copy(update={"credit": CreditChoice(rule="atlr")})
    planned = plan_definition(table.model_copy(update={"rows": rows}), run_dir)
    with pytest.raises(UnknownNameError, match="Did you mean atrl"):
        require_plan_fits(planned, Machine(()))
