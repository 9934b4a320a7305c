"""On a GPU: a few steps of training are finite and move what is trained, and the check of a GPU measures every rate."""

import json
import math

import needs
import pytest
import torch

from atrl_bench.analysis.gpu_check import gpu_check
from atrl_bench.mini import BASE
from atrl_bench.profiles import load_profile
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.run import train

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason=needs.NO_GPU)]


@pytest.mark.parametrize(("recipe", "credit"), [("grpo", "atrl"), ("t_grpo", "uniform")])
def test_a_training_on_images_or_videos_stays_finite_and_moves_its_weights(recipe, credit, tmp_path, mini_world):
    chosen = load_recipe(recipe, credit=credit).model_copy(update={"start_from": None})
    profile = load_profile("smoke")
    result = train(chosen, profile=profile, base_model=BASE, data_dir=mini_world, out=tmp_path, seed=0)
    lines = [json.loads(line) for line in (result.checkpoint / "metrics.jsonl").read_text().splitlines()]
    assert all(math.isfinite(line["loss"]) and math.isfinite(line["grad_norm"]) for line in lines)
    assert any(line["grad_norm"] > 0 for line in lines)


def test_the_check_of_a_gpu_measures_every_rate_it_can():
    check = gpu_check("3b")
    assert check.failures == {}
    measured = {"device_gb", "memory_bytes_per_second", "decoding_seconds_per_layer", "training_flops"}
    assert check.rates.keys() == measured
    assert check.step.peak_gb < check.rates["device_gb"]
