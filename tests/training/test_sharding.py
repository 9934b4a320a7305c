"""What is one unit of a model that devices share, and which data it cannot be trained on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers import PreTrainedModel

from atrl_bench.engines.processes import Processes
from atrl_bench.errors import InvalidFileError
from atrl_bench.training.data import TrainingData
from atrl_bench.training.problem import TrainingProblem
from atrl_bench.training.sharding import layers_of_text, reads_weights, refuse_mixed_media, share

IMAGE = TrainingProblem("1", "?", "A", images=(b"",))
VIDEO = TrainingProblem("2", "?", "A", images=(), videos=(Path("a.mp4"),))
BOTH = TrainingData("both", [IMAGE, VIDEO])


def trainer(model, wrapped=None, *, deepspeed=False):
    plugin = SimpleNamespace(transformer_cls_names_to_wrap=wrapped)
    state, gradients = SimpleNamespace(fsdp_plugin=plugin), SimpleNamespace(plugin_kwargs={})
    return SimpleNamespace(
        model=model,
        accelerator=SimpleNamespace(state=state, gradient_state=gradients),
        args=SimpleNamespace(bf16=True),
        is_fsdp_enabled=not deepspeed,
        is_deepspeed_enabled=deepspeed,
    )


def test_the_layers_of_the_text_are_units_and_those_of_the_vision_tower_are_not(tiny_model):
    assert "Qwen2_5_VLVisionBlock" in tiny_model._no_split_modules
    assert layers_of_text(tiny_model) == ["Qwen2_5_VLDecoderLayer"]
    shared = trainer(tiny_model)
    share(shared, BOTH)
    assert shared.accelerator.state.fsdp_plugin.transformer_cls_names_to_wrap == ["Qwen2_5_VLDecoderLayer"]


def test_what_the_user_named_stays_and_is_refused_only_for_images_beside_videos(tiny_model):
    own = ["Qwen2_5_VLDecoderLayer", "Qwen2_5_VLVisionBlock"]
    shared = trainer(tiny_model, own)
    share(shared, TrainingData("videos", [VIDEO]))
    assert shared.accelerator.state.fsdp_plugin.transformer_cls_names_to_wrap is own
    with pytest.raises(InvalidFileError, match="both, which mixes images and videos"):
        share(shared, BOTH)
    share(trainer(tiny_model, ["Qwen2_5_VLDecoderLayer"]), BOTH)


def test_deepspeed_is_refused_with_the_way_that_is_tested(tiny_model):
    with pytest.raises(InvalidFileError, match=r"DeepSpeed does not train here(?s:.)*fsdp2\.yaml"):
        share(trainer(tiny_model, deepspeed=True), TrainingData("images", [IMAGE]))


def test_one_kind_of_media_is_never_refused():
    refuse_mixed_media(TrainingData("images", [IMAGE, IMAGE]))
    refuse_mixed_media(TrainingData("videos", [VIDEO, VIDEO]))


def test_one_process_of_each_machine_reads_a_model_that_is_shared(monkeypatch):
    first, second = Processes(8, 16, local_index=0), Processes(9, 16, local_index=1)
    assert reads_weights(second)  # each has a model of its own
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_CPU_RAM_EFFICIENT_LOADING", "True")
    assert reads_weights(first)
    assert not reads_weights(second)


def test_no_model_of_a_training_is_dispatched_over_devices(make_trainer, monkeypatch):
    """A reference with `device_map="auto"`, as TRL loads it, is spread over all GPUs, and fails where it is sharded."""
    devices, from_pretrained = [], PreTrainedModel.from_pretrained.__func__

    def recorded(cls, *arguments, **options):
        devices.append(options.get("device_map"))
        return from_pretrained(cls, *arguments, **options)

    monkeypatch.setattr(PreTrainedModel, "from_pretrained", classmethod(recorded))
    trainer = make_trainer("grpo")
    assert trainer.ref_model is not None
    assert devices == [None, None], "the policy and its reference"
