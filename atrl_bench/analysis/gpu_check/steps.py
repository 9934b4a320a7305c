"""A rollout with its optimiser steps through the trainer that trains everything here, with its phases and memory.

Adapters (LoRA) are trained, so that one GPU holds weights, adapters and activations: full training of the 3B model
keeps 16 bytes a parameter, 60 GB before the first activation. Weights of random numbers answer nothing right, so that
no advantage would come of their rewards: half of each group is taken to be right, which gives a gradient to follow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from transformers import PrinterCallback, TrainerCallback

from atrl_bench.analysis.gpu_check.bench import Bench
from atrl_bench.analysis.gpu_check.checks import Measured
from atrl_bench.analysis.gpu_check.machine import GB
from atrl_bench.analysis.gpu_check.memory import PeakClock, reset_peak
from atrl_bench.analysis.step_phases import CREDIT_PHASES, PHASES, StepPhases
from atrl_bench.training.advantages import GroupRelative
from atrl_bench.training.recipe import RolloutRecipe, load_recipe
from atrl_bench.training.rollouts import build
from atrl_bench.training.trainer_inputs import TrainerInputs

if TYPE_CHECKING:
    from atrl_bench.training.rollout_state import RolloutTrainer, SampledResponse
    from atrl_bench.training.trainer import CreditTrainer


class EveryOtherRight(GroupRelative):
    """Advantages as if every other response of a group were right."""

    every_group = True

    def __call__(
        self, batch: Mapping[str, Any], responses: Sequence[SampledResponse], trainer: RolloutTrainer
    ) -> Tensor:
        """Return advantages_B: +1 and -1 in turn."""
        sign_B = torch.ones_like(batch["advantages"])
        sign_B[1::2] = -1
        return sign_B


class StepTimer(TrainerCallback):
    """Times each optimiser step of `train`, and the optimiser's own part of it.

    The first rollout pays for what is set up once; its steps are not counted.
    """

    def __init__(self, trainer: CreditTrainer, clock: PeakClock) -> None:
        self.seconds = 0.0
        self.phases: dict[str, float] = {}
        self._warm_up = trainer.updates_per_rollout
        self._clock, self._step, self._started = clock, StepPhases(trainer, clock), 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Begin a step, whose first part is the rollout if there is none left to train on."""
        self._step.start()

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        """Begin the optimiser's part; gradients have been clipped."""
        self._started = self._clock.now()

    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        """End the optimiser's part."""
        self._clock.add("optimiser", self._clock.now() - self._started)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Add the step to those before."""
        seconds, phases = self._step.stop()
        self._clock.note_peak()
        if state.global_step <= self._warm_up:
            return
        self.seconds += seconds
        for name, part in phases.items():
            self.phases[name] = self.phases.get(name, 0.0) + part


def training_step(bench: Bench, recipe_name: str, credit: str) -> Measured:
    """Return the seconds of one rollout with its updates; wrong where nothing was learned or a number is not finite."""
    bench.release()
    profile = bench.size.profile
    recipe = cast(RolloutRecipe, load_recipe(recipe_name, credit=credit, finetuning="lora"))
    inputs = TrainerInputs(
        recipe,
        profile,
        bench.folder / recipe_name,
        bench.make_model(),
        bench.processor,
        bench.data(recipe.data),
        seed=0,
    )
    clock = PeakClock()
    with build(inputs) as trainer:
        trainer.remove_callback(PrinterCallback)
        trainer.estimator = EveryOtherRight()
        trainer.args.save_strategy = "no"
        trainer.args.learning_rate = 1e-4
        timer = StepTimer(trainer, clock)
        trainer.add_callback(timer)
        before = _adapters(trainer)
        reset_peak()
        trainer.train()
        moved = max(float((after - before[name]).abs().max()) for name, after in _adapters(trainer).items())
        details = _details(timer, clock, trainer, profile.training.prompts_per_rollout * bench.size.group_size)
        details["largest_change_of_an_adapter"] = moved
    return Measured(timer.seconds, "s", details=details, wrong=_what_is_wrong(details))


def _details(timer: StepTimer, clock: PeakClock, trainer: CreditTrainer, num_responses: int) -> dict[str, Any]:
    logs = [log for log in trainer.state.log_history if "loss" in log]
    tokens = logs[trainer.updates_per_rollout]["completions/mean_length"] * num_responses  # of the second rollout
    names = [name for name in PHASES if name in timer.phases] + sorted(timer.phases.keys() - PHASES.keys())
    return {
        "updates": trainer.updates_per_rollout,
        "responses": num_responses,
        "response_tokens": tokens,
        "generated_tokens_per_second": tokens / timer.phases["generation"],
        "loss": [log["loss"] for log in logs],
        "gradient_norm": [log["grad_norm"] for log in logs],
        "kl": [log["kl"] for log in logs if "kl" in log],
        "credit_share_percent": 100 * sum(timer.phases.get(name, 0.0) for name in CREDIT_PHASES) / timer.seconds,
        "peak_gb": max(clock.peaks.values()) / GB,
        "phases": [
            {
                "phase": name,
                "seconds": timer.phases[name],
                "share_percent": 100 * timer.phases[name] / timer.seconds,
                # The forward pass is the rest of a phase that has the backward pass in it.
                "peak_gb": _gb(clock.peaks.get("forward_backward" if name == "forward" else name)),
            }
            for name in names
        ],
    }


def _gb(num_bytes: int | None) -> float | None:
    """Return gigabytes; None for phases that are measured inside others, whose memory is theirs."""
    return None if num_bytes is None else num_bytes / GB


def _what_is_wrong(details: Mapping[str, Any]) -> str:
    for name in ("loss", "gradient_norm", "kl"):
        if not all(map(math.isfinite, details[name])):
            return f"{name.replace('_', ' ')} is not finite: {details[name]}"
    if not all(details["gradient_norm"]) or not details["largest_change_of_an_adapter"] > 0:
        return f"nothing was learned: norms of the gradient {details['gradient_norm']}"
    return ""


def _adapters(trainer: CreditTrainer) -> dict[str, Tensor]:
    """Return a copy of what is trained."""
    named = trainer.model.named_parameters()
    return {name: weight.detach().float().cpu().clone() for name, weight in named if weight.requires_grad}
