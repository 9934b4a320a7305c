"""One of several processes of a training, for tests that launch it; each writes down what it drew, held and computed.

"apart": each process has the model, and every answer is wrong, so that DAPO draws on. "shared": FSDP2 divides it.
"""

import json
import os
import signal
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import torch
from conftest import CoinPool  # the folder of a program is the first place where Python looks
from killed_run import train_by
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.distributed.tensor import DTensor
from transformers import AutoModelForImageTextToText

from atrl_bench.engines.stop import Stopped
from atrl_bench.training import rollouts, saving
from atrl_bench.training.loop import Loop
from atrl_bench.training.passes import Passes
from atrl_bench.training.policy import trainable
from atrl_bench.training.sharding import gathered


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


def watch_gathered(report):
    """Write down the most bytes of whole weights that this process holds at once, while it samples and in passes."""
    wait, generate_own, groups, phases = FSDPParamGroup.wait_for_unshard, Loop.generate_own, set(), ["passes"]

    def waited(self):
        wait(self)
        groups.add(self)
        parameters = [one for group in groups for one in group.fsdp_params]
        held = sum(gathered.untyped_storage().size() for one in parameters for gathered in one.all_gather_outputs)
        report["gathered"][phases[-1]] = max(report["gathered"].get(phases[-1], 0), held)

    def sampling(self, *given):
        phases.append("sampling")
        found = generate_own(self, *given)
        phases.pop()
        return found

    FSDPParamGroup.wait_for_unshard, Loop.generate_own = waited, sampling


class AllWrong(CoinPool):
    def grade_many(self, answers):
        return [SimpleNamespace(state="wrong") for _ in answers]


def remembered(owner, name, remember):
    original = getattr(owner, name)

    def call(self, *arguments, **options):
        result = original(self, *arguments, **options)
        remember(self, arguments, result)
        return result

    setattr(owner, name, call)


def apart_from_whole(trainer, batch):
    """Return how far log-probabilities are from those of a whole model with the gathered weights."""
    name, weights = trainer.model.config._name_or_path, trainer.model.state_dict()
    whole = AutoModelForImageTextToText.from_pretrained(name, dtype=torch.float32)
    whole.load_state_dict({name: gathered(weight) for name, weight in weights.items()})
    whole = trainable(whole, trainer.recipe, trainer.profile, 0)
    found = [trainer.passes.score(model, batch).logprob_BT for model in (trainer.model, whole)]
    return (found[0] - found[1]).abs().max().item()


def watch_files(report, most_bytes):
    """Write down the bytes of each file of the trained model, which has at most so many."""
    saving.MOST_FILE_BYTES, write = most_bytes, saving.save_file

    def watched(part, path, metadata):
        report["files"].append(held_bytes(part.values()))
        write(part, path, metadata)

    saving.save_file = watched


def watch_passes(report):
    """Write down what this process holds at each pass of the loss, and the type of what passes say."""
    loss, through = Loop.loss, Passes._through

    def watched(self, batch):
        report["whole_gradient"].append(whole_gradient_bytes(self.model))
        if self.step + 1 == self.num_updates and self.sizes.dtype == "float32" and self.recipe.finetuning == "full":
            report["apart"] = apart_from_whole(self, batch)
        found = loss(self, batch)
        moments = [value for state in self.optimizer.state.values() for name, value in state.items() if name != "step"]
        report["sharded"] = all(isinstance(value, DTensor) for value in [*self.weights, *moments])
        for name, model in (("policy", self.model), ("reference", self.reference)):
            if model is not None:
                report["units"][name], report["held"][name] = units_of(model), held_bytes(model.parameters())
        return found

    def typed(self, *given, **options):
        scored = through(self, *given, **options)
        report["dtypes"].append(str(scored.logprob_BT.dtype))
        return scored

    Loop.loss, Passes._through = watched, typed


def process(kind, recipe, base, data, out, profile, told):
    rollouts.GradingPool = {"shared": CoinPool, "apart": AllWrong}[kind]
    report = {name: [] for name in ("rows", "whole_gradient", "dtypes", "files")}
    report |= {name: {} for name in ("units", "held", "gathered")}
    if kind == "shared":
        os.environ["ACCELERATE_USE_FSDP"] = "true"
        watch_passes(report)
        watch_gathered(report)
    remembered(Loop, "generate_own", lambda self, given, _: report["rows"].append([given[1][0], *given[0]]))
    stop_after = recipe.pop("stop_after", None)
    watch_files(report, recipe.pop("most_file_bytes", saving.MOST_FILE_BYTES))
    if stop_after is not None and os.environ["RANK"] == str(told):  # the one process that is told
        remembered(
            Loop, "update", lambda self, *_: self.step + 1 == stop_after and os.kill(os.getpid(), signal.SIGTERM)
        )
    try:
        result = train_by(recipe, base, data, out, profile)
    except Stopped as stopped:
        report["code"] = stopped.code
    else:
        report |= {"digest": result.digest, "checkpoint": str(result.checkpoint), "base": base}
    (Path(out) / f"process-{os.environ['RANK']}.json").write_text(json.dumps(report))
