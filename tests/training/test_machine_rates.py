"""Constants of a machine: assumed until a file of `doctor --gpu` says what was measured."""

import json
from dataclasses import fields

import pytest

from atrl_bench.errors import InvalidFileError
from atrl_bench.training.machine_rates import ASSUMED, MachineRates, load_rates


def write(tmp_path, rates):
    path = tmp_path / "gpu_check.json"
    path.write_text(json.dumps({"rates": rates}))
    return path


def test_every_rate_has_a_unit_and_says_what_it_rests_on():
    rates = [each for each in fields(MachineRates) if each.name not in ("hardware", "measured")]
    assert all(each.metadata["unit"] and each.metadata["basis"] for each in rates)
    assert {ASSUMED.source(each.name) for each in rates} == {"assumed"}


def test_measured_rates_replace_assumed_ones_and_are_named(tmp_path):
    rates = load_rates(write(tmp_path, {"hardware": "NVIDIA H100", "training_flops": 4e14}))
    assert (rates.training_flops, rates.source("training_flops")) == (4e14, "measured")
    assert (rates.device_gb, rates.source("device_gb")) == (80.0, "assumed")
    assert rates.basis == "1 of 9 rates measured on NVIDIA H100, the others assumed"


@pytest.mark.parametrize(
    ("rates", "why"),
    [
        ({"hardware": "H100", "speed": 1}, "no rate speed"),
        ({"hardware": "H100", "training_flops": 0}, "training_flops must be above zero"),
        ({"hardware": "H100", "training_flops": "fast"}, "fast"),
        ({"training_flops": 4e14}, "hardware"),
    ],
)
def test_a_file_with_a_wrong_rate_is_refused_with_the_reason(tmp_path, rates, why):
    with pytest.raises(InvalidFileError, match=why):
        load_rates(write(tmp_path, rates))
