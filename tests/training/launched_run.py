"""One of several processes of a training, for tests that launch it; each writes down what it drew and sampled.

"apart": each process has the model, and every answer is wrong, so that DAPO goes on drawing. "shared": FSDP2 shards it.
accelerate does that on accelerators alone, so it is told that the CPU is one; everything after that is its own.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import accelerate.state
import torch
from accelerate.utils import DistributedType
from conftest import CoinPool  # the folder of a program is the first place where Python looks
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from atrl_bench.profiles import Profile
from atrl_bench.training import rollouts, sampler
from atrl_bench.training.loop import Loop
from atrl_bench.training.passes import Passes
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.run import train

MOST_AT_ONCE = 3  # responses of a shared model


def units_of(model):
    """Return the kinds of modules that FSDP gathers one at a time, and how many of each there are."""
    return Counter(type(module).__name__ for module in model.modules() if isinstance(module, FSDPModule))


def held_bytes(tensors):
    return sum(one.to_local().nbytes if isinstance(one, DTensor) else one.nbytes for one in tensors)


def whole_gradient_bytes(model):
    """Return how much of its gradient a process holds unsharded, by FSDP's own account."""
    units = [module for module in model.modules() if isinstance(module, FSDPModule)]
    parameters = [
        one for unit in units for group in unit._get_fsdp_state()._fsdp_param_groups for one in group.fsdp_params
    ]
    whole = [(one.unsharded_accumulated_grad, getattr(one, "_unsharded_param", None)) for one in parameters]
    gradients = [gradient for kept, weight in whole for gradient in (kept, getattr(weight, "grad", None))]
    return sum(gradient.nbytes for gradient in gradients if gradient is not None)


class AllWrong(CoinPool):
    def grade_many(self, answers):
        return [SimpleNamespace(state="wrong") for _ in answers]


def take_the_cpu_for_an_accelerator():
    begin = accelerate.state.PartialState.__init__

    def begin_as_accelerator(self, *arguments, **options):
        begin(self, *arguments, **options)
        if self.distributed_type == DistributedType.MULTI_CPU:
            self.distributed_type = DistributedType.MULTI_GPU

    accelerate.state.PartialState.__init__ = begin_as_accelerator
    os.environ |= {
        "ACCELERATE_USE_FSDP": "true",
        "FSDP_VERSION": "2",
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
        "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
        "FSDP_CPU_RAM_EFFICIENT_LOADING": "true",
    }


def remembered(owner, name, remember):
    original = getattr(owner, name)

    def call(self, *arguments, **options):
        result = original(self, *arguments, **options)
        remember(self, arguments, result)
        return result

    setattr(owner, name, call)


if __name__ == "__main__":
    kind, recipe, base, data, out, profile = sys.argv[1:]
    rollouts.GradingPool = {"shared": CoinPool, "apart": AllWrong}[kind]
    report = {"rows": [], "slices": [], "loading": [], "whole_gradient": [], "dtypes": []}
    from_pretrained = PreTrainedModel.from_pretrained.__func__

    def remember_loading(cls, *arguments, **options):
        has_group = torch.distributed.is_initialized()
        model = from_pretrained(cls, *arguments, **options)
        report["loading"].append([has_group, any(weight.is_meta for weight in model.parameters())])
        return model

    PreTrainedModel.from_pretrained = classmethod(remember_loading)
    if kind == "shared":
        take_the_cpu_for_an_accelerator()
        sampler.sequences_at_once = lambda *_: MOST_AT_ONCE
        made = sampler.prompt_inputs
        sampler.prompt_inputs = lambda rows, *rest: report["slices"].append(len(rows)) or made(rows, *rest)
    remembered(Loop, "generate_own", lambda self, given, _: report["rows"].append([given[1], *given[0]]))
    if kind == "shared":
        before_loss = Loop.loss

        def watched(self, *given):
            report["whole_gradient"].append(whole_gradient_bytes(self.model))
            result = before_loss(self, *given)
            report["units"] = {"policy": units_of(self.model)}
            report["held"] = {"policy": held_bytes(self.model.parameters())}
            if self.ref_model is not None:
                report["units"]["reference"] = units_of(self.ref_model)
                report["held"]["reference"] = held_bytes(self.ref_model.parameters())
            return result

        Loop.loss = watched
        remembered(
            Passes, "_through", lambda self, given, scored: report["dtypes"].append(str(scored.logprob_BT.dtype))
        )
    fields = json.loads(recipe)
    result = train(
        load_recipe(fields.pop("name"), **fields),
        profile=Profile.model_validate_json(profile),
        base_model=base,
        data_dir=Path(data),
        out=Path(out),
        seed=0,
    )
    report |= {"digest": result.digest, "checkpoint": str(result.checkpoint)}
    (Path(out) / f"process-{os.environ['RANK']}.json").write_text(json.dumps(report))
