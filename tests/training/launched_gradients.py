"""One of several processes that train recipes for one rollout, for a test that launches it.

Of every recipe the main process writes a file with the gradient of each update; the others have no run folder at all.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file

from atrl_bench.engines.processes import launched
from atrl_bench.models.local import find_model
from atrl_bench.profiles import load_profile
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.run import train


def remember_gradients():
    """Return a list that gets the gradient of each update of a policy."""
    found, step = [], torch.optim.AdamW.step

    def remembered(self, *arguments, **options):
        weights = [weight for group in self.param_groups for weight in group["params"]]
        if len(weights) > 10:  # the policy's, and not a critic's
            found.append(torch.cat([weight.grad.flatten() for weight in weights if weight.grad is not None]).clone())
        return step(self, *arguments, **options)

    torch.optim.AdamW.step = remembered
    return found


def process(variants, data, out):
    data, out = Path(data), Path(out)
    processes, smoke = launched(), load_profile("smoke")
    sizes = smoke.training.model_copy(update={"num_rollouts": 1, "warmup_steps": 0})
    profile = smoke.model_copy(update={"training": sizes, "supervised": smoke.supervised | {"num_rollouts": 1}})
    gradients = remember_gradients()
    for name, overrides in variants:
        gradients.clear()
        train(
            load_recipe(name, **overrides),
            profile=profile,
            base_model=find_model("mini").folder,
            data_dir=data if processes.is_main else None,
            # Nothing can be made in a folder below a file.
            out=out if processes.is_main else Path(__file__) / "not here",
            seed=0,
        )
        if processes.is_main:
            file = "+".join([name, *map(str, overrides.values())])
            save_file({str(number): value for number, value in enumerate(gradients)}, out / f"{file}.safetensors")
