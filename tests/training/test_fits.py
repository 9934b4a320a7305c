"""What does not fit a machine is refused before anything is loaded, with what would fit."""

from __future__ import annotations

import math

import pytest

from atrl_bench.errors import MachineTooSmallError
from atrl_bench.profiles import load_profile
from atrl_bench.training.cost_estimate import training_needs
from atrl_bench.training.fits import Capacity, misfits, require_fit, this_machine
from atrl_bench.training.machine_rates import ASSUMED
from atrl_bench.training.recipe import load_recipe

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
        (EIGHT, "32B", {"finetuning": "lora"}),
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
        (ONE, "7B", "It needs 8 GPUs, 55 GB of each; one can be used here."),
        (EIGHT, "32B", "It needs 32 GPUs, 68 GB of each; 8 can be used here."),
        (TWO_NODES, "32B", "It needs 32 GPUs, 68 GB of each; 16 can be used here."),
        (CPU, "7B", "It needs 8 GPUs, 55 GB of each; none can be used here."),
    ],
)
def test_devices_that_are_too_few_or_too_small_are_named(machine, size, reason):
    assert reasons(machine, size)[0] == reason


def test_host_memory_and_disk_are_looked_at_too():
    cramped = Capacity((80.0,) * 8, host_gb=60, disk_gb=200)
    needs = training_needs(load_recipe("grpo"), PAPER)
    # 4 * 8.29 + 8 * 4 GB of memory, (4 + 24) * 8.29 GB of disk.
    assert misfits(needs, cramped) == [
        "Loading takes 65 GB of memory; 60 are free.",
        "Checkpoints take 232 GB in the run folder; 200 are free there.",
    ]


def test_the_refusal_says_what_would_fit():
    with pytest.raises(MachineTooSmallError) as caught:
        require_fit(load_recipe("sapo", credit="atrl"), PAPER, ONE)
    assert str(caught.value).splitlines() == [
        "Training sapo on Qwen/Qwen2.5-VL-7B-Instruct does not fit here.",
        "It needs 4 GPUs, 67 GB of each; one can be used here.",
        "Would do: 4 GPUs of 80 GB.",
        "Fits here: atrl-bench train sapo --set finetuning=lora, on 1 of 1 GPUs.",
        "Next: choose what fits, or --profile mini",
    ]
    with pytest.raises(MachineTooSmallError, match=r"Would do: 32 GPUs of 80 GB on 4 nodes\."):
        require_fit(load_recipe("grpo"), paper("32B"), EIGHT)
    with pytest.raises(MachineTooSmallError, match=r"Would do: 8 GPUs of 80 GB\."):
        require_fit(load_recipe("grpo"), PAPER, SMALL)


def test_a_resumed_run_may_use_the_disk_that_its_own_checkpoints_fill():
    full = Capacity((80.0,) * 8, host_gb=1000, disk_gb=150)
    with pytest.raises(MachineTooSmallError, match="Checkpoints"):
        require_fit(load_recipe("grpo"), PAPER, full)
    require_fit(load_recipe("grpo"), PAPER, full, stored_gb=100)


def test_a_mini_training_fits_every_machine():
    require_fit(load_recipe("grpo"), load_profile("mini"), Capacity((), host_gb=4, disk_gb=1))


def test_this_machine_is_measured_at_the_first_folder_that_exists(tmp_path, monkeypatch):
    machine = this_machine(tmp_path / "not" / "yet", ())
    assert 0 < machine.host_gb < math.inf
    assert 0 < machine.disk_gb < math.inf
    assert machine.nodes == 1
    monkeypatch.setenv("WORLD_SIZE", "16")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert this_machine(tmp_path, ()).nodes == 2
