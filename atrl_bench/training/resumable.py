"""What every trainer here has from us: checkpoints that survive a kill, a clock, and no update by a broken gradient."""

from __future__ import annotations

import math
import os
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from accelerate.utils import gather_object, is_peft_model
from torch import Tensor
from transformers import Trainer, TrainerCallback

from atrl_bench.credit.trl import CreditWeights
from atrl_bench.engines.processes import PATIENCE_IN_TRAINING, launched
from atrl_bench.engines.stop import StopRequest
from atrl_bench.models.attention import prefer_flash_attention
from atrl_bench.training.clock import PhaseClock
from atrl_bench.training.rollout_engine import engine_spec
from atrl_bench.training.sharding import share
from atrl_bench.training.trainer_inputs import TrainerInputs

CHECKPOINT_PREFIX = "checkpoint-"
# Metrics that count rows, of which each process has its own; those of all are their sum.
COUNTS = frozenset({"credit/num_with_anchors", "credit/num_empty_visual", "credit/num_non_finite_rows"})


class Resumable(Trainer):
    """transformers' Trainer, or a mixin before one of TRL's.

    A resume checkpoint is written under another name and renamed when it is whole. Weights are loaded by
    `from_pretrained`. A non-finite gradient skips its update and is counted.
    """

    credit: CreditWeights | None = None

    def __init__(
        self, inputs: TrainerInputs[Any], model: Any = None, *, updates_per_rollout: int = 1, **trainer: Any
    ) -> None:
        """`model` is what is trained of the inputs; the inputs' own if not given."""
        super().__init__(model=inputs.model if model is None else model, processing_class=inputs.processor, **trainer)
        self.data, self.run_seed = inputs.data, inputs.seed
        self.updates_per_rollout = updates_per_rollout  # how many optimiser steps belong together
        self.sampled_by = engine_spec(inputs.recipe, inputs.profile)
        self.clock = PhaseClock()
        self._checkpoint_dir: Path | None = None
        self.notes: dict[str, list[float]] = defaultdict(list)  # for the next line of metrics
        share(self, self.data)
        if (reference := getattr(self, "ref_model", None)) is not None:  # TRL has loaded it, and rounds as the policy
            prefer_flash_attention(self.accelerator.unwrap_model(reference), inputs.recipe.sizes(inputs.profile).dtype)
        self.add_callback(_SkipNonFinite(self))

    @property
    def is_sharded(self) -> bool:
        return bool(self.is_fsdp_enabled)

    @property
    def pass_record(self) -> Mapping[str, str]:
        """What the record of the run says of its passes over several responses to a prompt."""
        return {}

    def release(self) -> None:
        """Give the model its own attention function back, before it is saved; no credit is computed any more."""
        if self.credit is not None:
            self.credit.capture.remove()
            self.credit.close()

    def note_credit(self) -> None:
        assert self.credit is not None
        for name, value in self.credit.pop_diagnostics().items():
            self.note(name, value)

    def training_step(self, *arguments: Any, **options: Any) -> Tensor:
        """The loss of one micro-batch, its forward and backward pass timed without the rollout."""
        with self.clock.phase("forward_backward"):
            return super().training_step(*arguments, **options)

    def note(self, name: str, value: float) -> None:
        """Keep a value for the next line of metrics, which has the mean of all."""
        self.notes[name].append(float(value))

    def note_all(self, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.note(name, value)

    def take_note(self, name: str) -> float:
        """The value that was noted last under this name, which no line of metrics then has."""
        return self.notes[name].pop()

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log what was noted, on all processes, with the seconds of each phase since the last line."""
        for name, seconds in self.clock.pop().items():
            self.note(f"seconds/{name}", seconds)
        notes = {name: values for name, values in self.notes.items() if values}
        self.notes.clear()
        logs |= means_of(gather_object([notes]) if self.accelerator.num_processes > 1 else [notes])
        super().log(logs, start_time)

    def _get_output_dir(self, trial: Any) -> str:
        return str(self._checkpoint_dir) if self._checkpoint_dir else super()._get_output_dir(trial)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write a resume checkpoint under another name, rename it when it is whole, then drop the one before."""
        folder = Path(self.args.output_dir)
        with self.clock.phase("saving"), self._writing_to(folder / "unfinished"):
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                name = f"{CHECKPOINT_PREFIX}{self.state.global_step}"
                older = list(folder.glob(f"{CHECKPOINT_PREFIX}*"))
                os.replace(folder / "unfinished" / name, folder / name)
                for path in older:
                    shutil.rmtree(path)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """Load the weights of a resume checkpoint.

        transformers' Trainer matches names in the file with names in memory, which differ for Qwen2.5-VL, and then
        goes on from the base with a warning; `from_pretrained` knows both.
        """
        if is_peft_model(self.model) or self.is_sharded:
            super()._load_from_checkpoint(resume_from_checkpoint, model)
        else:
            saved = type(self.model).from_pretrained(resume_from_checkpoint, dtype=self.model.dtype)
            self.model.load_state_dict(saved.state_dict())

    def _save_rng_state(self, output_dir: str) -> None:
        """Leave it to the main process: every rollout seeds its random numbers anew, and no batch draws any."""
        if self.args.should_save:
            super()._save_rng_state(output_dir)

    @contextmanager
    def _writing_to(self, folder: Path) -> Iterator[None]:
        if self.args.should_save:
            shutil.rmtree(folder, ignore_errors=True)
        self._checkpoint_dir = folder
        try:
            yield
        finally:
            self._checkpoint_dir = None

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Write no model card: the run folder has the recipe and the metrics."""


def means_of(notes: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, Any]:
    """One value for each name that some process noted; None where it is no number."""
    names = sorted(set().union(*notes))
    values = {name: over_processes(name, [one[name] for one in notes if name in one]) for name in names}
    return {name: None if math.isnan(value) else value for name, value in values.items()}


def over_processes(name: str, values: Sequence[Sequence[float]]) -> float:
    """One value for those of every process: the mean of all, or for counts of its own rows the sum of its means.

    What all processes do together, an update that they skip or a group that they replace, is counted once.
    """
    finite = [[value for value in one if not math.isnan(value)] for one in values]
    if name in COUNTS:
        return sum(fmean(one) for one in finite if one)
    return fmean(together) if (together := [value for one in finite for value in one]) else math.nan


class SaveAndStop(TrainerCallback):
    """The training saves after the update in which somebody asks it to stop, and ends."""

    def __init__(self, request: StopRequest) -> None:
        self._request = request

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if launched().agree(self._request.is_made, f"update {state.global_step}", PATIENCE_IN_TRAINING):
            control.should_save = control.should_training_stop = True


class _SkipNonFinite(TrainerCallback):
    """An update with a NaN or infinite gradient is skipped and counted, and the run goes on."""

    def __init__(self, trainer: Resumable) -> None:
        self._trainer = trainer

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        # Clipping has already spread a NaN of one process to all of them, so they agree.
        gradients = [p.grad for p in self._trainer.model.parameters() if p.grad is not None]
        finite = all(bool(torch.isfinite(gradient).all()) for gradient in gradients)
        if not finite:
            self._trainer.model.zero_grad(set_to_none=True)
        self._trainer.note("skipped_updates", 0.0 if finite else 1.0)
