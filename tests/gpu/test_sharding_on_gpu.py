"""On a GPU: a model that FSDP2 divides learns what a whole one learns, as far as one device can show it.

The launch has one process, so that NCCL gathers from and adds up over itself: each call is made, none crosses a wire.
"""

import json
import math

import needs
import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from transformers import AutoModelForImageTextToText

from atrl_bench.mini import BASE
from atrl_bench.mini.world import write_world
from atrl_bench.profiles import load_profile
from atrl_bench.training import checkpoints, saving, sharding
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.run import train

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason=needs.NO_GPU)]


class ReadByOne:
    """Reads as transformers does for several processes; for one it divides nothing."""

    from_config = AutoModelForImageTextToText.from_config

    @staticmethod
    def from_pretrained(folder, *, dtype, distributed_config):
        del distributed_config
        read, mesh = AutoModelForImageTextToText.from_pretrained(folder, dtype=dtype), init_device_mesh("cuda", (1,))
        parts = {name: distribute_tensor(value, mesh, [Shard(0)]) for name, value in read.state_dict().items()}
        read.state_dict = lambda: parts
        return read


@pytest.fixture
def sharing(monkeypatch, tmp_path):
    """Return a function that begins a launch of one process, which is told to share its model."""

    def begin():
        store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
        torch.distributed.init_process_group("cuda:nccl,cpu:gloo", store=store, rank=0, world_size=1)
        for module in (sharding, saving, checkpoints):
            monkeypatch.setattr(module, "shards_models", lambda: True)
        monkeypatch.setattr(sharding, "AutoModelForImageTextToText", ReadByOne)

    yield begin
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return write_world(tmp_path_factory.mktemp("world"), load_profile("smoke"), ["geometry3k"])


def trained(out, data_dir, **sizes):
    smoke = load_profile("smoke")
    profile = smoke.model_copy(update={"training": smoke.training.model_copy(update=sizes)})
    recipe = load_recipe("grpo", credit="atrl", finetuning="full", data="geometry3k").model_copy(
        update={"start_from": None}
    )
    result = train(recipe, profile=profile, base_model=BASE, data_dir=data_dir, out=out, seed=0)
    lines = [json.loads(line) for line in (result.checkpoint / "metrics.jsonl").read_text().splitlines()]
    return lines, load_file(result.checkpoint / "model.safetensors")


def test_a_divided_model_learns_what_a_whole_one_learns(images, sharing, tmp_path):
    lines, whole = trained(tmp_path / "whole", images)
    sharing()
    divided_lines, divided = trained(tmp_path / "divided", images)
    assert [line.get("reward") for line in lines] == [line.get("reward") for line in divided_lines]
    assert whole.keys() == divided.keys()
    base = load_file(BASE / "model.safetensors")
    moved = max(float((value - base[name].float()).abs().max()) for name, value in whole.items())
    apart = max(float((value - divided[name]).abs().max()) for name, value in whole.items())
    assert apart < 0.05 * moved


def test_a_divided_model_in_bfloat16_stays_finite_and_moves_its_weights(images, sharing, tmp_path):
    sharing()
    lines, divided = trained(tmp_path, images, dtype="bfloat16", completions_per_device=2)
    assert all(math.isfinite(line["loss"]) and math.isfinite(line["grad_norm"]) for line in lines)
    assert any(line["grad_norm"] > 0 for line in lines)
    base = load_file(BASE / "model.safetensors")
    assert any(not value.equal(base[name].to(value.dtype)) for name, value in divided.items())
