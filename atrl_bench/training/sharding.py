"""How a model is divided where processes share it: by FSDP2, the same on CPUs and GPUs.

FSDP gathers a unit's weights on all processes together each time the unit is called, and frees them after. The layers
of the text are units. The vision tower belongs to the rest of the model, which is gathered once a pass: a pass over
images and videos goes through the tower twice and one over either of them once, so that processes would wait for each
other for ever. It is 1.4 GB of the 7B model in bfloat16.

Weights, sums of gradients and log-probabilities are float32 whatever a pass computes in. Gradients are summed, and
shared out after each pass: no process ever holds all of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate import init_empty_weights
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from transformers import AutoConfig, AutoModelForImageTextToText
from transformers.distributed import DistributedConfig

from atrl_bench.engines.processes import launched
from atrl_bench.errors import InvalidFileError

SHARED = "ACCELERATE_USE_FSDP"  # what accelerate's launcher says of a model that processes share


def shards_models() -> bool:
    """Whether accelerate's launcher has said that processes share a model by FSDP."""
    if os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() in ("1", "true"):
        raise InvalidFileError(
            "DeepSpeed does not train here.",
            why="A model that devices share is divided by FSDP2 alone: one way, which is tested.",
            next_step="accelerate launch --config_file recipes/launch/fsdp2.yaml, or leave accelerate's own file out",
        )
    return launched().count > 1 and os.environ.get(SHARED, "").lower() in ("1", "true")


def device() -> torch.device:
    """The one of this process."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def load_model(
    folder: Path | str,
    weights: torch.dtype,
    computes_in: torch.dtype,
    prepare: Callable[[Any], Any] = lambda model: model,
) -> Any:
    """The model in `folder` on this process's device: whole, or its part of each weight, which alone it reads.

    `prepare` gives it what it needs before it is divided, such as adapters.
    """
    if not shards_models():
        return prepare(AutoModelForImageTextToText.from_pretrained(folder, dtype=weights)).to(device())
    with init_empty_weights(include_buffers=False):  # rotary frequencies are in no checkpoint
        base = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(folder), dtype=weights)
    base.tie_weights()  # before it is divided: FSDP keeps one copy of a tied weight where it sees that it is one
    units = [name for name, module in base.named_modules() if type(module).__name__ in layers_of_text(base)]
    model = prepare(base)
    draw_adapters(model)
    fully_sharded(model, [base.get_submodule(name) for name in units], computes_in)
    # transformers' own sharded model has a tied weight twice, of which an optimiser moves one: it only reads here.
    plan = {re.sub(r"\.\d+$", ".*", name): "free_full_weight" for name in units}
    config = DistributedConfig(fsdp_size=launched().count, fsdp_plan=plan)
    read = AutoModelForImageTextToText.from_pretrained(folder, dtype=weights, distributed_config=config)
    shards = read.state_dict()
    names = {name: name.replace(".base_layer.", ".") for name in base.state_dict()}  # PEFT has put its layers around
    base.load_state_dict(
        {own: shards[name] for own, name in names.items() if name in shards}, strict=False, assign=True
    )
    base.tie_weights()
    base.generation_config = read.generation_config
    base._weight_conversions = read._weight_conversions  # how transformers writes the names of a file that it read
    if missing := [name for name, weight in model.named_parameters() if weight.is_meta]:
        raise InvalidFileError(
            f"{folder} has no weights {', '.join(missing[:3])}.", next_step="give a whole checkpoint"
        )
    return model.to(device())


def layers_of_text(model: Any) -> list[str]:
    """The classes of layers that are in the text's decoder, among those that a model says are never divided."""
    inside = {type(module).__name__ for module in model.get_decoder().modules()}
    return [name for name in model._no_split_modules or () if name in inside]


def draw_adapters(model: Any) -> None:
    """Give LoRA's factors that were made without memory the numbers that they would have been made with."""
    for module in model.modules():
        if hasattr(module, "reset_lora_parameters"):
            for factors in (module.lora_A, module.lora_B):
                for factor in factors.values():
                    factor.to_empty(device="cpu").reset_parameters()
            for name in module.lora_A:
                module.reset_lora_parameters(name, init_lora_weights=True)


def fully_sharded(model: Any, units: Sequence[nn.Module], computes_in: torch.dtype) -> None:
    """Divide these modules, and what is left as the root, over all processes."""
    mesh = init_device_mesh(device().type, (launched().count,))
    low: dict[str, Any] = {"param_dtype": computes_in, "reduce_dtype": torch.float32}
    low = {} if computes_in == torch.float32 else low
    for unit in units:
        fully_shard(unit, mesh=mesh, mp_policy=MixedPrecisionPolicy(**low))
    # The seconds of a video are among the inputs, and bfloat16 would move its frames.
    fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(**low, cast_forward_inputs=False))
    for module in _units(model):
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)


@contextmanager
def whole(model: Any) -> Iterator[Any]:
    """Have all weights gathered inside the block: processes may call the model as often as they like, each by itself.

    That is what sampling does, token by token and until its own last response ends.
    """
    units, was_training = _units(model), model.training
    model.eval()  # layers keep keys and values, which they do not where they compute activations again
    with torch.no_grad():
        for unit in units:
            unit.set_reshard_after_forward(False, recurse=False)
            unit.unshard()
    try:
        yield model
    finally:
        for unit in units:
            unit.reshard()
            unit.set_reshard_after_forward(unit is not model, recurse=False)
        model.train(was_training)


def put_away(model: Any) -> None:
    """Free what a pass without gradients leaves gathered: the weights that belong to no layer."""
    if isinstance(model, FSDPModule):
        model.reshard()


def go_back_through_all_layers(model: Any) -> None:
    """Have every backward pass reach the embeddings, as one over an image does on its way to the tower.

    Before a text nothing may learn. Who shares the layers gathers them, and adds up their gradients, together.
    """
    model.get_input_embeddings().register_forward_hook(lambda _module, _inputs, output: output.requires_grad_())


def reached_all(loss: Tensor, model: nn.Module) -> Tensor:
    """The loss with a gradient of zero for what this pass did not reach, the vision tower where it saw nothing.

    Processes sum the gradients of the root together: all have to have the same ones.
    """
    if not isinstance(model, FSDPModule):
        return loss
    in_units = {weight for unit in _units(model) if unit is not model for weight in unit.parameters()}
    rest = [weight for weight in model.parameters() if weight.requires_grad and weight not in in_units]
    return loss + 0.0 * sum(weight.flatten()[0].float() for weight in rest)


def sum_gradients(weights: Sequence[Tensor]) -> None:
    """Add up what all processes have found, where each has the whole model. FSDP has done it after each pass."""
    processes = launched()
    if processes.count == 1 or isinstance(weights[0], DTensor):
        return
    reached = processes.total(torch.tensor([float(weight.grad is not None) for weight in weights], device=device()))
    for weight, count in zip(weights, reached.tolist(), strict=True):
        if count:  # nobody moves a weight that no response has reached
            weight.grad = processes.total(torch.zeros_like(weight) if weight.grad is None else weight.grad)


def gathered(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _units(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, FSDPModule)]
