"""How a model is divided where devices share it.

FSDP gathers a unit's weights on all devices together, each time the unit is called. accelerate makes a unit of every
layer, those of the vision tower too; but a pass over images and videos goes through the tower twice and one over either
of them once, so that devices would wait for each other for ever. Here the layers of the text are units, and the tower
belongs to the rest of the model, which is gathered once a pass: 2.7 GB of the 7B model in float32.
"""

from __future__ import annotations

import os
from typing import Any

from atrl_bench.engines.processes import Processes
from atrl_bench.errors import InvalidFileError
from atrl_bench.training.data import TrainingData

# What accelerate's launcher says of a sharded model, and of one reader a machine.
SHARED, READ_ONCE = "ACCELERATE_USE_FSDP", "FSDP_CPU_RAM_EFFICIENT_LOADING"


def share(trainer: Any, data: TrainingData) -> None:
    """Have the vision tower gathered as often on one device as on any other, or refuse data that would not."""
    if trainer.is_fsdp_enabled:
        model, plugin = trainer.model, trainer.accelerator.state.fsdp_plugin
        text, every = layers_of_text(model), list(model._no_split_modules or ())
        if plugin.transformer_cls_names_to_wrap is None and text:
            plugin.transformer_cls_names_to_wrap = text
        elif not set(plugin.transformer_cls_names_to_wrap or every) <= set(text):
            refuse_mixed_media(data)
    elif trainer.is_deepspeed_enabled:
        refuse_mixed_media(data)


def reads_weights(processes: Processes) -> bool:
    """Whether this process reads a model that devices share, and does not get its part from another one.

    One process of each machine reads it, if accelerate was told so; that transformers leaves it at that by itself is no
    longer true (5.23 reads it in all).
    """
    is_shared = all(os.environ.get(name, "").lower() in ("1", "true") for name in (SHARED, READ_ONCE))
    return not is_shared or processes.local_index == 0


def reserve_weights(model: Any) -> None:
    """Give a model without weights tensors that nobody has written to, which take no memory.

    accelerate tells the weights of an optimiser apart by their addresses, which those without any lack.
    """
    import torch

    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False):
            empty = torch.empty_like(weight, device="cpu")
            setattr(module, name, torch.nn.Parameter(empty, requires_grad=weight.requires_grad))
    model.tie_weights()


def layers_of_text(model: Any) -> list[str]:
    """The classes of layers that are in the text's decoder, among those that a model says are never divided."""
    inside = {type(module).__name__ for module in model.get_decoder().modules()}
    return [name for name in model._no_split_modules or () if name in inside]


def refuse_mixed_media(data: TrainingData) -> None:
    with_videos = sum(bool(problem.videos) for problem in data.problems)
    if 0 < with_videos < len(data.problems):
        raise InvalidFileError(
            f"A model sharded in this way cannot be trained on {data.name}, which mixes images and videos.",
            why="Devices would gather the layers of its vision tower in different numbers, and wait for ever.",
            next_step="use FSDP without naming the layers to wrap, or train on images or on videos alone",
        )
