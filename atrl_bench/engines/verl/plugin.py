"""What verl loads: importing this registers the engine and the trainer that know token credit.

verl finds it by the entry point `verl.plugins`, in the driver and in every Ray worker. Where an entry point fails verl
goes on without it and says nothing, so that a run would train without its credit. Configurations that we write name
this module in `VERL_USE_EXTERNAL_MODULES` too, where a failure ends the run.
"""

from __future__ import annotations

from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY
from verl.workers.engine.base import EngineRegistry

from atrl_bench.engines.verl.engine import BACKENDS, TokenCreditEngine
from atrl_bench.engines.verl.trainer import TokenCreditTrainer
from atrl_bench.errors import PluginError


def check_registration() -> None:
    classes = {
        f"the {backend} engine": (EngineRegistry.get_engine_cls("language_model", backend), TokenCreditEngine)
        for backend in BACKENDS
    }
    classes["the synchronous trainer"] = (TRAINER_REGISTRY["sync"], TokenCreditTrainer)
    for name, (registered, ours) in classes.items():
        if not issubclass(registered, ours):
            raise PluginError(
                f"verl would take {registered.__module__}.{registered.__qualname__} as {name}.",
                why="Another plug-in, or verl's own code for this device, has its place; it knows no token credit.",
                next_step="set VERL_USE_EXTERNAL_PLUGINS=none, which leaves the plug-ins of other packages out",
            )


check_registration()
