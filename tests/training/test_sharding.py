"""What is one unit of a model that processes share, and that none is loaded in any other way."""

import pytest
import torch
from transformers import PreTrainedModel

from atrl_bench.engines.processes import Processes
from atrl_bench.errors import InvalidFileError
from atrl_bench.training import sharding
from atrl_bench.training.sharding import device, layers_of_text, shards_models, sum_gradients


def test_the_layers_of_the_text_are_units_and_those_of_the_vision_tower_are_not(tiny_model):
    assert "Qwen2_5_VLVisionBlock" in tiny_model._no_split_modules
    assert layers_of_text(tiny_model) == ["Qwen2_5_VLDecoderLayer"]


def test_deepspeed_is_refused_with_the_way_that_is_tested(monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(InvalidFileError, match=r"DeepSpeed does not train here(?s:.)*fsdp2\.yaml"):
        shards_models()


def test_one_process_has_its_model_whole_whatever_the_launcher_says(monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    assert not shards_models()
    monkeypatch.setattr(sharding, "launched", lambda: Processes(0, 2))
    assert shards_models()


def test_no_model_of_a_training_is_dispatched_over_devices_also_where_there_is_a_gpu(make_trainer, monkeypatch):
    """A reference with `device_map="auto"`, as TRL loads it, is spread over all GPUs, and fails where it is sharded."""
    asked, moved, from_pretrained = [], [], PreTrainedModel.from_pretrained.__func__

    def recorded(cls, *arguments, **options):
        asked.append(options.get("device_map"))
        return from_pretrained(cls, *arguments, **options)

    monkeypatch.setattr(PreTrainedModel, "from_pretrained", classmethod(recorded))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    assert device() == torch.device("cuda", 3)
    to = PreTrainedModel.to
    monkeypatch.setattr(PreTrainedModel, "to", lambda self, where: moved.append(where) or to(self, "cpu"))
    with monkeypatch.context() as patch:  # what else asks for a GPU is not of this test
        patch.setattr(torch.cuda, "synchronize", lambda: None)
        trainer = make_trainer("grpo")
    assert trainer.reference is not None
    assert asked == [None, None], "the policy and its reference"
    assert moved == [torch.device("cuda", 3)] * 2


def test_gradients_are_added_up_and_what_nobody_has_reached_has_none(monkeypatch):
    both, mine, theirs, nobodys = (torch.nn.Parameter(torch.zeros(2)) for _ in range(4))
    both.grad, mine.grad = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    # The other process has found as much for `both`, and 5 and 6 for `theirs`.
    of_other = iter([torch.tensor([1.0, 0.0, 1.0, 0.0]), both.grad.clone(), torch.zeros(2), torch.tensor([5.0, 6.0])])

    class Two(Processes):
        def total(self, tensor):
            return tensor + next(of_other)

    monkeypatch.setattr(sharding, "launched", lambda: Two(0, 2))
    sum_gradients([both, mine, theirs, nobodys])
    assert both.grad.tolist() == [2, 4]
    assert mine.grad.tolist() == [3, 4]
    assert theirs.grad.tolist() == [5, 6]
    assert nobodys.grad is None
