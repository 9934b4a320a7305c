"""How a model is divided where devices share it.

FSDP gathers a unit's weights on all devices together, each time the unit is called. accelerate makes a unit of every
layer, those of the vision tower too; but a pass over images and videos goes through the tower twice and one over either
of them once, so that devices would wait for each other for ever. Here the layers of the text are units, and the tower
belongs to the rest of the model, which is gathered once a pass: 2.7 GB of the 7B model in float32.

Weights, sums of gradients and log-probabilities are float32 whatever a pass computes in, and gradients are shared out
after each pass, so that no device ever holds all of them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from atrl_bench.engines.processes import Processes
from atrl_bench.errors import InvalidFileError
from atrl_bench.training.data import TrainingData

# What accelerate's launcher says of a sharded model, and of one reader a machine.
SHARED, READ_ONCE = "ACCELERATE_USE_FSDP", "FSDP_CPU_RAM_EFFICIENT_LOADING"


def shards_models() -> bool:
    """Whether accelerate's launcher has said that devices share a model by FSDP."""
    return _is_set(SHARED)


def share(trainer: Any, data: TrainingData) -> None:
    """Have a trainer's model sharded as this module says; refuse data whose passes would wait for one another."""
    if trainer.is_fsdp_enabled:
        model, plugin = trainer.model, trainer.accelerator.state.fsdp_plugin
        text, every = layers_of_text(model), list(model._no_split_modules or ())
        if plugin.transformer_cls_names_to_wrap is None and text:
            plugin.transformer_cls_names_to_wrap = text
        elif not set(plugin.transformer_cls_names_to_wrap or every) <= set(text):
            refuse_mixed_media(data)
        if trainer.args.bf16:
            plugin.mixed_precision_policy = _computes_in("bfloat16")
        # Without it each device keeps the whole model's gradient until the last pass of an update.
        trainer.accelerator.gradient_state.plugin_kwargs["sync_each_batch"] = True
    elif trainer.is_deepspeed_enabled:
        raise InvalidFileError(
            "DeepSpeed does not train here.",
            why="A model that devices share is divided by FSDP2 alone: one way, which is tested.",
            next_step="accelerate launch --config_file recipes/launch/fsdp2.yaml, or leave accelerate's own file out",
        )


def sharded_reference(folder: Path | str, dtype: str, device: Any) -> Any:
    """The base model in `folder`, frozen, in units of one layer; each process reads its own rows of the weights.

    TRL would have every process load all of it, spread it over all devices, and gather it as a single unit.
    """
    import torch
    from accelerate import init_empty_weights
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from transformers import AutoConfig, AutoModelForImageTextToText
    from transformers.distributed import DistributedConfig

    weights, count = getattr(torch, dtype), torch.distributed.get_world_size()
    with init_empty_weights(include_buffers=False):
        model = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(folder), dtype=weights)
    model.tie_weights()  # before it is sharded: FSDP keeps one copy of a tied weight where it sees that it is one
    layers = layers_of_text(model)
    units = [name for name, module in model.named_modules() if type(module).__name__ in layers]
    options: dict[str, Any] = {"mesh": init_device_mesh(torch.device(device).type, (count,))}
    if dtype != "float32":
        options["mp_policy"] = _computes_in(dtype)
    for name in units:
        fully_shard(model.get_submodule(name), **options)
    fully_shard(model, **options)
    plan = {re.sub(r"\.\d+$", ".*", name): "free_full_weight" for name in units}
    read = AutoModelForImageTextToText.from_pretrained(
        folder, dtype=weights, distributed_config=DistributedConfig(fsdp_size=count, fsdp_plan=plan)
    )
    model.load_state_dict(read.state_dict(), assign=True)
    model.tie_weights()
    return model.requires_grad_(False).to(device).eval()


def put_away(model: Any) -> None:
    """Free what a pass without gradients leaves gathered: the weights that belong to no layer."""
    if hasattr(model, "reshard"):  # of FSDP2's modules alone
        model.reshard()


def _computes_in(dtype: str) -> Any:
    """accelerate's own policy has sums of gradients and what a model returns in this type, too: log-probabilities."""
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy

    return MixedPrecisionPolicy(param_dtype=getattr(torch, dtype), reduce_dtype=torch.float32)


def reads_weights(processes: Processes) -> bool:
    """Whether this process reads a model that devices share, and does not get its part from another one.

    One process of each machine reads it, if accelerate was told so; that transformers leaves it at that by itself is no
    longer true (5.23 reads it in all).
    """
    return not (shards_models() and _is_set(READ_ONCE)) or processes.local_index == 0


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "true")


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
